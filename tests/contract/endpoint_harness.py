"""Sends single requests through an endpoint adapter and the replay's own client and sender, and prints their rows.

Standard input: a JSON list of `{"target": {…}, "prompts": {…}, "row": {…}}`. Standard output: a JSON list of rows.
"""

from __future__ import annotations

import json
import sys

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
    sender = Sender(client, endpoint, now_us=now_us, t0_us=now_us(), timeout_s=20, record=rows.append)
    endpoint.refresh()
    request = PlannedRequest(**{"row_id": 1, "due_us": 0, "input_tokens": 12, "output_tokens": 6} | case.get("row", {}))
    sender.send(Prepared(request, endpoint.prepare(request), 0, 0))
    client.close()
    return msgspec.to_builtins(rows[0])


if __name__ == "__main__":
    print(json.dumps([send(case) for case in json.load(sys.stdin)]))
