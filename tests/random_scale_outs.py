"""Random simulated scale-outs, analysed, and held to the emulator's truth: which bounds hold, and how wide they are."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import msgspec
import polars as pl

from analysis.analyse import RunAnalysis, analyse_run
from analysis.records import ScaleOutResult
from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.profiles import names, profile, with_settings
from loadgen.emulator.virtual import prepare, simulate
from loadgen.scenario_file import build_scenario
from tests.truth import true_length
from traces.clock import to_us
from traces.run import write_parquet
from traces.synth import Lengths, Step, synthesise
from traces.units import US_PER_S

QUIET_S = 150.0


class Check(NamedTuple):
    """One phase or anchor of one scale-out: µs."""

    seed: int
    what: str
    lo_us: int
    true_us: int
    hi_us: int
    poll_us: int
    period_us: int

    @property
    def holds(self) -> bool:
        return self.lo_us <= self.true_us <= self.hi_us


class Held(NamedTuple):
    """What one random run came to."""

    seed: int
    scale_outs: int
    exact: bool
    checks: list[Check]


def endpoint_of(chance: random.Random) -> EmulatorConfig:
    """Return an endpoint with everything about its start-up, its lags and its faults left to chance."""
    period_s = chance.choice([10, 60])
    pull = chance.random() < 0.6
    return with_settings(
        profile(chance.choice(names())),
        {
            "serving": {
                "slots_per_instance": 4,
                "token_s": 0.2,
                "token_full_batch_s": 0.25,
                "prefill_base_s": 0.5,
                "queue_timeout_s": 900.0,
            },
            "scaling": {
                "max_instances": chance.randint(2, 5),
                "metric_period_s": period_s,
                "evaluation_interval_s": period_s,
                "publish_lag_s": chance.uniform(0.5, 15),
                "reaction_s": chance.uniform(0, 8),
                "statistic": chance.choice(["Maximum", "Average"]),
            },
            "startup": {
                "image_gb": chance.uniform(2, 25),
                "model_gb": chance.uniform(0.5, 30),
                "transfer_mb_per_s": chance.uniform(120, 500),
                "pull_work_per_byte": chance.uniform(1.5, 4),
                "download_share": chance.uniform(0.2, 0.7),
                "transfer_spread": chance.uniform(0, 0.1),
                "provisioning_s": chance.uniform(20, 240),
                "provisioning_jitter_s": chance.uniform(0, 15),
                "process_start_s": chance.uniform(2, 20),
                "weights_s": chance.uniform(2, 60),
                "warm_up_s": chance.uniform(2, 60),
                "cold_page_cache_s": chance.uniform(0, 15),
                "notice_s": chance.uniform(0, 3),
                "image_cache": not pull,
                "image_cache_miss_share": chance.choice([0.0, 0.3]),
                "reuse_share": chance.choice([0.0, 0.0, 0.5]),
                "data_cache": chance.random() < 0.5,
            },
            "faults": {
                "capacity_errors": chance.choice([0, 0, 0, 1, 2]),
                "failed_pulls": chance.choice([0, 0, 0, 1]),
                "throttled_share": chance.choice([0.0, 0.0, 0.0, 0.1, 0.3]),
            },
        },
    )


def measure(seed: int, folder: Path) -> tuple[RunAnalysis, pl.DataFrame, int, int]:
    """Simulate and analyse one random run; returns also its truth, its onset (µs) and its poll period."""
    chance = random.Random(f"bounds:{seed}")
    endpoint = endpoint_of(chance)
    endpoint = msgspec.structs.replace(
        endpoint,
        host_id_label=chance.random() < 0.7,
        operation_metric_lag_s=chance.uniform(0, 30),
        log_ingestion_lag_s=chance.uniform(0, 10),
    )
    steps = [
        Step(length_s=QUIET_S, rate_per_s=0.08),
        Step(length_s=1500.0, rate_per_s=chance.uniform(0.4, 1.0)),
    ]
    trace = synthesise(steps, Lengths(median=300, sigma=0.5, high=2000), Lengths(median=60, sigma=0.4, high=150), seed)
    folder.mkdir(parents=True)
    write_parquet(folder / "load.parquet", trace)
    poll_s = chance.choice([2, 5, 10, 30])
    collect = {"endpoint_name": "demo", "region": "us-east-1", "poll": f"{poll_s}s", "tail": "60s"}
    document = {
        "trace": {"path": str(folder / "load.parquet")},
        "target": {"kind": "sagemaker", "endpoint_name": "demo", "region": "us-east-1"},
        "collect": {**collect, "metrics_poll": f"{chance.choice([10, 30])}s"},
        "emulator_model": msgspec.to_builtins(endpoint),
    }
    run = simulate(prepare(build_scenario(document, origin="random")), folder / "run", seed)
    t0_us = run.manifest().t0_us
    assert t0_us is not None
    truth = pl.read_parquet(run.path / "truth.parquet")
    return analyse_run(run.path), truth, t0_us + round(QUIET_S * US_PER_S), poll_s * US_PER_S


def held(seed: int, folder: Path) -> Held:
    """Return every check of one random run."""
    analysis, truth, onset_us, poll_us = measure(seed, folder)
    exact, checks = True, []
    endpoint = analysis.manifest.scenario["emulator_model"]
    period_us = endpoint["scaling"]["metric_period_s"] * US_PER_S
    for number, found in enumerate(analysis.scale_outs):
        if found.time_to_capacity_us is not None:
            parts = [row.critical_us for row in found.phases if row.parent is None]
            exact = exact and sum(parts) == found.time_to_capacity_us
        if found.censored:
            continue
        at = true_instants(truth, found)
        if number == 0:
            at[None, "onset"] = onset_us
        for what, lo, true, hi in compared(found, at):
            checks.append(Check(seed, what, lo, true, hi, poll_us, period_us))
    return Held(seed, len(analysis.scale_outs), exact, checks)


def true_instants(truth: pl.DataFrame, found: ScaleOutResult) -> dict[tuple[str | None, str], int]:
    """Return (unit, anchor) → µs of the scale-out's last activity; the alarm's own are those of its first."""
    at: dict[tuple[str | None, str], int] = {}
    mine = truth.filter(pl.col("scaling_id") == found.scaling_id).sort("at")
    for row in mine.iter_rows(named=True):
        at.setdefault((row["unit_id"], row["anchor"]), to_us(row["at"]))
    return at


def compared(found: ScaleOutResult, at: dict[tuple[str | None, str], int]) -> list[tuple[str, int, int, int]]:
    """Return what is known of the truth beside its bounds: (what, lo, true, hi) in µs."""
    pairs = []
    for anchor in found.anchors:
        true = at.get((anchor.unit_id, anchor.anchor))
        if true is not None and anchor.anchor != "onset":
            pairs.append((f"anchor {anchor.anchor}", anchor.lo_us or 0, true, anchor.hi_us or 2**62))
    for row in found.phases:
        true = true_length(at, row.phase, found.marginal_unit)
        if true is not None and row.lo_us is not None and row.hi_us is not None:
            pairs.append((row.phase, row.lo_us, true, row.hi_us))
    return pairs
