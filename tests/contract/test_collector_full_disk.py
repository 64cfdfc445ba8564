"""A collector on a disk that fills up, and on paths that cannot be written: a real, small file system each time."""

import contextlib
import os
import signal
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
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, 16 MB in size."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that may not outlive the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def fill(disk: Path) -> Path:
    """Leave no byte free."""
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    assert os.statvfs(disk).f_bavail == 0
    return filler


def all_whole(run: RunDir) -> bool:
    return not [path for name in TABLES for path in run.unreadable(name)] and not list(run.path.rglob(".part-*"))


def beats(run: RunDir) -> int:
    return run.scan("samples").filter(pl.col("metric") == "heartbeat").collect().height


def rise(run: RunDir) -> int:
    return run.scan("observations").filter(pl.col("native_id").str.starts_with("current:1->2")).collect().height


def error_of(errors: str) -> str:
    """Return the command's own last word, the only one of its kind."""
    assert "Traceback" not in errors
    (line,) = (line for line in errors.splitlines() if line.startswith("ramptrace: "))
    return line


def test_rows_wait_in_memory_until_there_is_space(server: Server, disk: Path, started: list) -> None:
    run = make_run(disk / "run", server)
    process = attach_until_ready(run)
    started.append(process)
    assert process.stderr is not None
    wait_until(lambda: run.scan("observations").collect().height == 11 and beats(run) > 2, "the first rows")
    filler = fill(disk)
    line = process.stderr.readline()
    assert "cannot write to" in line
    assert "No space left" in line
    assert str(run.path) in line
    server.fake.current = 2
    calls = server.fake.calls["DescribeEndpoint"]
    wait_until(lambda: server.fake.calls["DescribeEndpoint"] > calls + 1, "a poll while nothing can be written")
    before = beats(run)
    assert "keeping" in process.stderr.readline()
    assert all_whole(run)
    assert (rise(run), beats(run)) == (0, before)
    filler.unlink()
    assert "can be written again" in process.stderr.readline()
    wait_until(lambda: rise(run) == 1, "the change that was seen meanwhile")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    rows = run.scan("observations").collect()
    assert rows.select("source", "native_id").is_unique().all()
    assert rows.height == 12
    assert run.scan("gaps").collect().is_empty()
    assert all_whole(run)


def test_still_full_at_the_end_is_an_error_and_spoils_nothing(server: Server, disk: Path, started: list) -> None:
    run = make_run(disk / "run", server)
    process = attach_until_ready(run)
    started.append(process)
    wait_until(lambda: run.scan("observations").collect().height == 11, "the first rows")
    fill(disk)
    assert process.stderr is not None
    assert "cannot write to" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "ended" not in out
    line = error_of(errors)
    assert str(run.path) in line
    assert "rows could not be written (No space left on device)" in line
    assert all_whole(run)
    assert run.scan("observations").collect().height == 11


def test_alone_and_full_it_ends_with_one_line(server: Server, disk: Path, started: list) -> None:
    arguments = ["--endpoint-name", "demo", "--region", "us-east-1", "--endpoint-url", server.url]
    process = start(*arguments, "--run-dir", disk / "run")
    started.append(process)
    wait_until(lambda: (disk / "run/run.json").exists() and beats(RunDir(disk / "run")) > 0, "a heartbeat")
    fill(disk)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)  # no longer waiting for space
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "rows could not be written" in error_of(errors)
    run = RunDir.open(disk / "run")
    assert all_whole(run)
    assert run.manifest().state == "running"  # there was no space to say more


@pytest.mark.parametrize("how", ["read-only", "below a file"])
def test_a_path_that_cannot_be_written(server: Server, disk: Path, tmp_path: Path, started: list, how: str) -> None:
    place = disk / "run"
    if how == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    else:
        (tmp_path / "file").touch()
        place = tmp_path / "file" / "run"
    arguments = ["--endpoint-name", "demo", "--region", "us-east-1", "--endpoint-url", server.url]
    for more in ([], ["--since", "1h"]):
        process = start(*arguments, "--run-dir", place, "--duration", "1s", *more)
        started.append(process)
        out, errors = process.communicate(timeout=60)
        assert (process.returncode, out) == (2, "")
        assert str(place) in error_of(errors)


def test_a_run_that_became_read_only(server: Server, disk: Path, started: list) -> None:
    run = make_run(disk / "run", server)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    process = start("--attach", run.path)
    started.append(process)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert str(run.path) in error_of(errors)
