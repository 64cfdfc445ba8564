"""What the platform itself says of a run: units at the start and later, refusals, errors of capacity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import polars as pl

from analysis import capacity as cap
from analysis.detection import window_range
from analysis.inputs import RunInputs
from analysis.records import Finding, ScaleOutResult, Sighting
from analysis.scaleouts import count_rise
from analysis.timelines import Context
from traces.units import US_PER_S, format_duration


def not_scaled(seen: Sequence[Sighting]) -> list[Finding]:
    """Return a finding per reason for which the scaler, though its alarm called, did not scale, or failed to."""
    found: dict[str, int] = {}
    for s in seen:
        if s.anchor is None and s.native_id.endswith(":not-scaled"):
            reasons = s.detail.get("reasons") or []
            codes = [str(r.get("Code")) for r in reasons if isinstance(r, dict)] if isinstance(reasons, list) else []
            why = ", ".join(codes) or s.detail.get("status_message") or s.detail.get("status_code") or "no reason given"
            found[str(why)] = found.get(str(why), 0) + 1
    return [
        Finding(code="not-scaled", severity="warning", text=f"the scaler did not scale ({count}×): {why}")
        for why, count in found.items()
    ]


def accelerator_waits(seen: Sequence[Sighting]) -> list[Finding]:
    """Return a finding when nodes were ready some time before their accelerators could be asked for.

    On Kubernetes that wait (for a device plug-in) is inside provisioning, and no phase of its own.
    """
    at: dict[tuple[str, str], int] = {}
    for s in seen:
        node, milestone = s.detail.get("node"), s.detail.get("milestone")
        if isinstance(node, str) and milestone in {"node-ready", "node-accelerator"} and s.hi_us is not None:
            at[node, str(milestone)] = s.hi_us
    nodes = {node for node, _ in at if {(node, "node-ready"), (node, "node-accelerator")} <= at.keys()}
    waits = [at[node, "node-accelerator"] - at[node, "node-ready"] for node in nodes]
    longest = max(waits, default=0)
    if longest < US_PER_S:
        return []
    text = (
        f"accelerators became allocatable up to {format_duration(longest)} after their node was ready "
        f"({len(waits)} node(s)): provisioning holds that wait"
    )
    return [Finding(code="accelerator-wait", severity="info", text=text)]


def capacity_errors(context: Context) -> int:
    """Return how many times, since the load began, the platform said that it had no machine."""
    samples = context.inputs.samples.filter(pl.col("metric") == "ice_count")
    since = since_us(context)
    if since is not None:
        samples = samples.filter(pl.col("start").dt.epoch("us") >= since)
    return round(samples["value"].sum())


def since_us(context: Context) -> int | None:
    """Return the start of the load: what was decided before it, the load cannot have caused."""
    first = None if context.due_us.is_empty() else int(context.due_us[0])
    starts = [at for at in (context.inputs.load_start_us, first) if at is not None]
    return min(starts, default=None)


def seen_until_us(inputs: RunInputs, seen: Sequence[Sighting]) -> int | None:
    """Return until when the platform was watched: what was not seen by then is censored there. None: never watched."""
    beats = inputs.samples.filter((pl.col("source") == "collector") & (pl.col("metric") == "heartbeat"))
    last: int | None = beats["received"].dt.epoch("us").max()  # type: ignore[assignment]
    instants = [at for s in seen for at in (s.lo_us, s.hi_us) if at is not None]
    return max([*instants, *([] if last is None else [last])], default=None)


def units_at_start(context: Context) -> int | None:
    """Return the number of instances when collection began: as described, or else what the first change was from.

    A description made after a decision (a stretch that was read afterwards) says nothing about the start.
    """
    count = described_units(context.inputs.snapshots, "first")
    if count is not None and not _described_late(context):
        return count
    changes = (rise for s in context.seen if s.anchor == "in_service" and (rise := count_rise(s)) is not None)
    return next((before for before, _ in changes), None)


def alarm_rules(snapshots: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rules of the alarms that call for more units, and how long they take by themselves (s).

    `period_s`, `datapoints` that must breach, `window_lo_s`, `window_hi_s` (`detection.window_range`).
    """
    alarms = snapshots.get("alarms")
    listed = alarms.get("MetricAlarms") if isinstance(alarms, dict) else None
    found = []
    for alarm in listed if isinstance(listed, list) else ():
        if not isinstance(alarm, dict) or not str(alarm.get("ComparisonOperator", "")).startswith("GreaterThan"):
            continue
        period = alarm.get("Period")
        count = alarm.get("DatapointsToAlarm") or alarm.get("EvaluationPeriods")
        if isinstance(period, int) and isinstance(count, int):
            lo, hi = window_range(period, count)
            found.append({"period_s": period, "datapoints": count, "window_lo_s": lo, "window_hi_s": hi})
    return found


def described_units(snapshots: dict[str, Any], when: Literal["first", "last"]) -> int | None:
    """Return the number of units that the first or last snapshot of what is scaled states; None when it does not."""
    for name, path in _COUNTS.items():
        found: Any = snapshots.get(f"{name}-{when}")
        for key in path:
            if isinstance(found, list):
                found = found[0] if found else None
            found = found.get(key) if isinstance(found, dict) else None
        if name == "describe-group" and isinstance(found, list):
            found = sum(1 for i in found if isinstance(i, dict) and i.get("LifecycleState") == "InService")
        if isinstance(found, int):
            return found
    return None


def _described_late(context: Context) -> bool:
    """Tell whether the first snapshot of what is scaled was taken after something had been decided."""
    first = next((found for name in _COUNTS if (found := context.inputs.snapshots.get(f"{name}-first"))), None)
    noted = first.get("_ramptrace") if isinstance(first, dict) else None
    received_us = noted.get("received_us") if isinstance(noted, dict) else None
    if not isinstance(received_us, int):
        return False
    at_us = context.inputs.manifest.clock.to_endpoint_us(received_us)
    since = since_us(context)
    decided = [s.hi_us for s in context.seen if s.anchor == "decision" and s.hi_us is not None]
    return any(at < at_us - US_PER_S and (since is None or at >= since) for at in decided)


_COUNTS: Final = {
    "describe-endpoint": ("ProductionVariants", "CurrentInstanceCount"),
    "describe-service": ("runningCount",),
    "describe-group": ("Instances",),
    "deployment": ("ready_replicas",),
}
"""Snapshot by platform → where it has the number of units in service."""


def ready_capacity(context: Context, scale_outs: Sequence[ScaleOutResult]) -> list[cap.Step]:
    """Return the units in service as a step function with bounds; empty when the number at the start is unknown."""
    at_start = units_at_start(context)
    if at_start is None:
        at_start = next((s.units_before for s in scale_outs if s.units_before is not None), None)
    if at_start is None:
        return []
    begin = since_us(context)
    arrivals = [a for s in scale_outs for a in s.anchors if a.anchor == "in_service"]
    for s in scale_outs:
        known = sum(1 for a in s.anchors if a.anchor == "in_service")
        asked = (s.units_desired or 0) - (s.units_before or 0)
        if s.in_service is not None and asked > known:
            arrivals += [s.in_service] * (asked - known)
    falls = []
    for sighting in context.seen:
        change = count_rise(sighting)
        field = str(sighting.detail.get("field") or "")
        if sighting.anchor is None and change is not None and change[1] < change[0] and "Current" in field:
            lo = sighting.lo_us if sighting.lo_us is not None else sighting.hi_us
            if lo is not None and sighting.hi_us is not None:
                falls.append((lo, sighting.hi_us, change[0] - change[1]))
    return cap.steps(at_start, begin if begin is not None else 0, arrivals, falls)
