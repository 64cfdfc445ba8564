"""Start a collection in the test's own process, or as a process of its own."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.loadgen.collect.fake_aws import ENDPOINT, FakeAws, Server
from traces.run import Manifest, RunDir

ROOT = Path(__file__).resolve().parents[3]
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIDTEST",
    "AWS_SECRET_ACCESS_KEY": "secret-for-tests",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
# The command line as `ramptrace` composes it, without the parts that another room brings.
MAIN = "import sys, ramptrace; ramptrace._COMMANDS['collect'] = ('loadgen.collect.cli', ''); ramptrace.main(sys.argv[1:])"


def make_run(path: Path, server: Server, *, flush_s: float = 0.1, **collect: str) -> RunDir:
    """Make the run directory that a replay would have made."""
    section = {"endpoint_name": ENDPOINT, "region": "us-east-1", "endpoint_url": server.url, "tail": "0", **collect}
    manifest = Manifest(
        run_id="r",
        created_us=time.time_ns() // 1_000,
        clock=server.fake.clock,
        scenario={"collect": section},
        flush_s=flush_s,
        emulated=True,
    )
    return RunDir.create(path, manifest)


def start(*arguments: str | Path, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the collector as a process; its standard input is ours to close."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-c", MAIN, "collect", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=kept | (CREDENTIALS if environment is None else environment) | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def attach_until_ready(run: RunDir) -> subprocess.Popen[str]:
    process = start("--attach", run.path)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr else ""
    assert json.loads(line) == {"ready": True}
    return process


def wait_until(holds: Callable[[], bool], what: str, patience_s: float = 20) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {patience_s} s: {what}")
        time.sleep(0.05)


async def until(holds: Callable[[], bool], what: str, patience_s: float = 20) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {patience_s} s: {what}")
        await asyncio.sleep(0.02)


__all__ = ["FakeAws", "Server", "attach_until_ready", "make_run", "start", "until", "wait_until"]
