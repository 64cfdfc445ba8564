"""Load on an emulated endpoint, and a collector attached to a run beside it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import polars as pl

from loadgen.collect.emulator_clock import read_endpoint_clock
from tests.loadgen.collect.running import attach_until_ready
from traces.clock import ClientClock, to_us
from traces.manifest import Manifest
from traces.run import RunDir

Instants = dict[tuple[str | None, str], list[int]]


async def load(url: str, requests: int, seconds: float) -> None:
    """Keep so many requests at once under way, each for a minute or more of endpoint time; failed ones come again."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 120, "stream": False}
    end = time.monotonic() + seconds

    async def one(http: aiohttp.ClientSession) -> None:
        while time.monotonic() < end:
            async with http.post(f"{url}/v1/chat/completions", json=body) as response:
                await response.read()
            if response.status != 200:
                await asyncio.sleep(0.2)

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:
        await asyncio.gather(*(one(http) for _ in range(requests)))


async def make_run(url: str, path: Path, **collect: Any) -> RunDir:
    """Make the run that a replay would have made."""
    clock = ClientClock()
    endpoint_clock = await read_endpoint_clock(url, clock)
    assert endpoint_clock is not None
    section = {"endpoint_name": "demo", "region": "us-east-1", "endpoint_url": url, "tail": "60s", **collect}
    manifest = Manifest(
        run_id="r", created_us=clock.now_us(), clock=endpoint_clock, scenario={"collect": section}, emulated=True
    )
    return RunDir.create(path, manifest)


async def collect_during(run: RunDir, url: str, *, requests: int, seconds: float, kills: int = 0) -> None:
    """Attach a collector while there is load, and let it see its tail; it is killed and started again so many times."""
    loading = asyncio.create_task(load(url, requests, seconds))
    for _ in range(kills):
        process = await asyncio.to_thread(attach_until_ready, run)
        await asyncio.sleep(2)
        process.kill()
        await asyncio.to_thread(process.communicate)
    process = await asyncio.to_thread(attach_until_ready, run)
    await loading
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    _, errors = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 0, errors


def instants_of(truth: pl.DataFrame) -> Instants:
    """Return when each unit's anchors really happened (endpoint µs)."""
    found: Instants = {}
    for row in truth.iter_rows(named=True):
        found.setdefault((row["unit_id"], row["anchor"]), []).append(to_us(row["at"]))
    return found


def outside(scale_outs: Any, instants: Instants) -> list[tuple[Any, ...]]:
    """Return the reconciled anchors that hold no instant of their kind."""
    wrong = []
    for scale_out in scale_outs:
        for anchor in scale_out.anchors:
            at = instants.get((anchor.unit_id, anchor.anchor), [])
            if at and not any((anchor.lo_us or 0) <= one <= (anchor.hi_us or 2**62) for one in at):
                wrong.append((anchor.anchor, anchor.unit_id, anchor.lo_us, at, anchor.hi_us, anchor.sources))
    return wrong
