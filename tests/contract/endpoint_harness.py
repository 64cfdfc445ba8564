"""Sends single requests through an endpoint adapter and the replay's own client and sender, and prints their rows.

Standard input: a JSON list of `{"target": {…}, "prompts": {…}, "row": {…}}`, and where wanted `timeout_s`, `requests`
(so many over the same client, one after another) and `pause_s` between them. Standard output: a JSON list of the last
rows, with `resent`, how many requests the client has sent again.
"""

from __future__ import annotations

import json
import sys

import gevent
import locust  # noqa: F401 - first: it patches ssl, which botocore must not have imported before
import msgspec

from loadgen.endpoints.registry import make_endpoint
from loadgen.lookahead import Prepared
from loadgen.plan import PlannedRequest
from loadgen.preflight import reach
from loadgen.prompts import Prompts
from loadgen.scenario_file import build_scenario
from loadgen.sender import Sender
from traces.clock import ClientClock


def send(case: dict) -> dict:
    document = {"trace": {"path": "t"}, "target": case["target"], "prompts": case.get("prompts", {})}
    scenario = build_scenario(document, origin="case")
    now_us = ClientClock().now_us
    endpoint = make_endpoint(scenario.target, Prompts(scenario.prompts, seed=0))
    client = reach(endpoint.target, connect_timeout_s=5, verify_tls=True, now_us=now_us)
    rows = []
    timeout_s = case.get("timeout_s", 20)
    sender = Sender(client, endpoint, now_us=now_us, t0_us=now_us(), timeout_s=timeout_s, record=rows.append)
    endpoint.refresh()
    request = PlannedRequest(**{"row_id": 1, "due_us": 0, "input_tokens": 12, "output_tokens": 6} | case.get("row", {}))
    for _ in range(case.get("requests", 1)):
        sender.send(Prepared(request, endpoint.prepare(request), 0, 0))
        gevent.sleep(case.get("pause_s", 0))
    client.close()
    return msgspec.to_builtins(rows[-1]) | {"resent": client.resent}


if __name__ == "__main__":
    jobs = [gevent.spawn(send, case) for case in json.load(sys.stdin)]
    gevent.joinall(jobs, raise_error=True)
    print(json.dumps([job.value for job in jobs]))
