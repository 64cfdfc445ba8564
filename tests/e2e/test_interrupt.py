"""Ctrl-C and kill -9 at any moment: nothing is left running, every table still reads, and the loss is said."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import psutil
import pytest

from tests.emulators import start_emulator
from traces.run import RunDir
from traces.schema import TABLES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

_KEYS = ("AKIDTEST", "secret-for-tests")
_SCENARIO = """\
name = "killed"
[trace]
path = "corpus:reference-burst"
[target]
kind = "sagemaker"
url = "{url}"
endpoint_name = "demo"
region = "us-east-1"
[collect]
endpoint_name = "demo"
region = "us-east-1"
endpoint_url = "{url}"
[emulator]
url = "{url}"
"""


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", _KEYS[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", _KEYS[1])
    with start_emulator(credentials=_KEYS, time_scale=20) as address:
        yield address


def _start_replay(url: str, folder: Path) -> subprocess.Popen[str]:
    scenario = folder / "scenario.toml"
    scenario.write_text(_SCENARIO.format(url=url))
    command = [sys.executable, "-m", "ramptrace", "replay", str(scenario), "--run-dir", str(folder / "run"), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _wait_for_rows(folder: Path, process: subprocess.Popen[str]) -> None:
    """Wait until the replay has written its first requests and the collector its first observations."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        if list((folder / "run").glob("requests/*.parquet")) and list((folder / "run").glob("samples/*.parquet")):
            return
        time.sleep(0.1)
    pytest.fail("the replay recorded nothing within a minute")


def _collector_of(process: subprocess.Popen[str]) -> psutil.Process:
    found = [child for child in psutil.Process(process.pid).children(recursive=True) if "collect" in child.cmdline()]
    assert len(found) == 1
    return found[0]


def _analyse(run: Path) -> tuple[dict, str]:
    command = [sys.executable, "-m", "ramptrace", "analyse", str(run)]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    entry = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=60).stdout
    )
    return entry["runs"][0], text


@pytest.mark.parametrize("victim", ["replay", "collector", "both"])
def test_kill_9_loses_at_most_a_flush_interval_and_is_said(url: str, tmp_path: Path, victim: str) -> None:
    moment = random.Random().uniform(0.5, 8)
    print(f"killing {victim} {moment:.2f} s after the first rows")
    replay = _start_replay(url, tmp_path)
    collector: psutil.Process | None = None
    try:
        _wait_for_rows(tmp_path, replay)
        collector = _collector_of(replay)
        time.sleep(moment)
        killed_us = time.time_ns() // 1_000
        for process in {"replay": [replay], "collector": [collector], "both": [replay, collector]}[victim]:
            process.kill()
        if victim == "collector":
            # The replay must go on without it, and end well.
            replay.send_signal(signal.SIGINT)
            replay.communicate(timeout=60)
            assert replay.returncode == 130
        else:
            replay.communicate(timeout=60)
        if victim == "replay":
            # The collector sees its parent gone, finishes its tail and ends by itself.
            collector.wait(60)
    finally:
        for process in [replay, *([collector] if collector else [])]:
            if process.poll() is None if isinstance(process, subprocess.Popen) else process.is_running():
                process.kill()

    run = RunDir.open(tmp_path / "run")
    tables = {name: run.scan(name).collect() for name in TABLES}
    assert tables["requests"].height > 0
    assert not [path for name in TABLES for path in run.unreadable(name)]
    flush_us = run.manifest().flush_s * 1e6
    slack_us = 1.5e6  # the time a flush itself may take on a busy machine
    if victim != "collector":
        last_us = tables["requests"]["done"].max().timestamp() * 1e6
        assert killed_us - last_us < flush_us + slack_us
    if victim != "replay":
        beats = tables["samples"].filter(pl.col("metric") == "heartbeat")
        last_us = beats["received"].max().timestamp() * 1e6
        assert killed_us - last_us < flush_us + slack_us

    entry, text = _analyse(run.path)
    said = " ".join(finding["text"] for finding in entry["findings"]).lower()
    if victim in {"replay", "both"}:
        assert "replay" in said
    if victim in {"collector", "both"}:
        assert "collector" in said
    assert all(finding["text"].split()[0] in text for finding in entry["findings"])


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_interrupting_a_replay_keeps_the_data_and_accounts_for_every_row(url: str, tmp_path: Path, name: str) -> None:
    replay = _start_replay(url, tmp_path)
    _wait_for_rows(tmp_path, replay)
    replay.send_signal(getattr(signal, name))
    _, errors = replay.communicate(timeout=60)
    assert replay.returncode == 130
    assert "Traceback" not in errors
    run = RunDir.open(tmp_path / "run")
    assert run.manifest().state == "interrupted"
    planned = pl.read_parquet(run.path / "trace.parquet")["row_id"]
    requests = run.scan("requests").collect()
    assert sorted(requests["row_id"]) == sorted(planned)
    assert "not_sent" in set(requests["outcome"])


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_interrupting_the_demo_leaves_nothing_running(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-m", "ramptrace", "demo", "--json"]
    demo = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("runs/*/*/requests/*.parquet")) and time.monotonic() < deadline:
        assert demo.poll() is None
        time.sleep(0.1)
    started = psutil.Process(demo.pid).children(recursive=True)
    assert len(started) >= 3  # emulator, replay, collector
    demo.send_signal(getattr(signal, name))
    _, errors = demo.communicate(timeout=90)
    killed = name == "SIGKILL"
    assert demo.returncode == (-signal.SIGKILL if killed else 130)
    assert "Traceback" not in errors
    # Killed, the demo cannot wait for its children: they see it gone and end by themselves.
    _, alive = psutil.wait_procs(started, timeout=60 if killed else 10)
    assert alive == []
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
