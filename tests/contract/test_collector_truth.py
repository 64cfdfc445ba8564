"""Two hundred seeded scale-outs in virtual time, read by the collector's own sources: no anchor misses the truth.

Instances and copies, caches on and off, metrics of 10 s and 60 s, enhanced metrics, events, throttling, slow answers,
failures, expired credentials and a client's clock that is wrong: whatever the platform does, an interval may be wide,
but it holds what happened.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.analyse import RunAnalysis, analyse_run
from loadgen.emulator.virtual import prepare, simulate
from loadgen.scenario import Scenario
from loadgen.scenario_file import build_scenario
from traces.clock import to_us
from traces.run import RunDir, write_parquet
from traces.synth import Lengths, Step, synthesise

SEEDS = 200
_PER_TEST = 25
QUEUE = "http://127.0.0.1:9/123456789012/events"
SERVING = {"token_s": 1.0, "token_full_batch_s": 1.2, "prefill_base_s": 0.5, "queue_timeout_s": 900.0}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "trace.parquet"
    steps = [Step(length_s=60.0, rate_per_s=0.03), Step(length_s=420.0, rate_per_s=0.25)]
    write_parquet(path, synthesise(steps, Lengths(median=300, sigma=0.5, high=2000), Lengths(median=40, sigma=0.4), 1))
    return path


def scenario(trace: Path, model: dict[str, Any], **collect: Any) -> Scenario:
    document = {
        "trace": {"path": str(trace)},
        "target": {"kind": "sagemaker", "endpoint_name": "demo", "region": "us-east-1"},
        "collect": {"endpoint_name": "demo", "region": "us-east-1", "tail": "90s", "poll": "10s", **collect},
        "emulator_model": {"serving": SERVING, **model},
    }
    return build_scenario(document, origin="test")


def drawn(seed: int, trace: Path) -> Scenario:
    """Return a scenario in which everything that may differ between platforms does."""
    chance = random.Random(f"truth:{seed}")
    collect: dict[str, Any] = {"cloudtrail": chance.random() < 0.3}
    model: dict[str, Any] = {
        "host_id_label": chance.random() < 0.7,
        "operation_metric_lag_s": chance.choice([0.0, 5.0, 20.0]),
        "log_ingestion_lag_s": chance.choice([0.0, 1.0, 10.0]),
        "enhanced_metrics": chance.random() < 0.5,
        "metric_publish_s": chance.choice([10, 30, 60]),
        "startup": {
            "image_cache": chance.random() < 0.5,
            "image_cache_miss_share": chance.choice([0.0, 0.5]),
            "provisioning_s": chance.uniform(5.0, 60.0),
            "provisioning_jitter_s": 3.0,
            "image_gb": chance.uniform(1.0, 6.0),
            "model_gb": chance.uniform(1.0, 6.0),
            "weights_s": chance.uniform(1.0, 20.0),
            "warm_up_s": chance.uniform(2.0, 20.0),
            "notice_s": chance.choice([0.0, 0.5, 5.0]),
        },
        "scaling": {
            "max_instances": chance.choice([2, 3, 4]),
            "metric_period_s": (period := chance.choice([10, 10, 60])),
            "evaluation_interval_s": period,
        },
        "faults": {
            "throttled_share": chance.choice([0.0, 0.0, 0.1, 0.3]),
            "error_share": chance.choice([0.0, 0.0, 0.1]),
            "slow_share": chance.choice([0.0, 0.0, 0.1]),
            "expired_s": chance.choice([0.0, 0.0, 45.0]),
            "clock_skew_s": chance.choice([0.0, 0.0, 90.0, -90.0, 3.0]),
            "duplicate_event_share": 0.3,
            "late_event_s": chance.choice([0.0, 20.0]),
            "capacity_errors": chance.choice([0, 0, 1]),
        },
    }
    if chance.random() < 0.3:
        model["component"] = {
            "copies_per_instance": chance.choice([1, 2]),
            "data_cache": chance.random() < 0.5,
        }
        collect["inference_component"] = "demo-component"
    if chance.random() < 0.3:
        model["event_queue"] = "events"
        collect["event_queue"] = QUEUE
    return scenario(trace, model, **collect)


def truth_of(run: RunDir) -> dict[tuple[str | None, str], list[int]]:
    """Return all instants (endpoint µs) by unit and anchor, oldest first; unit None for what concerns a scale-out."""
    found: dict[tuple[str | None, str], list[int]] = {}
    for row in pl.read_parquet(run.path / "truth.parquet").sort("at").iter_rows(named=True):
        found.setdefault((row["unit_id"], row["anchor"]), []).append(to_us(row["at"]))
    return found


def outside(found: RunAnalysis, run: RunDir) -> Iterator[tuple[Any, ...]]:
    """Give the reconciled anchors that do not hold any instant of their kind."""
    truth = truth_of(run)
    for scale_out in found.scale_outs:
        for anchor in scale_out.anchors:
            instants = truth.get((anchor.unit_id, anchor.anchor))
            lo_us, hi_us = anchor.lo_us or 0, anchor.hi_us or 2**62
            if instants and not any(lo_us <= at <= hi_us for at in instants):
                yield anchor.anchor, anchor.unit_id, lo_us - instants[0], hi_us - instants[0], anchor.sources


@pytest.mark.parametrize("first", range(0, SEEDS, _PER_TEST))
def test_no_anchor_misses_the_truth(trace: Path, tmp_path: Path, first: int) -> None:
    wrong = []
    seen: set[str] = set()
    for seed in range(first, first + _PER_TEST):
        run = simulate(prepare(drawn(seed, trace)), tmp_path / f"run-{seed}", seed)
        found = analyse_run(run.path)
        wrong += [(seed, *one) for one in outside(found, run)]
        decisions = len(truth_of(run).get((None, "decision"), ()))
        ids = run.scan("observations").filter(pl.col("anchor") == "decision").collect()["scaling_id"].drop_nulls()
        assert ids.n_unique() == decisions, f"seed {seed}: a scale-out was missed"
        rows = run.scan("observations").collect()
        same = [name for name in rows.columns if name not in {"request_sent", "response_received"}]
        assert rows.select(same).is_unique().all(), f"seed {seed}: a row was written twice"
        seen |= {anchor.anchor for scale_out in found.scale_outs for anchor in scale_out.anchors}
    assert wrong == []
    assert {"breach", "alarm", "decision", "container_started", "load_finished", "ready", "in_service"} <= seen
