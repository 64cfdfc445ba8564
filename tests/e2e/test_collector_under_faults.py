"""The collector against an emulated platform on its worst day, with the real AWS client libraries.

Half of all calls are throttled, one service is away for half a minute, the client's clock is a minute and a half
behind, events come twice and late, and the collector is killed twice: every scale-out is found all the same, every
interval holds the truth, what could not be seen is a gap, and nothing is written twice.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import polars as pl
import pytest

from analysis.analyse import analyse_run
from tests.e2e.collecting import collect_during, instants_of, make_run, outside
from tests.emulators import start_emulator
from tests.loadgen.collect.running import CREDENTIALS, wait_until
from traces.clock import to_us
from traces.run import RunDir

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


async def _run(url: str, folder: Path) -> RunDir:
    run = await make_run(url, folder / "run", event_queue=f"{url}/123456789012/events")
    await collect_during(run, url, requests=14, seconds=12, kills=2)
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
    scale_outs = analyse_run(run.path).scale_outs
    assert scale_outs
    assert outside(scale_outs, instants_of(truth)) == []
    assert {"decision", "alarm", "container_started", "in_service"} <= {a.anchor for s in scale_outs for a in s.anchors}
