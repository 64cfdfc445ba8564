"""The collector against an emulated platform on its worst day, with the real AWS client libraries.

Half of all calls are throttled, one service is away for half a minute, the client's clock is a minute and a half
behind, events come twice and late, and the collector is killed twice: every scale-out is found all the same, every
interval holds the truth, what could not be seen is a gap, and nothing is written twice.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp
import polars as pl
import pytest

from analysis.analyse import analyse_run
from tests.emulators import start_emulator
from tests.loadgen.collect.running import CREDENTIALS, attach_until_ready, wait_until
from traces.clock import ClientClock, to_us
from traces.run import Manifest, RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SCALE = 40
MODEL = """
[emulator_model]
event_queue = "events"
enhanced_metrics = true
metric_publish_s = 10
[emulator_model.serving]
token_s = 1.0
token_full_batch_s = 1.1
queue_timeout_s = 3600.0
[emulator_model.startup]
image_cache = false
provisioning_s = 40.0
image_gb = 5.0
model_gb = 4.0
[emulator_model.faults]
throttled_share = 0.5
unreachable = ["logs"]
unreachable_from_s = 150.0
unreachable_s = 30.0
clock_skew_s = 90.0
duplicate_event_share = 0.5
late_event_s = 10.0
"""


async def _load(url: str, requests: int, seconds: float) -> None:
    """Keep the endpoint busy: so many requests at once, each for a minute or more of endpoint time."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 120, "stream": False}
    end = time.monotonic() + seconds

    async def one(http: aiohttp.ClientSession) -> None:
        while time.monotonic() < end:
            async with http.post(f"{url}/v1/chat/completions", json=body) as response:
                await response.read()

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:
        await asyncio.gather(*(one(http) for _ in range(requests)))


async def _run(url: str, folder: Path) -> RunDir:
    from loadgen.collect.emulator_clock import read_endpoint_clock

    clock = ClientClock()
    endpoint_clock = await read_endpoint_clock(url, clock)
    assert endpoint_clock is not None
    section = {
        "endpoint_name": "demo",
        "region": "us-east-1",
        "endpoint_url": url,
        "event_queue": f"{url}/123456789012/events",
        "tail": "60s",
    }
    manifest = Manifest(
        run_id="r", created_us=clock.now_us(), clock=endpoint_clock, scenario={"collect": section}, emulated=True
    )
    run = RunDir.create(folder / "run", manifest)
    load = asyncio.create_task(_load(url, requests=14, seconds=12))
    for _ in range(2):
        process = await asyncio.to_thread(attach_until_ready, run)
        await asyncio.sleep(2)
        process.kill()
        await asyncio.to_thread(process.communicate)
    process = await asyncio.to_thread(attach_until_ready, run)
    await load
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    _, errors = await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == 0, errors
    return run


def test_nothing_is_lost_and_nothing_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(MODEL)
    keys = (CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"])
    truth_file = tmp_path / "truth.parquet"
    with start_emulator(
        credentials=keys, time_scale=SCALE, seed=5, scenario=tmp_path / "model.toml", truth=truth_file
    ) as url:
        run = asyncio.run(_run(url, tmp_path))
        wait_until(truth_file.exists, "the truth")
    truth = pl.read_parquet(truth_file)
    last_us = to_us(run.scan("samples").filter(pl.col("metric") == "heartbeat").collect()["start"].max()) + 90_000_000
    decided = truth.filter((pl.col("anchor") == "decision") & (pl.col("at").dt.epoch("us") < last_us - 5_000_000))
    assert not decided.is_empty()
    rows = run.scan("observations").collect()
    found = rows.filter((pl.col("anchor") == "decision") & pl.col("scaling_id").is_not_null())["scaling_id"]
    assert set(decided["scaling_id"]) <= set(found)
    same = [name for name in rows.columns if name not in {"request_sent", "response_received"}]
    assert rows.select(same).is_unique().all()
    gaps = run.scan("gaps").collect()
    assert gaps.filter(pl.col("reason") == "stopped").height == 2
    assert "logs" in set(gaps.filter(pl.col("reason").is_in(["unreachable", "throttled"]))["source"])
    instants: dict[tuple[str | None, str], list[int]] = {}
    for row in truth.iter_rows(named=True):
        instants.setdefault((row["unit_id"], row["anchor"]), []).append(to_us(row["at"]))
    outside = []
    scale_outs = analyse_run(run.path).scale_outs
    assert scale_outs
    for scale_out in scale_outs:
        for anchor in scale_out.anchors:
            at = instants.get((anchor.unit_id, anchor.anchor), [])
            if at and not any((anchor.lo_us or 0) <= one <= (anchor.hi_us or 2**62) for one in at):
                outside.append((anchor.anchor, anchor.unit_id, anchor.lo_us, at, anchor.hi_us, anchor.sources))
    assert outside == []
    assert {"decision", "alarm", "container_started", "in_service"} <= {a.anchor for s in scale_outs for a in s.anchors}
