"""The collector as a process: its handshake, its end, its death, and what it says when it cannot start."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tests.loadgen.collect.fake_aws import FakeAws, Server, tell_a_scale_out
from tests.loadgen.collect.running import attach_until_ready, make_run, start, wait_until
from traces.run import RunDir
from traces.schema import TABLES

pytestmark = pytest.mark.e2e


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server(FakeAws(20.0))
    served.start()
    tell_a_scale_out(served.fake, served.fake.now_us() - 20_000_000)
    yield served
    served.stop()


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that may not outlive the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def beats(run: RunDir) -> pl.DataFrame:
    return run.scan("samples").filter(pl.col("metric") == "heartbeat").collect()


def test_sigterm_ends_in_good_order(server: Server, tmp_path: Path, started: list) -> None:
    run = make_run(tmp_path / "run", server, flush_s=30)
    manifest = (run.path / "run.json").read_bytes()
    process = attach_until_ready(run)
    started.append(process)
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    # A flush interval of half a minute has not passed: all of this was written at the end.
    assert json.loads(out) == {
        "ended": True,
        **{t: run.scan(t).collect().height for t in ("observations", "samples", "gaps")},
    }
    assert run.scan("observations").collect().height == 11
    assert (run.path / "run.json").read_bytes() == manifest


@pytest.mark.parametrize("how", ["signal", "end of input"])
def test_the_tail_is_collected(server: Server, tmp_path: Path, started: list, how: str) -> None:
    run = make_run(tmp_path / "run", server, tail="40s")
    process = attach_until_ready(run)
    started.append(process)
    wait_until(lambda: run.scan("observations").collect().height == 11, "the first readings")
    if how == "signal":
        process.send_signal(signal.SIGTERM)
    else:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    ended = time.time()
    time.sleep(0.5)
    server.fake.current = 2
    process.communicate(timeout=30)
    assert process.returncode == 0
    (row,) = run.scan("observations").filter(pl.col("native_id").str.starts_with("current:")).collect().rows(named=True)
    assert row["response_received"].timestamp() > ended
    # 40 s of endpoint time are 2 s of ours.
    assert beats(run)["received"].max().timestamp() - ended > 1.5


def test_a_second_signal_stops_at_once_and_keeps_the_data(server: Server, tmp_path: Path, started: list) -> None:
    run = make_run(tmp_path / "run", server, tail="10h", flush_s=30)
    process = attach_until_ready(run)
    started.append(process)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert run.scan("observations").collect().height == 11


def test_kill_9_loses_at_most_a_flush_interval(server: Server, tmp_path: Path, started: list) -> None:
    run = make_run(tmp_path / "run", server, flush_s=0.2)
    process = attach_until_ready(run)
    started.append(process)
    wait_until(lambda: beats(run).height > 3, "heartbeats")
    killed = time.time()
    process.kill()
    process.communicate()
    tables = {name: run.scan(name).collect() for name in TABLES}
    assert [path for name in TABLES for path in run.unreadable(name)] == []
    assert tables["observations"].height == 11
    assert killed - beats(run)["received"].max().timestamp() < 0.2 + 1.0  # the flush itself, on a busy machine


def test_attached_again_nothing_is_written_twice_and_the_pause_is_a_gap(
    server: Server, tmp_path: Path, started: list
) -> None:
    run = make_run(tmp_path / "run", server)
    process = attach_until_ready(run)
    started.append(process)
    wait_until(lambda: run.scan("observations").collect().height == 11, "the first readings")
    wait_until(lambda: "describe-endpoint-last" in run.snapshots(), "the state")
    process.kill()
    process.communicate()
    server.fake.current = 2  # while nobody looks
    process = attach_until_ready(run)
    started.append(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    rows = run.scan("observations").collect()
    assert rows.select("source", "native_id").is_unique().all()
    assert rows.height == 12
    (found,) = rows.filter(pl.col("native_id").str.starts_with("current:1->2")).rows(named=True)
    (gap,) = run.scan("gaps").collect().rows(named=True)
    assert (gap["source"], gap["reason"]) == ("collector", "stopped")
    assert found["lo"] <= gap["end"]
    assert found["hi"] >= gap["start"]
    points = run.scan("samples").filter(pl.col("source") == "cloudwatch").collect()
    assert points.select("metric", "start").is_unique().all()


def test_alone_for_a_while(server: Server, tmp_path: Path, started: list) -> None:
    arguments = ["--endpoint-name", "demo", "--region", "us-east-1", "--endpoint-url", server.url]
    process = start(*arguments, "--duration", "20s", "--run-dir", tmp_path / "run", "--json")
    started.append(process)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    printed = json.loads(out)
    run = RunDir.open(tmp_path / "run")
    manifest = run.manifest()
    assert (manifest.state, manifest.emulated, manifest.time_scale) == ("finished", True, 20.0)
    assert (printed["run"], printed["rows"]) == (str(run.path), manifest.collector["rows"])
    assert printed["rows"]["observations"] == run.scan("observations").collect().height == 11


def test_alone_until_interrupted(server: Server, tmp_path: Path, started: list) -> None:
    scenario = tmp_path / "s.toml"
    scenario.write_text(
        '[trace]\npath = "t.csv"\n[target]\nurl = "http://127.0.0.1:9"\n'
        f'[collect]\nendpoint_name = "demo"\nregion = "us-east-1"\nendpoint_url = "{server.url}"\n'
        f'[run]\ndirectory = "{tmp_path}/filed"\ncondition = "x"\n'
    )
    process = start(scenario)
    started.append(process)
    wait_until(lambda: bool(list(tmp_path.glob("filed/*/observations/*.parquet"))), "observations")
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    (path,) = (tmp_path / "filed").iterdir()
    manifest = RunDir.open(path).manifest()
    assert (manifest.state, manifest.condition) == ("interrupted", "x")
    assert str(path) in out


def _refused(process: subprocess.Popen[str], code: int, *words: str) -> None:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    lines = [line for line in errors.splitlines() if line.startswith("ramptrace: ")]
    assert len(lines) == 1, errors
    assert "Traceback" not in errors
    for word in words:
        assert word in lines[0]


def test_nobody_there(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    arguments = ["--endpoint-name", "demo", "--region", "us-east-1", "--run-dir", tmp_path / "run"]
    _refused(start(*arguments, "--endpoint-url", url), 4, url)
    _refused(start(*arguments, "--emulator", url), 4, url)
    assert not (tmp_path / "run").exists()


def test_no_credentials(server: Server, tmp_path: Path) -> None:
    nothing = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}
    arguments = ["--endpoint-name", "demo", "--endpoint-url", server.url, "--run-dir", tmp_path / "run"]
    _refused(start(*arguments, "--region", "us-east-1", environment=nothing), 2, "credentials", "AWS_PROFILE")
    _refused(start(*arguments, environment=nothing), 2, "region")
    assert not (tmp_path / "run").exists()


def test_an_unknown_endpoint_or_variant_names_the_known_ones(server: Server, tmp_path: Path) -> None:
    arguments = ["--region", "us-east-1", "--endpoint-url", server.url, "--run-dir", tmp_path / "run"]
    _refused(start(*arguments, "--endpoint-name", "demmo"), 2, "demmo", 'did you mean "demo"')
    _refused(start(*arguments, "--endpoint-name", "demo", "--variant", "AlTraffic"), 2, 'did you mean "AllTraffic"')
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [([], ["--endpoint-name"]), (["none.toml"], ["none.toml"]), (["--attach", "nowhere"], ["nowhere", "run"])],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    _refused(start(*arguments), 2, *words)


def test_a_run_without_collect_cannot_be_attached_to(server: Server, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", server)
    manifest = run.manifest()
    manifest.scenario = {}
    run.write_manifest(manifest)
    _refused(start("--attach", run.path), 2, "[collect]")
