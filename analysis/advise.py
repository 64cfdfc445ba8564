"""What would shorten a run's time to capacity, by how much, and at what price: levers ranked by predicted effect.

A model of the endpoint is fitted to the run and draws are taken of it: each draw a point of every interval that the run
leaves, with its own seed. Every draw is simulated under the run's own load, as it is and with each lever; the effect of
a lever is the difference, draw by draw, so that its interval holds what the run leaves open and what chance does.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from analysis.analyse import RunAnalysis
from analysis.calibrate import drawn
from analysis.levers import Facts, Lever, levers_of
from analysis.profile import Measured, fit, measure
from analysis.records import ScaleOutResult
from traces.errors import BadInputError
from traces.units import US_PER_S

_BEFORE_US: Final = 600 * US_PER_S
_AFTER_US: Final = 600 * US_PER_S
_ROOM: Final = 1.5
_AS_IT_IS: Final = ""


class Simulator(Protocol):
    """The prediction of outcomes: the module `loadgen.emulator.predict`."""

    def predict(
        self,
        run: Path,
        window_us: tuple[int, int],
        documents: Sequence[Mapping[str, Any]],
        changes: Mapping[str, Sequence[tuple[str, str]]],
        *,
        demand: Mapping[str, float],
        ttft_s: float,
        price_per_hour: float | None,
    ) -> dict[str, list[dict[str, Any]]]:
        """Return outcomes by name of change, one per document."""
        ...


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over the draws: the median, and what a twentieth of the draws lie below and above."""

    p05: float
    p50: float
    p95: float


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One lever and what it is predicted to change; negative is less.

    `at_least`: capacity was not reached within the load in some draws as it is, so that the effect is no smaller.
    """

    lever: Lever
    applies: bool
    time_to_capacity_s: Range
    violations: Range
    instance_hours: Range
    cost: Range | None
    at_least: bool


class Advised(msgspec.Struct, frozen=True, kw_only=True):
    """A run's advice: first what applies, by effect, then what does not."""

    run: RunAnalysis
    scale_out: ScaleOutResult
    draws: int
    ttft_s: float
    baseline_s: Range
    measured_s: float | None
    assumptions: tuple[str, ...]
    advices: tuple[Advice, ...]


def advise(
    path: Path,
    simulator: Simulator,
    *,
    image_gb: float | None,
    model_gb: float | None,
    image_cache: bool | None,
    draws: int,
    ttft_s: float,
    price_per_hour: float | None,
) -> Advised:
    """Return the advice for the first scale-out of a run that reached capacity."""
    measured = measure([path], image_gb=image_gb, model_gb=model_gb, image_cache=image_cache)
    run = measured.runs[0]
    found = next((s for s in run.scale_outs if s.startup_us is not None), None)
    if found is None or found.in_service is None:
        raise BadInputError(f"{path}: no scale-out that reached capacity; there is nothing to advise on")
    window_us, demand = _window(run, found)
    document = fit(measured)
    facts = Facts(
        run=run,
        scale_out=found,
        endpoint=document["emulator_model"],
        needed=_needed(run, found, demand, document),
        onset_s=demand["onset_s"],
    )
    levers = levers_of(facts)
    documents = _draws(measured, draws)
    changes = {_AS_IT_IS: [], **{lever.name: _changes(lever) for lever in levers}}
    outcomes = simulator.predict(
        path, window_us, documents, changes, demand=demand, ttft_s=ttft_s, price_per_hour=price_per_hour
    )
    as_it_is = outcomes[_AS_IT_IS]
    if not any(map(_time, as_it_is)):
        raise BadInputError(
            f"{path}: the model fitted to the run serves its load with the units that were there at first, so that it "
            "cannot tell what would help; units have to be seen saturated: send more, or longer requests"
        )
    advices = [_advice(lever, as_it_is, outcomes[lever.name]) for lever in levers]
    advices.sort(key=lambda a: (not a.applies, a.time_to_capacity_s.p50, a.violations.p50, a.lever.name))
    return Advised(
        run=run,
        scale_out=found,
        draws=draws,
        ttft_s=ttft_s,
        baseline_s=_range([_time(outcome) for outcome in as_it_is]),
        measured_s=None if found.time_to_capacity_us is None else found.time_to_capacity_us / US_PER_S,
        assumptions=tuple(document["fitted"]["assumptions"]),
        advices=tuple(advices),
    )


def _changes(lever: Lever) -> list[tuple[str, str]]:
    changes = [(lever.axis, lever.value)]
    # The data cache acts where a machine is used again: its effect is stated for that case.
    return [*changes, ("reuse-share", "1")] if lever.axis == "data-cache" else changes


def _draws(measured: Measured, count: int) -> list[dict[str, Any]]:
    return [fit(measured, drawn(random.Random(f"advise:{k}")))["emulator_model"] for k in range(count)]


def _window(run: RunAnalysis, found: ScaleOutResult) -> tuple[tuple[int, int], dict[str, float]]:
    """Return the part of the trace around a scale-out (µs from its start, maybe before it), and the demand there."""
    start_us = run.manifest.t0_us
    if start_us is None or found.onset is None or found.in_service is None:
        raise BadInputError(f"{run.path}: when demand rose is not known; nothing can be predicted")
    begin_us = run.manifest.clock.to_endpoint_us(start_us)
    onset_us, served_us = found.onset.at_us - begin_us, found.in_service.at_us - begin_us
    # Before the trace begins the endpoint idles: what is scheduled ahead of the burst must have room.
    from_us = onset_us - max(_BEFORE_US, round(_ROOM * (found.startup_us or 0)))
    until_us = max(served_us, onset_us) + _AFTER_US
    return (from_us, until_us), {
        "onset_s": (onset_us - from_us) / US_PER_S,
        "end_s": (served_us - from_us) / US_PER_S,
        "requests_per_s": found.onset.rate_after,
    }


def _needed(run: RunAnalysis, found: ScaleOutResult, demand: dict[str, float], document: dict[str, Any]) -> int:
    wanted = found.units_needed or found.units_desired or 1
    if run.unit_rate is not None and run.unit_rate.requests_per_s > 0:
        wanted = math.ceil(demand["requests_per_s"] / run.unit_rate.requests_per_s - 1e-9)
    most: int = document["emulator_model"]["scaling"].get("max_instances", wanted)
    return max(1, min(wanted, most))


def _advice(lever: Lever, before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> Advice:
    pairs = list(zip(before, after, strict=True))
    priced = all(one["cost"] is not None for pair in pairs for one in pair)
    return Advice(
        lever=lever,
        applies=lever.precondition.holds != "fails",
        time_to_capacity_s=_range([_time(b) - _time(a) for a, b in pairs]),
        violations=_range([float(b["violations"] - a["violations"]) for a, b in pairs]),
        instance_hours=_range([b["instance_hours"] - a["instance_hours"] for a, b in pairs]),
        cost=_range([b["cost"] - a["cost"] for a, b in pairs]) if priced else None,
        at_least=any(a["time_to_capacity_s"] is None for a, _ in pairs),
    )


def _time(outcome: dict[str, Any]) -> float:
    """Return the time to capacity, or how long was looked in vain."""
    reached: float | None = outcome["time_to_capacity_s"]
    horizon: float = outcome["horizon_s"]
    return horizon if reached is None else reached


def _range(values: Sequence[float]) -> Range:
    ordered = sorted(values)

    def rank(share: float) -> float:
        return ordered[math.ceil(share * (len(ordered) - 1))]

    return Range(p05=rank(0.05), p50=rank(0.5), p95=rank(0.95))


def advised_entry(found: Advised) -> dict[str, Any]:
    """Return the JSON object that `ramptrace advise --json` prints."""
    return {
        "schema": 1,
        "run": str(found.run.path),
        "emulated": found.run.manifest.emulated,
        "method": "model",
        "draws": found.draws,
        "ttft_s": found.ttft_s,
        "scaling_id": found.scale_out.scaling_id,
        "time_to_capacity_s": {"measured": found.measured_s, "modelled": msgspec.to_builtins(found.baseline_s)},
        "assumptions": list(found.assumptions),
        "levers": [
            {
                "name": advice.lever.name,
                "change": advice.lever.change,
                "axis": advice.lever.axis,
                "value": advice.lever.value,
                "applies": advice.applies,
                "effect": {
                    "time_to_capacity_s": msgspec.to_builtins(advice.time_to_capacity_s),
                    "at_least": advice.at_least,
                    "violations": msgspec.to_builtins(advice.violations),
                    "instance_hours": msgspec.to_builtins(advice.instance_hours),
                    "cost": msgspec.to_builtins(advice.cost),
                },
                "evidence": advice.lever.evidence,
                "precondition": msgspec.to_builtins(advice.lever.precondition),
                "alternative": advice.lever.alternative,
            }
            for advice in found.advices
        ],
    }
