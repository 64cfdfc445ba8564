"""Real processes for the replay's tests: a small server, and `ramptrace replay` itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from traces.run import write_parquet
from traces.schema import Trace

SERVER = Path(__file__).with_name("server.py")


# A busy test machine may be late by seconds; what most of these tests are about is not its lag.
LENIENT = "[verdict]\ninvalid_lag_p99_ms = 60000.0\ninvalid_untrusted_share = 1.0\n"


class Server:
    def __init__(self, log: Path, *options: str) -> None:
        self.log = log
        log.touch()
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER), str(log), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = int(self.process.stdout.readline())

    def url(self, behaviour: str) -> str:
        return f"http://127.0.0.1:{self.port}/{behaviour}"

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def posts(self, behaviour: str) -> list[dict]:
        return [line for line in self.lines() if line.get("path", "").startswith(f"/{behaviour}/")]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)


@pytest.fixture
def server(tmp_path):
    found = Server(tmp_path / "server.log")
    yield found
    found.close()


@pytest.fixture
def server_with_clock(tmp_path):
    """A server whose clock runs 20 times faster, as an emulator's does."""
    found = Server(tmp_path / "server.log", "--clock")
    yield found
    found.close()


@pytest.fixture
def trace(tmp_path):
    """Write a Trace table of arrivals (ms) and return its path."""

    def write(arrivals_ms, output_tokens=6, **columns) -> Path:
        rows = len(arrivals_ms)
        data = {name: [None] * rows for name in pl.Schema(Trace)}
        data |= {
            "row_id": list(range(rows)),
            "arrival_us": [round(ms * 1000) for ms in arrivals_ms],
            "input_tokens": [10] * rows,
            "output_tokens": [output_tokens] * rows,
        } | columns
        path = tmp_path / "made.parquet"
        write_parquet(path, pl.DataFrame(data, schema=pl.Schema(Trace)))
        return path

    return write


@pytest.fixture
def command(tmp_path):
    """Return the command line of a replay, into `tmp_path / "run"`."""
    pytest.importorskip("traces.transform", reason="needs the trace readers")

    def build(trace: Path, url: str, *more: str, limits: str = LENIENT) -> list[str]:
        scenario = tmp_path / "scenario.toml"
        scenario.write_text(
            f'[trace]\npath = "{trace}"\n{limits}[target]\nurl = "{url}"\n[replay]\nlead = "500ms"\nflush = "100ms"\n'
        )
        return [sys.executable, "-m", "ramptrace", "replay", str(scenario), "--run-dir", str(tmp_path / "run"), *more]

    return build


@pytest.fixture
def replay(tmp_path, command):
    """Run a replay to its end; returns (exit code, JSON summary or None, standard error)."""

    def run(trace: Path, url: str, *more: str, limits: str = LENIENT):
        done = subprocess.run(
            command(trace, url, "--json", *more, limits=limits),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        summary = json.loads(done.stdout) if done.stdout.startswith("{") else None
        return done.returncode, summary, done.stderr

    return run


@pytest.fixture
def rows(tmp_path):
    """Return the recorded request rows, by row_id."""
    from traces.run import RunDir

    def read(name: str = "run") -> pl.DataFrame:
        return RunDir(tmp_path / name).scan("requests").sort("row_id").collect()

    return read
