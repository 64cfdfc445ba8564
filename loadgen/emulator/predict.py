"""What an advice needs of the simulation: the outcome of changes to an endpoint under a measured run's own load.

The command line hands this module to the analysis; endpoints come in as plain documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from loadgen.emulator.config import TABLE, EmulatorConfig
from loadgen.emulator.levers import apply
from loadgen.emulator.outcome import Demand, Objective, evaluate
from loadgen.emulator.virtual import start_of
from loadgen.emulator.virtual_load import Load, load_of
from loadgen.scenario import ReplaySection
from loadgen.strict_toml import convert_strictly
from traces.errors import BadInputError
from traces.run import RunDir
from traces.units import US_PER_S

Changes = Sequence[tuple[str, str]]
"""Axes of `levers.AXES` with the value that each is set to."""


def predict(
    run: Path,
    window_us: tuple[int, int],
    documents: Sequence[Mapping[str, Any]],
    changes: Mapping[str, Changes],
    *,
    demand: Mapping[str, float],
    ttft_s: float,
    price_per_hour: float | None,
) -> dict[str, list[dict[str, Any]]]:
    """Return, for each named set of changes, the outcome of every document under its own seed (its position).

    `window_us` is the part of the run's trace that is simulated (it may begin before the trace); `demand` has `onset_s`
    and `end_s` from the window's start, and `requests_per_s`. An outcome holds `time_to_capacity_s` (null: not
    reached), `violations`, `failed`, `excess_s`, `instance_hours`, `cost`, and `horizon_s`, how long was looked.
    """
    load = _load(run, window_us)
    endpoints = [convert_strictly(dict(d), EmulatorConfig, origin=f"fit of {run}", table=TABLE) for d in documents]
    burst = Demand(
        onset_us=round(demand["onset_s"] * US_PER_S),
        end_us=round(demand["end_s"] * US_PER_S),
        rate_per_s=demand["requests_per_s"],
    )
    objective = Objective(ttft_s=ttft_s, price_per_hour=price_per_hour)
    found: dict[str, list[dict[str, Any]]] = {}
    for name, settings in changes.items():
        found[name] = []
        for seed, endpoint in enumerate(endpoints):
            changed = endpoint
            for axis, value in settings:
                changed = apply(changed, axis, value)
            outcome = evaluate(changed, load, burst, objective, start_us=start_of(seed), seed=seed)
            horizon_s = (load.last_us - burst.onset_us) / US_PER_S
            found[name].append(msgspec.to_builtins(outcome) | {"horizon_s": horizon_s})
    return found


def _load(run: Path, window_us: tuple[int, int]) -> Load:
    file = run / "trace.parquet"
    if not file.is_file():
        raise BadInputError(f"{run}: there is no trace.parquet; without the load nothing can be predicted")
    manifest = RunDir.open(run).manifest()
    replay = msgspec.convert(_defaults(manifest.scenario), ReplaySection)
    begin_us, end_us = window_us
    cut = pl.scan_parquet(file).filter(pl.col("arrival_us").is_between(begin_us, end_us)).collect()
    if cut.is_empty():
        raise BadInputError(f"{run}: no request of its trace lies around the scale-out; nothing can be predicted")
    return load_of(cut.with_columns(pl.col("arrival_us") - begin_us), replay)


def _defaults(scenario: Mapping[str, Any]) -> dict[str, int]:
    replay = scenario.get("replay") or {}
    return {k: replay[k] for k in ("default_input_tokens", "default_output_tokens") if isinstance(replay.get(k), int)}
