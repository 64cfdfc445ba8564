"""A run's analysis as the JSON that `ramptrace analyse --json` prints. `SCHEMA` rises when a key changes meaning.

`{"schema": 1, "runs": [RUN]}`. Lengths end in `_s`: seconds of endpoint time; instants are ISO 8601 in UTC; what was
not observed is null.

RUN: `run`, `path`, `condition`, `emulated`, `platform`, `state`, `verdict` (VALID, DEGRADED, INVALID), `scale_outs`,
`capacity` (what one unit delivered while saturated; requests beyond ready capacity), `requests` (count, outcomes,
failures), `latency` (by stretch of the run: counts and quantiles per measure of `analysis.latency.MEASURES`),
`fidelity` (verdict, reasons, the client's own lag in client ms), `findings` (`code`, `severity`, `text`).

SCALE_OUT: `scaling_id`, `units_before`, `units_desired`, `units_needed`, `marginal_unit`, `onset` with `onset_lo`,
`onset_hi` and `onset_how`, `rise_evident_after_s`, `decision`, `in_service`, `censored` (capacity was not reached:
totals are null), `time_to_capacity_s`, `startup_s`, `phases`, `unattributed_s`; `overlap_s` and `drag_s` where every
phase is told apart. The `critical_s` of `phases` and `unattributed_s` sum to `time_to_capacity_s`.

PHASE: `critical_s` within [`critical_lo_s`, `critical_hi_s`] is time on the critical path; `duration_s` within
[`lo_s`, `hi_s`] is the phase's own length; `method`; `parts` are phases within this one.
"""

from __future__ import annotations

from typing import Any, Final

from analysis.analyse import RunAnalysis
from analysis.cache import label
from analysis.facts import alarm_rules
from analysis.reached import HEADLINE, reached_entry
from analysis.records import PhaseRow, ScaleOutResult, UnitTimes
from analysis.user_cost import cost_entry
from traces.clock import to_datetime
from traces.units import US_PER_S

SCHEMA: Final = 1


def run_entry(analysis: RunAnalysis) -> dict[str, Any]:
    """Return the documented JSON object of one run. Lengths are seconds in endpoint time, unknown is null."""
    manifest = analysis.manifest
    return {
        "run": manifest.run_id,
        "path": str(analysis.path),
        "condition": manifest.condition,
        "emulated": manifest.emulated,
        "platform": analysis.platform,
        "state": manifest.state,
        "verdict": analysis.fidelity["verdict"],
        "alarm_rules": alarm_rules(analysis.snapshots),
        "scale_outs": [scale_out_entry(s) for s in analysis.scale_outs],
        "capacity": {
            "unit_requests_per_s": None if analysis.unit_rate is None else analysis.unit_rate.requests_per_s,
            "unit_tokens_per_s": None if analysis.unit_rate is None else analysis.unit_rate.tokens_per_s,
            "deficit_requests": analysis.deficit_requests,
            "deficit_lo_requests": analysis.deficit_lo,
            "deficit_hi_requests": analysis.deficit_hi,
            "steps": [
                {"at": iso(s.at_us), "lo": iso(s.lo_us), "hi": iso(s.hi_us), "units": s.units}
                for s in analysis.capacity
            ],
        },
        "requests": {
            "n": analysis.request_count,
            "outcomes": analysis.latency["all"]["outcomes"],
            "errors": analysis.errors,
        },
        "objective": {"ttft_s": seconds(analysis.objective.ttft_us), "share": analysis.objective.share},
        "latency": analysis.latency,
        "fidelity": analysis.fidelity,
        "findings": [{"code": f.code, "severity": f.severity, "text": f.text} for f in analysis.findings],
    }


def scale_out_entry(found: ScaleOutResult) -> dict[str, Any]:
    """Return the JSON object of one scale-out; `critical_s` of top-level phases sum to the time to capacity."""
    onset = found.onset
    return {
        "scaling_id": found.scaling_id,
        "units_before": found.units_before,
        "units_desired": found.units_desired,
        "units_needed": found.units_needed,
        "marginal_unit": found.marginal_unit,
        "onset": None if onset is None else iso(onset.at_us),
        "onset_lo": None if onset is None else iso(onset.lo_us),
        "onset_hi": None if onset is None else iso(onset.hi_us),
        "onset_how": None if onset is None else onset.how,
        "rise_evident_after_s": None if onset is None else seconds(onset.evident_after_us),
        "decision": iso(found.decision.at_us),
        "in_service": None if found.in_service is None else iso(found.in_service.at_us),
        "censored": found.censored,
        "time_to_capacity_s": seconds(found.time_to_capacity_us),
        "startup_s": seconds(found.startup_us),
        "phases": {
            row.phase: phase_entry(row, found.phases)
            for row in found.phases
            if row.parent is None and row.phase != "unattributed"
        },
        "unattributed_s": seconds(found.unattributed_us),
        "burst": found.burst,
        "units_wanted": found.units_wanted,
        "demand_requests_per_s": found.demand_requests_per_s,
        "headline": HEADLINE,
        "reached": reached_entry(found),
        "user_cost": cost_entry(found.cost),
        "units": [unit_entry(unit, found) for unit in found.units],
        "slack_s": {name: seconds(us) for name, us in found.slack_us.items()},
        "overlap_s": {name: seconds(us) for name, us in found.overlap_us.items()},
        "drag_s": {name: seconds(us) for name, us in found.drag_us.items()},
    }


def unit_entry(unit: UnitTimes, found: ScaleOutResult) -> dict[str, Any]:
    """Return the JSON object of one new unit: its own critical path; its shares sum to `total_s`."""
    return {
        "unit": unit.unit_id,
        "marginal": unit.unit_id is not None and unit.unit_id == found.marginal_unit,
        "image_cache": "unknown" if unit.pull is None else label(unit.pull.lo_us, unit.pull.hi_us, None),
        "startup_s": None if unit.startup is None else seconds(unit.startup.at_us),
        "total_s": seconds(unit.total_us),
        "critical_s": {name: seconds(us) for name, us in unit.critical_us.items()},
    }


def phase_entry(row: PhaseRow, everything: tuple[PhaseRow, ...]) -> dict[str, Any]:
    """Return the JSON object of one phase; `lo_s` and `hi_s` bound its own duration."""
    entry: dict[str, Any] = {
        "critical_s": seconds(row.critical_us),
        "critical_lo_s": seconds(row.critical_lo_us),
        "critical_hi_s": seconds(row.critical_hi_us),
        "duration_s": seconds(row.duration_us),
        "lo_s": seconds(row.lo_us),
        "hi_s": seconds(row.hi_us),
        "method": row.method,
    }
    if row.on_path is not None:
        entry["on_path_probability"] = row.on_path
    parts = {part.phase: phase_entry(part, ()) for part in everything if part.parent == row.phase}
    if parts:
        entry["parts"] = parts
    return entry


def seconds(us: int | None) -> float | None:
    """Return µs as seconds; six decimals are exact.

    >>> seconds(1_500_000), seconds(None)
    (1.5, None)
    """
    return None if us is None else us / US_PER_S


def iso(us: int) -> str:
    """Return an instant (µs since 1970) as ISO 8601 in UTC, with microseconds.

    >>> iso(0)
    '1970-01-01T00:00:00.000000+00:00'
    """
    return to_datetime(us).isoformat(timespec="microseconds")
