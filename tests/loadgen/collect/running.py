"""Start a collection in the test's own process, or as a process of its own."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from loadgen.scenario import CollectSection
from tests.loadgen.collect.fake_aws import ENDPOINT, Server
from traces.clock import ClientClock
from traces.manifest import Manifest
from traces.run import RunDir

ROOT = Path(__file__).resolve().parents[3]
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIDTEST",
    "AWS_SECRET_ACCESS_KEY": "secret-for-tests",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
# The command line as `ramptrace` composes it, without the parts that another room brings.
MAIN = (
    "import sys, ramptrace; ramptrace._COMMANDS['collect'] = ('loadgen.collect.cli', ''); ramptrace.main(sys.argv[1:])"
)


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


def collected(run: RunDir, meanwhile: Callable[[int], bool], pause_s: float) -> list[str]:
    """Collect in this process until `meanwhile(step)`, called every `pause_s`, says no; returns what was said."""
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        asyncio.run(_collect(run, meanwhile, pause_s, said))
    return said


async def _collect(run: RunDir, meanwhile: Callable[[int], bool], pause_s: float, said: list[str]) -> None:
    from loadgen.collect.session import Ending, collect_into

    manifest = run.manifest()
    section = msgspec.convert(manifest.scenario["collect"], CollectSection)
    ending, ready = Ending(asyncio.Event(), asyncio.Event()), asyncio.Event()
    collection = asyncio.create_task(
        collect_into(
            run,
            section,
            ClientClock(),
            manifest.clock,
            ending,
            flush_s=manifest.flush_s,
            say=said.append,
            on_ready=ready.set,
        )
    )
    await asyncio.wait_for(ready.wait(), 30)
    step = 0
    await asyncio.sleep(pause_s)
    while meanwhile(step):
        step += 1
        await asyncio.sleep(pause_s)
    ending.load_ended.set()
    await asyncio.wait_for(collection, 60)


def wait_until(holds: Callable[[], bool], what: str, patience_s: float = 20) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {patience_s} s: {what}")
        time.sleep(0.05)
