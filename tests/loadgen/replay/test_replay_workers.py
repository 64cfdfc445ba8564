"""Several worker processes on one machine: one schedule, one run directory, one verdict, whatever becomes of one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import psutil
import pytest

from tests.loadgen.replay.pages import Page
from traces.clock import to_us
from traces.run import RunDir

pytestmark = pytest.mark.e2e

SHIFT_S = 7
_CLOCK_AHEAD = f"""
import sys, time
if "--worker" in sys.argv:
    real = time.time_ns
    time.time_ns = lambda: real() + {SHIFT_S} * 10**9
"""
_OTHER_VERSION = """
import sys, importlib.metadata as m
if "--worker" in sys.argv:
    real = m.version
    m.version = lambda name: "0.0.9" if name == "ramptrace" else real(name)
"""


def altered(tmp_path, code: str) -> dict[str, str]:
    """Return an environment in which workers run some code before all else."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    return os.environ | {"PYTHONPATH": str(folder)}


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(command, tmp_path, **more):
    return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("it did not come to that")
        time.sleep(0.05)


def workers_of(process) -> list[psutil.Process]:
    return [child for child in psutil.Process(process.pid).children() if "--worker" in child.cmdline()]


def test_conversations_stay_whole_and_clocks_are_brought_together(server, trace, command, rows, tmp_path):
    """The workers' clocks are seven seconds ahead of the master's; their rows are on its time all the same."""
    sessions = [f"s{i % 5}" if i % 3 else None for i in range(120)]
    path = trace([i * 25 for i in range(120)], session_id=sessions)
    line = command(path, server.url("ok"), "--workers", "2", "--json")
    began_us = time.time_ns() // 1000
    done = subprocess.run(
        line, cwd=tmp_path, env=altered(tmp_path, _CLOCK_AHEAD), capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    found, run = rows(), RunDir(tmp_path / "run")
    assert found["row_id"].to_list() == list(range(120))
    assert set(found["outcome"]) == {"ok"}
    assert set(found["shard"]) == {0, 1}
    per_session = found.with_columns(session=pl.Series(sessions)).drop_nulls("session").group_by("session")
    assert (per_session.agg(pl.col("shard").n_unique())["shard"] == 1).all()
    manifest = run.manifest()
    assert manifest.state == "finished"
    t0_us = manifest.t0_us
    assert began_us < t0_us < began_us + 90_000_000, "t0 is on the master's clock"
    earliest = (found["due"] - found["due"].min()).dt.total_microseconds()
    assert (earliest >= pl.Series([i * 25_000 for i in range(120)])).all()
    assert to_us(found["due"].min()) == t0_us
    assert (found["sent"] >= found["due"]).all()
    for worker in manifest.workers:
        assert worker.state == "finished"
        assert abs(worker.clock_offset_us - SHIFT_S * 1_000_000) <= worker.clock_error_us
    summary = json.loads(done.stdout)
    assert sum(worker["planned"] for worker in summary["workers"]) == summary["requests"]["planned"] == 120
    assert summary["verdict"]["clock_error_ms"] == max(w.clock_error_us for w in manifest.workers) / 1e3
    samples = run.scan("samples").filter(pl.col("metric") == "in_flight").collect()
    assert set(samples["resource"]) == {"worker0", "worker1"}
    assert not [file.name for file in (tmp_path / "run").iterdir() if "worker" in file.name], "nothing is left behind"


def test_a_worker_that_is_killed_makes_the_run_invalid_and_the_others_finish(server, trace, command, rows, tmp_path):
    path = trace([i * 25 for i in range(320)])
    process = start(command(path, server.url("ok"), "--workers", "2", "--json"), tmp_path)
    until(lambda: len(server.posts("ok")) >= 60)
    time.sleep(0.5)
    victim = workers_of(process)[0]
    victim.kill()
    stdout, stderr = process.communicate(timeout=90)
    assert process.returncode == 5, stderr
    summary = json.loads(stdout)
    assert summary["verdict"]["status"] == "INVALID"
    assert "lost" in stderr
    (lost,) = [worker for worker in summary["workers"] if worker["state"] == "lost"]
    assert f"worker {lost['shard']}" in " ".join(summary["verdict"]["reasons"])
    found = rows()
    assert found["row_id"].to_list() == list(range(320)), "every row of the plan is accounted for, once"
    alive = found.filter(pl.col("shard") != lost["shard"])
    assert set(alive["outcome"]) == {"ok"}
    cut = found.filter(pl.col("shard") == lost["shard"])
    assert cut.filter(pl.col("outcome") == "ok").height > 10, "what it had flushed survives"
    assert set(cut.filter(pl.col("outcome") != "ok")["error_kind"]) <= {"killed", "worker_lost"}
    assert cut.filter(pl.col("error_kind") == "worker_lost").height > 0
    said = subprocess.run(
        [sys.executable, "-m", "ramptrace", "analyse", str(tmp_path / "run")],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert f"worker {lost['shard']}" in said.stdout + said.stderr
    assert "INVALID" in said.stdout
    again = subprocess.run(
        [sys.executable, "-m", "ramptrace", "replay", "--resume", str(tmp_path / "run")],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert again.returncode == 2


def test_a_stop_drains_all_workers_and_every_row_is_accounted_for(server, trace, command, rows, tmp_path):
    path = trace([i * 25 for i in range(2000)])
    process = start(command(path, server.url("ok"), "--workers", "2", "--json"), tmp_path)
    until(lambda: len(server.posts("ok")) >= 40)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    found = rows()
    assert found["row_id"].to_list() == list(range(2000))
    rest = found.filter(pl.col("outcome") != "ok")
    assert set(rest["error_kind"]) == {"interrupted"}
    assert RunDir(tmp_path / "run").manifest().state == "interrupted"
    assert json.loads(stdout)["verdict"]["status"] == "DEGRADED"
    refused = subprocess.run(
        [sys.executable, "-m", "ramptrace", "replay", "--resume", str(tmp_path / "run")],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "2 workers" in refused.stderr


def test_a_rule_sees_all_workers_and_ends_the_run(server, trace, command, rows, tmp_path):
    path = trace([i * 25 for i in range(2000)])
    more = ("--workers", "2", "--json", "--abort-on", "errors>50%", "--abort-grace", "1s")
    process = start(command(path, server.url("503"), *more), tmp_path)
    _, stderr = process.communicate(timeout=90)
    assert process.returncode == 3, stderr
    assert set(rows().filter(pl.col("outcome") == "not_sent")["error_kind"]) == {"aborted"}


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--max-in-flight", "1"], "2 workers"),
        (["--master"], "exclude"),
        (["--resume", "elsewhere"], "exclude"),
    ],
)
def test_what_workers_cannot_do_is_refused_before_anything_is_sent(server, trace, command, tmp_path, more, word):
    line = command(trace([i * 20 for i in range(50)]), server.url("ok"), "--workers", "2", *more)
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert not server.posts("ok")
    assert not (tmp_path / "run" / "run.json").exists()


class Pair:
    """A master and its workers, each started by hand."""

    def __init__(self, command, tmp_path, trace, url, *more, expect=1):
        self.port = str(free_port())
        self.tmp_path = tmp_path
        line = command(trace, url, "--master", "--expect-workers", str(expect), "--master-bind-port", self.port, *more)
        self.master = start(line, tmp_path)
        self.workers: list[subprocess.Popen] = []

    def worker(self, *more, **environment):
        line = [sys.executable, "-m", "ramptrace", "replay", "--worker", "--master-port", self.port, *more]
        process = start(line, self.tmp_path, **environment)
        self.workers.append(process)
        return process

    def close(self):
        for process in [self.master, *self.workers]:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=30)


@pytest.fixture
def pair(command, tmp_path):
    made = []

    def make(*arguments, **more):
        made.append(Pair(command, tmp_path, *arguments, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("kind", ["content", "version"])
def test_a_worker_that_does_not_fit_is_a_refusal_on_both_sides(server, trace, pair, tmp_path, kind):
    path = trace([i * 20 for i in range(50)])
    two = pair(path, server.url("ok"))
    if kind == "content":
        other = tmp_path / "other.parquet"
        pl.read_parquet(path).with_columns(pl.col("output_tokens") + 1).write_parquet(other)
        worker = two.worker("--trace", str(other))
    else:
        worker = two.worker(env=altered(tmp_path, _OTHER_VERSION))
    word = "sha256" if kind == "content" else "0.0.9"
    for process in (two.master, worker):
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 2, stderr
        assert word in stderr
        assert "Traceback" not in stderr
    assert not server.posts("ok")
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_late_joiner_is_turned_away_and_a_worker_that_leaves_spoils_the_run(server, trace, pair, rows, tmp_path):
    two = pair(trace([i * 25 for i in range(400)]), server.url("ok"), expect=1)
    first = two.worker()
    until(lambda: len(server.posts("ok")) >= 5)
    late = two.worker()
    _, stderr = late.communicate(timeout=60)
    assert late.returncode == 2, stderr
    assert "begun" in stderr
    first.send_signal(signal.SIGTERM)
    _, stderr = first.communicate(timeout=60)
    assert first.returncode == 130, stderr
    _, stderr = two.master.communicate(timeout=60)
    assert two.master.returncode == 5, stderr
    found = rows()
    assert found.height == 400
    assert set(found.filter(pl.col("outcome") != "ok")["error_kind"]) == {"worker_stopped"}


def test_the_target_s_query_is_the_worker_s_own_to_know(server, trace, pair, rows, tmp_path):
    """What may be a key is not sent over the unencrypted channel."""
    url = server.url("ok") + "?key=SECRET7"
    two = pair(trace([0, 20]), url)
    worker = two.worker()
    _, stderr = worker.communicate(timeout=60)
    assert worker.returncode == 2
    assert "--target" in stderr
    assert "SECRET7" not in stderr
    assert two.master.wait(60) == 2


def test_a_worker_without_a_master_says_so(tmp_path):
    code = (
        "import locust.runners as r, ramptrace; r.CONNECT_TIMEOUT, r.CONNECT_RETRY_COUNT = 0.05, 1; "
        f"ramptrace.main(['replay', '--worker', '--master-port', '{free_port()}'])"
    )
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 4, done.stderr
    assert "no master answers" in done.stderr
    assert "Traceback" not in done.stderr


def _locust(trace, url, tmp_path, *more):
    import loadgen

    file = Path(loadgen.__file__).with_name("locustfile.py")
    (tmp_path / "scenario.toml").write_text(
        f'[trace]\npath = "{trace}"\n[verdict]\ninvalid_lag_p99_ms = 1000.0\ninvalid_untrusted_share = 1.0\n'
        f'[target]\nurl = "{url}"\n[replay]\nlead = "500ms"\nflush = "100ms"\n'
    )
    return [sys.executable, "-m", "locust", "-f", str(file), "--scenario", str(tmp_path / "scenario.toml"), *more]


def test_locust_s_processes_send_and_its_files_hold_the_whole_run(server, trace, rows, tmp_path):
    import csv

    path = trace([i * 40 for i in range(60)])
    files = ("--csv", "out/c", "--html", "out/r.html", "--json-file", "out/j", "--run-dir", str(tmp_path / "run"))
    port = ("--master-bind-port", (number := str(free_port())), "--master-port", number)
    line = _locust(path, server.url("ok"), tmp_path, "--headless", "--processes", "2", *port, *files)
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    found = rows()
    assert found.height == 60
    assert set(found["shard"]) == {0, 1}
    with (tmp_path / "out/c_stats.csv").open() as file:
        table = {row["Name"]: row for row in csv.DictReader(file)}
    assert int(table["Aggregated"]["Request Count"]) == 60
    (entry,) = json.loads((tmp_path / "out/j.json").read_text())
    assert (entry["num_requests"], entry["num_failures"]) == (60, 0)
    assert "served-model" in (tmp_path / "out/r.html").read_text()
    assert any(float(bucket) % 1 for bucket in entry["response_times"]), "three significant digits on workers, too"


def test_the_web_page_starts_stops_and_starts_again_with_workers(server, trace, tmp_path):
    """A second run starts clean; one that is stopped by its button is interrupted, on all workers."""

    def manifests():
        found = [RunDir.open(run).manifest() for run in tmp_path.glob("runs/*")]
        return {manifest.condition: manifest for manifest in found}

    number = str(free_port())
    path = trace([i * 20 for i in range(10)])
    page = Page(_locust(path, server.url("ok"), tmp_path, "--master", "--master-bind-port", number), tmp_path)
    workers = [
        start(_locust(path, server.url("ok"), tmp_path, "--worker", "--master-port", number), tmp_path)
        for _ in range(2)
    ]
    try:
        page.until(lambda: page.stats()["worker_count"] == 2)
        for condition, more in (("first", {}), ("second", {"loop": "true", "duration": "10m"}), ("third", {})):
            form = {"loop": "false", "duration": "", **more}
            answer = page.get("/swarm", user_count="1", spawn_rate="1", condition=condition, **form)
            assert json.loads(answer[1])["success"]
            if more:
                page.until(lambda: page.total() > 20)
                page.get("/stop", now="1")
            wanted = "interrupted" if more else "finished"
            page.until(lambda c=condition, w=wanted: c in manifests() and manifests()[c].state == w)
            page.until(lambda: page.stats()["state"] in {"stopped", "ready"})
            if not more:
                # Workers report to the page every few seconds; what comes then is this run's own, and no more.
                page.until(lambda: page.total() > 0)
                page.until(lambda: page.total() == 10)
            assert [part.state for part in manifests()[condition].workers] == ["finished"] * 2
            page.until(lambda: page.stats()["worker_count"] == 2)
    finally:
        page.close()
        for worker in workers:
            worker.communicate(timeout=30)
    assert page.process.returncode == 130 or page.process.returncode == 0
    assert [worker.returncode for worker in workers] == [0, 0]
