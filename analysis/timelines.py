"""Which evidence is about which unit: from a scale-out's sightings to a reconciled timeline per new unit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import polars as pl

from analysis.inputs import RunInputs
from analysis.reconcile import FIRST_DECISION, RANKS, Evidence, Timeline, evidence_of, pooled, reconcile
from analysis.records import Onset, Sighting
from analysis.scaleouts import ScaleOutEvidence, count_rise


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the steps of an analysis see it: sorted `due_us` from `demand`, `offset_us` from `quality`."""

    inputs: RunInputs
    seen: list[Sighting]
    due_us: pl.Series
    offset_us: int


def timelines_of(
    context: Context, evidence: ScaleOutEvidence, onset: Onset | None, began: ScaleOutEvidence | None = None
) -> list[Timeline]:
    """Return a timeline per new unit, in the order in which they started; one without a unit when none was named.

    `began` is the scale-out that began the same burst, whose detection then is this one's too: what lies between its
    decision and this one's is staging.
    """
    first = evidence if began is None else began
    shared = [e for s in first.shared for e in _evidence(context, s)]
    if onset is not None:
        error = round(context.inputs.clock.error_us * context.inputs.manifest.time_scale)
        shared.append(
            Evidence(
                rank=RANKS["derived"], anchor="onset", source="offered load", native_id="onset", method="derived",
                lo_us=onset.lo_us - error, hi_us=onset.hi_us + error, at_us=onset.at_us,
            )
        )  # fmt: skip
    loose = pooled([e for s in evidence.unlabelled for e in _evidence(context, s) if e.since is not None])
    own = {unit: [e for s in rows for e in _evidence(context, s)] for unit, rows in evidence.by_unit.items()}
    units: list[str | None] = [*sorted(own, key=lambda unit: (_order(own[unit]), unit))] or [None]
    platform = evidence.steps[0].decision.platform
    result = []
    for rank, unit in enumerate(units):
        rows = own.get(unit, []) if unit is not None else []
        told = {e.anchor for e in rows if e.since is not None}
        step_rows = _step_evidence(context, evidence, rank, first=first, named=unit is not None)
        extra = [e for e in loose if e.anchor not in told]
        result.append(reconcile(unit, [*shared, *step_rows, *rows, *extra], platform))
    return result


def _evidence(context: Context, sighting: Sighting) -> list[Evidence]:
    return evidence_of(sighting, context.inputs.clock, context.offset_us)


def _order(rows: Sequence[Evidence]) -> int:
    """Return when a unit was ready, or else started, to rank units by."""
    for anchor in ("ready", "container_started"):
        known = [e.at_us for e in rows if e.anchor == anchor and e.since is None and e.at_us is not None]
        if known:
            return min(known)
    return max((e.at_us or 0 for e in rows), default=0)


def _step_evidence(
    context: Context, evidence: ScaleOutEvidence, rank: int, *, first: ScaleOutEvidence, named: bool
) -> list[Evidence]:
    """Return decisions and `in_service` evidence for the unit that came `rank`-th (from 0).

    Counts say when the n-th unit was in service; an activity's end bounds all units of its step.
    """
    before, steps = evidence.units_before, evidence.steps
    step = steps[-1]
    if before is not None and named:
        step = next(
            (s for s in steps if s.desired is not None and before + rank < s.desired and not s.failed), steps[-1]
        )
    # A scale-out is what its decisions say, so nothing can rule them out: they go in first.
    rows = [msgspec.structs.replace(e, rank=0) for e in _evidence(context, step.decision)]
    rows += [
        msgspec.structs.replace(e, rank=0, anchor=FIRST_DECISION) for e in _evidence(context, first.steps[0].decision)
    ]
    if step.done is not None:
        rows += _evidence(context, step.done)
    for sighting in evidence.counts:
        rise = count_rise(sighting)
        wanted = None if before is None else (before + rank + 1 if named else evidence.desired)
        if rise is not None and wanted is not None and rise[0] < wanted <= rise[1]:
            rows += _evidence(context, sighting)
    return rows
