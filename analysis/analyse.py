"""One run, from its directory to its attribution."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from analysis import capacity as cap
from analysis.aftermath import Told, with_consequences
from analysis.attribution import attribute_scale_outs
from analysis.demand import due_instants, load_per_bin, offered, unrecorded
from analysis.facts import accelerator_waits, capacity_errors, not_scaled, ready_capacity, seen_until_us
from analysis.fidelity import fidelity, without_warm_up
from analysis.inputs import RunInputs, open_run, sightings
from analysis.latency import by_window, errors, over_time, timings
from analysis.quality import assess, offset_beyond_date_us
from analysis.reached import Objective, attainment, first_tokens
from analysis.records import Finding, ScaleOutResult
from analysis.timelines import Context
from traces.manifest import Manifest
from traces.units import US_PER_S

_BINS_US: Final = tuple(s * US_PER_S for s in (1, 2, 5, 10, 30, 60, 300, 900, 3600))
_MOST_BINS: Final = 240


class RunAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """A run's results.

    Frames: `load` is `capacity.against_demand`, `latency_over_time` is `latency.over_time`, `gaps` the run's table in
    endpoint time.
    """

    path: Path
    manifest: Manifest
    snapshots: dict[str, Any]
    platform: str | None
    scale_outs: tuple[ScaleOutResult, ...]
    findings: tuple[Finding, ...]
    fidelity: dict[str, Any]
    latency: dict[str, Any]
    errors: list[dict[str, Any]]
    bin_us: int
    load: pl.DataFrame
    capacity: tuple[cap.Step, ...]
    unit_rate: cap.UnitRate | None
    deficit_requests: float | None
    deficit_lo: float | None
    deficit_hi: float | None
    objective: Objective
    price_per_unit_hour: float | None
    latency_over_time: pl.DataFrame
    request_count: int
    attained: int
    capacity_errors: int
    gaps: pl.DataFrame
    seen_until_us: int | None


def analyse_run(
    path: str | Path, objective: Objective | None = None, price_per_unit_hour: float | None = None
) -> RunAnalysis:
    """Return the analysis of the run directory at `path`, finished or not. Not a run directory: BadInputError.

    `objective`: what users should get; `price_per_unit_hour`: what one unit costs, in any currency.
    """
    try:
        return analyse(open_run(path), objective, price_per_unit_hour)
    except pl.exceptions.ComputeError:
        # A file of requests is damaged inside; finding out which costs a reading of them all.
        return analyse(open_run(path, checked=True), objective, price_per_unit_hour)


def analyse(
    inputs: RunInputs, objective: Objective | None = None, price_per_unit_hour: float | None = None
) -> RunAnalysis:
    """Return the analysis of an opened run; see `analyse_run`."""
    objective = objective or Objective()
    missing = unrecorded(inputs.trace, inputs.requests)
    findings = [*inputs.findings, *assess(inputs, len(missing))]
    seen = sightings(inputs.observations)
    arrivals = offered(missing, inputs.requests, inputs.load_start_us)
    due_us = due_instants(arrivals)
    context = Context(inputs=inputs, seen=seen, due_us=due_us, offset_us=offset_beyond_date_us(inputs))
    scale_outs, rate = attribute_scale_outs(context, findings)
    bin_us = _bin_us(due_us)
    load = load_per_bin(arrivals, inputs.requests, bin_us)
    steps = ready_capacity(context, scale_outs)
    load = cap.against_demand(load, steps, rate, bin_us)
    deficits = [None if rate is None else float(load[f"deficit_{x}"].sum()) for x in ("requests", "lo", "hi")]
    findings += [*not_scaled(seen), *accelerator_waits(seen)]
    refused = capacity_errors(context)
    if refused:
        text = f"the platform reported insufficient capacity {refused}×: provisioning includes the wait for a machine"
        findings.append(Finding(code="capacity-errors", severity="warning", text=text))
    requests = without_warm_up(inputs.manifest, inputs.requests)
    measured = timings(requests)
    if excluded := inputs.request_rows - len(measured):
        text = f"{excluded} requests were warm-up: they count as load, and for no latency"
        findings.append(Finding(code="warm-up", severity="info", text=text))
    if not scale_outs:
        findings.append(
            Finding(
                code="no-scale-out", severity="warning", text="no scale-out was seen: there is no time to attribute"
            )
        )
    told = Told(
        timings=measured, load=load, capacity=steps, rate=rate, first_tokens=first_tokens(inputs.requests),
        objective=objective, price_per_unit_hour=price_per_unit_hour,
    )  # fmt: skip
    scale_outs = with_consequences(scale_outs, told)
    return RunAnalysis(
        path=inputs.path,
        manifest=inputs.manifest,
        snapshots=inputs.snapshots,
        platform=seen[0].platform if seen else None,
        scale_outs=tuple(scale_outs),
        findings=tuple(dict.fromkeys(findings)),
        fidelity=fidelity(inputs.manifest, measured, len(missing)),
        latency=by_window(measured, _windows(scale_outs)),
        errors=errors(requests),
        bin_us=bin_us,
        load=load,
        capacity=tuple(steps),
        unit_rate=rate,
        deficit_requests=deficits[0],
        deficit_lo=deficits[1],
        deficit_hi=deficits[2],
        objective=objective,
        price_per_unit_hour=price_per_unit_hour,
        latency_over_time=over_time(measured, bin_us),
        request_count=inputs.request_rows,
        attained=int(attainment(measured, objective).sum()),
        capacity_errors=refused,
        gaps=inputs.gaps,
        seen_until_us=seen_until_us(inputs, seen),
    )


def _windows(scale_outs: Sequence[ScaleOutResult]) -> dict[str, tuple[int | None, int | None]]:
    """Return the stretches to tell latencies apart by: the whole run, and around its first scale-out."""
    windows: dict[str, tuple[int | None, int | None]] = {"all": (None, None)}
    if not scale_outs:
        return windows
    first = scale_outs[0]
    onset = None if first.onset is None else first.onset.at_us
    decision = first.decision.at_us
    ready = None if first.in_service is None else first.in_service.at_us
    if onset is not None:
        windows["before the rise"] = (None, onset)
        windows["detection"] = (onset, decision)
    windows["start-up"] = (decision, ready)
    if ready is not None:
        windows["after capacity"] = (ready, None)
    return windows


def _bin_us(due_us: pl.Series) -> int:
    """Return a bin that shows the run in at most `_MOST_BINS` bins."""
    if due_us.is_empty():
        return _BINS_US[0]
    length = int(due_us[-1]) - int(due_us[0])
    return next((b for b in _BINS_US if length <= b * _MOST_BINS), _BINS_US[-1])
