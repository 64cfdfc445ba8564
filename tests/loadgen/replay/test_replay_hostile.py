"""Faults byte by byte: each has the outcome that it should, none hangs, none counts as a success, none is retried."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.test_endpoints_contract import ask
from tests.loadgen.replay.hostile import WRITTEN

pytestmark = pytest.mark.e2e

SCRIPT = Path(__file__).with_name("hostile.py")
OUTCOMES = {
    "truncated-chunk": ("truncated", "closed_early"),
    "no-last-chunk": ("truncated", "closed_early"),
    "bad-chunk-size": ("stream_error", "bad_http"),
    "huge-chunk-size": ("stream_error", "bad_http"),
    "length-too-long": ("truncated", "closed_early"),
    "length-too-short": ("stream_error", "surplus_bytes"),
    "length-and-garbage": ("stream_error", "surplus_bytes"),
    "two-lengths": ("stream_error", "bad_http"),
    "length-and-chunks": ("stream_error", "bad_http"),
    "head-cut": ("truncated", "closed_early"),
    "nothing": ("truncated", "closed_before_response"),
    "not-http": ("stream_error", "bad_http"),
    "two-answers": ("stream_error", "surplus_bytes"),
    "interim-only": ("truncated", "closed_early"),
    "switching": ("stream_error", "bad_http"),
    "garbage-after-done": ("stream_error", "data_after_done"),
    "event-after-done": ("stream_error", "data_after_done"),
    "error-event": ("stream_error", "server_error"),
    "error-after-done": ("stream_error", "data_after_done"),
    "gzip": ("stream_error", "encoded_body"),
    "says-gzip": ("stream_error", "encoded_body"),
    "gzip-transfer": ("stream_error", "encoded_body"),
    "no-end-marker": ("truncated", "no_end_marker"),
    "binary-event": ("stream_error", "malformed_event"),
    "interim": ("ok", None),
    "trailers": ("ok", None),
    "http10": ("ok", None),
    "close": ("ok", None),
    "spaced": ("ok", None),
    "comment-after-done": ("ok", None),
    "header-flood": ("stream_error", "too_much_overhead"),
    "interim-flood": ("stream_error", "too_much_overhead"),
    "trailer-flood": ("stream_error", "too_much_overhead"),
    "slow-body": ("timeout", "request_timeout"),
    "slow-head": ("timeout", "request_timeout"),
    "silence": ("timeout", "request_timeout"),
    "reset": ("truncated", "closed_early"),
    "reset-at-once": ("truncated", "closed_before_response"),
    "half-closed": ("truncated", "closed_early"),
    "half-closed-at-once": ("truncated", "closed_before_response"),
    "flood": ("stream_error", "event_too_long"),
}
ENDLESS = {"slow-body", "slow-head", "silence"}


class Hostile:
    def __init__(self, folder: Path, *options: str) -> None:
        self.log = folder / "hostile.log"
        self.log.touch()
        command = [sys.executable, str(SCRIPT), str(self.log), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def target(self, fault: str, host: str = "127.0.0.1", **more: object) -> dict:
        return {"kind": "openai", "url": f"http://{host}:{self.port}/{fault}", "model": "m", **more}

    def read(self, fault: str) -> int:
        """How many requests of a fault the server has read whole."""
        lines = [json.loads(line)["line"] for line in self.log.read_text().splitlines()]
        return sum(line.split(" ")[1].startswith(f"/{fault}/") for line in lines)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    found = Hostile(tmp_path_factory.mktemp("hostile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def rows(hostile, tmp_path_factory):
    """The row of one request to each fault, all at once in one process."""
    cases = [
        {"target": hostile.target(fault), "timeout_s": 1.5 if fault in ENDLESS else 30, "row": {"output_tokens": 2}}
        for fault in OUTCOMES
    ]
    return dict(zip(OUTCOMES, ask(cases, tmp_path_factory.mktemp("ask")), strict=True))


def test_every_fault_is_known():
    assert set(WRITTEN) <= set(OUTCOMES)


@pytest.mark.parametrize("fault", OUTCOMES)
def test_each_fault_has_its_outcome_and_is_asked_for_once(rows, hostile, fault):
    row = rows[fault]
    assert (row["outcome"], row["error_kind"]) == OUTCOMES[fault]
    assert (hostile.read(fault), row["resent"]) == (1, 0)
    assert row["sent"] <= row["done"]
    if row["outcome"] == "ok":
        assert row["chunks"] == 2


def test_a_whole_answer_of_an_unknown_protocol_is_no_success_either(hostile, tmp_path):
    faults = ["truncated-chunk", "length-too-long", "length-too-short", "gzip", "says-gzip", "reset", "nothing"]
    cases = [{"target": {"kind": "http", "url": hostile.target(fault)["url"]}} for fault in faults]
    assert {row["outcome"] for row in ask(cases, tmp_path)} <= {"truncated", "stream_error"}


RACES = {
    # asked three times over one connection, which the server ends with the second request
    "keep-and-reset-unread": ("ok", None, 1),
    "keep-and-close": ("truncated", "stale_connection", 0),
}


@pytest.mark.parametrize("fault", RACES)
def test_an_idle_connection_that_closes_as_the_request_goes_out(hostile, tmp_path, fault):
    """Sent again only where the server cannot have had it; a request that it may have had is a failure of its own."""
    (row,) = ask([{"target": hostile.target(fault), "requests": 2}], tmp_path)
    assert (row["outcome"], row["error_kind"], row["resent"]) == RACES[fault]
    assert hostile.read(fault) == 2


@pytest.mark.parametrize("fault", ["keep-then-say-something", "keep-for-no-time"])
def test_a_connection_that_cannot_be_used_again_is_not(hostile, tmp_path, fault):
    (row,) = ask([{"target": hostile.target(fault), "requests": 3, "pause_s": 0.2}], tmp_path)
    assert (row["outcome"], row["resent"]) == ("ok", 0)
    assert hostile.read(fault) == 3
