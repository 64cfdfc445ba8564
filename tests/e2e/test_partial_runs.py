"""Runs that are no whole ones, through every command that reads runs: sensible words, no traceback, no silent pass.

One was killed in the middle of its scale-out, replay and collector at once; one has events alone, read afterwards from
what the platform still kept, without any load.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.emulators import start_emulator
from tests.soaking import KEYS, made_scenario, make_burst
from traces.run import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

RAMPTRACE = [sys.executable, "-P", "-m", "ramptrace"]
NO_FAULTS = {"throttled_share = 0.2\nerror_share = 0.05\nslow_share = 0.05\n": ""}


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Partial(NamedTuple):
    killed: Path
    events: Path


def ramptrace(*arguments: object) -> Done:
    environment = os.environ | {"AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": KEYS[1], "NO_COLOR": "1"}
    done = subprocess.run(
        [*RAMPTRACE, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stderr + done.stdout
    return Done(done.returncode, done.stdout, done.stderr)


def seen(run: Path, anchor: str) -> bool:
    if not (run / "observations").is_dir():
        return False
    return anchor in RunDir(run).scan("observations").collect()["anchor"].to_list()


def wait_until(what, process: subprocess.Popen | None = None) -> None:
    deadline = time.monotonic() + 90
    while not what():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None
        time.sleep(0.2)


@pytest.fixture(scope="module")
def partial(tmp_path_factory) -> Partial:
    folder = tmp_path_factory.mktemp("partial")
    make_burst(folder / "burst.parquet")
    model = folder / "model.toml"
    model.write_text(made_scenario("http://127.0.0.1:1", 1, NO_FAULTS))
    environment = os.environ | {"AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": KEYS[1]}
    with start_emulator(credentials=KEYS, time_scale=20, scenario=model) as url:
        (folder / "scenario.toml").write_text(made_scenario(url, 1, NO_FAULTS))
        killed, events = folder / "killed", folder / "events"
        command = [*RAMPTRACE, "replay", str(folder / "scenario.toml"), "--run-dir", str(killed)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: seen(killed, "decision"), process)
        for one in [*psutil.Process(process.pid).children(recursive=True), process]:
            one.kill()
        process.wait(10)
        # The instance comes up without anyone watching.
        watched = ("--endpoint-name", "demo", "--region", "us-east-1", "--endpoint-url", url, "--emulator", url)
        time.sleep(6)
        done = ramptrace("collect", *watched, "--since", "30m", "--run-dir", events)
        assert done.code == 0, done.err
    return Partial(killed, events)


def analysis_of(run: Path) -> dict:
    return json.loads(ramptrace("analyse", run, "--json").out)["runs"][0]


def test_a_killed_run_says_that_its_scale_out_had_not_ended(partial, tmp_path):
    for told in (ramptrace("analyse", partial.killed), ramptrace("report", partial.killed, "--text")):
        assert told.code == 0
        assert told.out.startswith("Capacity was NOT reached while the run was watched.")
        assert "The decision came" in told.out
        assert "the run was never closed" in told.out
    (found,) = analysis_of(partial.killed)["scale_outs"]
    assert (found["time_to_capacity_s"], found["startup_s"]) == (None, None)
    assert ramptrace("report", partial.killed, "-o", tmp_path / "killed.html").code == 0
    assert "Capacity was NOT reached" in (tmp_path / "killed.html").read_text()


@pytest.mark.parametrize(("limit", "status"), [("4m", "inconclusive"), ("1s", "fail")])
def test_a_killed_run_passes_no_gate_on_capacity(partial, limit, status):
    done = ramptrace("gate", partial.killed, "--expr", f"time_to_capacity < {limit}", "--json")
    assert done.code in {3, 5}, "5 where so many rows are missing that the run is INVALID"
    verdict = json.loads(done.out)
    assert [gate["status"] for gate in verdict["gates"]] == [status]
    # It took at least as long as it was watched: the decision alone comes half a minute after the rise.
    assert verdict["gates"][0]["lo"] >= 30
    assert verdict["passed"] is False
    assert "the run was never closed: its replay was killed, or it still runs" in verdict["verdict_reasons"]


def test_events_alone_are_attributed_but_for_what_only_load_shows(partial, tmp_path):
    (found,) = analysis_of(partial.events)["scale_outs"]
    assert found["startup_s"] == pytest.approx(85, abs=15)
    assert found["time_to_capacity_s"] is None
    assert {"provisioning+pull", "download", "start"} <= set(found["phases"])
    told = ramptrace("report", partial.events, "--text")
    assert told.code == 0
    assert "no request is recorded" in told.out
    assert ramptrace("report", partial.events, "-o", tmp_path / "events.html").code == 0


def test_a_gate_on_requests_that_were_never_sent_is_no_pass(partial):
    done = ramptrace("gate", partial.events, "--expr", "p95(ttft) < 2s", "--expr", "failed(requests) < 1%")
    assert done.code == 3
    assert done.out.count("skipped") >= 2
    assert ramptrace("gate", partial.events, "--expr", "startup < 3m").code == 0


def test_comparing_with_a_run_that_never_got_there_is_refused_in_a_line(partial):
    done = ramptrace("compare", partial.events, partial.killed)
    assert done.code == 2
    (line,) = done.err.strip().splitlines()
    assert str(partial.killed) in line
