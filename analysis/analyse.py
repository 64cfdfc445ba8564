"""One run, from its directory to its attribution."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from analysis import capacity as cap
from analysis.demand import evident_after_us, find_onset, load_per_bin, offered
from analysis.fidelity import fidelity, without_warm_up
from analysis.inputs import RunInputs, open_run, sightings
from analysis.latency import by_window, errors, over_time
from analysis.phases import attribute
from analysis.quality import assess, never_recorded, offset_beyond_date_us
from analysis.reconcile import FIRST_DECISION, PERIOD_CLOSED, Timeline
from analysis.records import AnchorValue, Finding, Onset, ScaleOutResult, Sighting, UnitTimes
from analysis.scaleouts import ScaleOutEvidence, count_rise, find_steps, gather, group_steps
from analysis.timelines import Context, timelines_of
from traces.run import Manifest
from traces.units import US_PER_S

_BINS_US: Final = tuple(s * US_PER_S for s in (1, 2, 5, 10, 30, 60, 300, 900, 3600))
_MOST_BINS: Final = 240


class RunAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """A run's results. Frames: `load` is `capacity.against_demand`, `latency_over_time` is `latency.over_time`."""

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
    latency_over_time: pl.DataFrame
    request_count: int
    capacity_errors: int


def analyse_run(path: str | Path) -> RunAnalysis:
    """Return the analysis of the run directory at `path`, finished or not. Not a run directory: BadInputError."""
    return analyse(open_run(path))


def analyse(inputs: RunInputs) -> RunAnalysis:
    """Return the analysis of an opened run."""
    findings = [*inputs.findings, *assess(inputs)]
    seen = sightings(inputs.observations)
    arrivals = offered(inputs.trace, inputs.requests, inputs.load_start_us)
    context = Context(inputs=inputs, seen=seen, arrivals=arrivals, offset_us=offset_beyond_date_us(inputs))
    scale_outs, rate = _scale_outs(context, findings)
    bin_us = _bin_us(arrivals)
    load = load_per_bin(arrivals, bin_us)
    steps = _capacity(context, scale_outs)
    load = cap.against_demand(load, steps, rate, bin_us)
    deficit = None if rate is None else float(load["deficit_requests"].sum())
    findings += _not_scaled(seen)
    refused = _capacity_errors(context)
    if refused:
        text = f"the platform reported insufficient capacity {refused}×: provisioning includes the wait for a machine"
        findings.append(Finding(code="capacity-errors", severity="warning", text=text))
    measured = without_warm_up(inputs.manifest, inputs.requests)
    if excluded := len(inputs.requests) - len(measured):
        text = f"{excluded} requests were warm-up: they count as load, and for no latency"
        findings.append(Finding(code="warm-up", severity="info", text=text))
    if not scale_outs:
        findings.append(
            Finding(
                code="no-scale-out", severity="warning", text="no scale-out was seen: there is no time to attribute"
            )
        )
    return RunAnalysis(
        path=inputs.path,
        manifest=inputs.manifest,
        snapshots=inputs.snapshots,
        platform=seen[0].platform if seen else None,
        scale_outs=tuple(scale_outs),
        findings=tuple(dict.fromkeys(findings)),
        fidelity=fidelity(inputs.manifest, measured, never_recorded(inputs)),
        latency=by_window(measured, _windows(scale_outs)),
        errors=errors(measured),
        bin_us=bin_us,
        load=load,
        capacity=tuple(steps),
        unit_rate=rate,
        deficit_requests=deficit,
        latency_over_time=over_time(measured, bin_us),
        request_count=len(inputs.requests),
        capacity_errors=refused,
    )


def _scale_outs(context: Context, findings: list[Finding]) -> tuple[list[ScaleOutResult], cap.UnitRate | None]:
    since = _since_us(context)
    steps = find_steps(context.seen, _units_at_start(context), since)
    found: list[ScaleOutResult] = []
    rate: cap.UnitRate | None = None
    previous: int | None = None
    for evidence in gather(group_steps(steps, context.seen), context.seen):
        onset = _onset(context, evidence, previous)
        if onset is None:
            text = (
                "demand did not rise before the decision (or is not recorded): time to capacity is unknown, "
                "start-up is not"
            )
            findings.append(Finding(code="no-onset", severity="warning", text=text))
        result, calibrated = _attribute(context, evidence, onset, len(found), known_rate=rate, findings=findings)
        rate = rate or calibrated
        found.append(result)
        previous = evidence.steps[-1].at_us
    return found, rate


def _not_scaled(seen: Sequence[Sighting]) -> list[Finding]:
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


def _capacity_errors(context: Context) -> int:
    """Return how many times, since the load began, the platform said that it had no machine."""
    samples = context.inputs.samples.filter(pl.col("metric") == "ice_count")
    since = _since_us(context)
    if since is not None:
        samples = samples.filter(pl.col("start").dt.epoch("us") >= since)
    return round(samples["value"].sum())


def _since_us(context: Context) -> int | None:
    """Return the start of the load: what was decided before it, the load cannot have caused."""
    first: int | None = context.arrivals["due_us"].min()  # type: ignore[assignment]
    starts = [at for at in (context.inputs.load_start_us, first) if at is not None]
    return min(starts, default=None)


def _units_at_start(context: Context) -> int | None:
    """Return the number of instances when collection began: as described, or else what the first change was from."""
    count = described_units(context.inputs.snapshots, "describe-endpoint-first")
    if count is not None:
        return count
    changes = (rise for s in context.seen if s.anchor == "in_service" and (rise := count_rise(s)) is not None)
    return next((before for before, _ in changes), None)


def described_units(snapshots: dict[str, Any], name: str) -> int | None:
    """Return the number of instances that a snapshot of the endpoint states; None when it does not."""
    described = snapshots.get(name) or {}
    variants = described.get("ProductionVariants") if isinstance(described, dict) else None
    first = variants[0] if isinstance(variants, list) and variants else None
    count = first.get("CurrentInstanceCount") if isinstance(first, dict) else None
    return count if isinstance(count, int) else None


def _onset(context: Context, evidence: ScaleOutEvidence, previous: int | None) -> Onset | None:
    breach = next((s.hi_us for s in evidence.shared if s.anchor == "breach"), None)
    due, decision = context.arrivals["due_us"], evidence.steps[0].at_us
    found = find_onset(due, previous, decision, breach)
    if found is None:
        return None
    return msgspec.structs.replace(found, evident_after_us=evident_after_us(due, found, decision))


def _attribute(
    context: Context,
    evidence: ScaleOutEvidence,
    onset: Onset | None,
    index: int,
    *,
    known_rate: cap.UnitRate | None,
    findings: list[Finding],
) -> tuple[ScaleOutResult, cap.UnitRate | None]:
    timelines = timelines_of(context, evidence, onset)
    served = [t for t in timelines if t.at("in_service") is not None]
    rate = known_rate or _rate(context, evidence, onset, served)
    needed = _needed(context, evidence, onset, rate, served=served, findings=findings)
    chosen = _marginal(evidence, served, needed)
    censored = chosen is None
    timeline = chosen or timelines[-1]
    result = attribute(timeline) if not censored else None
    if censored:
        text = f"CAPACITY WAS NOT REACHED while the run was watched: {len(served)} new unit(s) came into service"
        findings.append(Finding(code="censored", severity="error", text=text))
    findings += [f for t in timelines for f in t.findings]
    findings += _unseen(timeline)
    startup = None if censored else timeline.length("decision", "in_service")
    total = timeline.length("onset", "in_service") if not censored else None
    named = [t for t in timelines if t.unit_id is not None]
    return ScaleOutResult(
        index=index,
        scaling_id=evidence.steps[-1].scaling_id,
        units_before=evidence.units_before,
        units_desired=evidence.desired,
        units_needed=needed,
        marginal_unit=None if censored else timeline.unit_id,
        onset=onset,
        decision=timeline.anchors[FIRST_DECISION],
        in_service=None if censored else timeline.anchors.get("in_service"),
        time_to_capacity_us=None if total is None else total.at_us,
        startup_us=None if startup is None else startup.at_us,
        unattributed_us=None if result is None or total is None else result.unattributed_us,
        censored=censored,
        phases=() if result is None else result.phases,
        anchors=_all_anchors(timeline, named),
        units=tuple(_unit_times(t) for t in timelines),
        overlap_us={} if result is None else result.overlap_us,
        drag_us={} if result is None else result.drag_us,
    ), rate


_SIGNALS: Final = {
    "container_started": "no container start (log stream) of the unit: what lies before and after it is not told apart",
    "ready": "neither a log line nor a metric says when the container was ready: start and registration are one",
    "alarm": "no alarm led to the decision that could be read: detection is not split",
}


def _unseen(timeline: Timeline) -> list[Finding]:
    """Return a finding per signal without which phases stay joined."""
    missing = [text for anchor, text in _SIGNALS.items() if timeline.at(anchor) is None]
    if timeline.lengths.get("download_finished") is None and timeline.at("download_finished") is None:
        missing.append("no download time is reported: the model's download is unknown within its window")
    return [Finding(code="unseen", severity="info", text=text) for text in missing]


def _all_anchors(chosen: Timeline, named: Sequence[Timeline]) -> tuple[AnchorValue, ...]:
    """Return the scale-out's own anchors once, and each unit's from its start on."""
    public = {"onset", "breach", "alarm", "decision"}
    hidden = public | {PERIOD_CLOSED, FIRST_DECISION}
    shared = [msgspec.structs.replace(v, unit_id=None) for a, v in chosen.anchors.items() if a in public]
    units = [v for t in (named or [chosen]) for a, v in t.anchors.items() if a not in hidden]
    return (*shared, *units)


def _rate(
    context: Context, evidence: ScaleOutEvidence, onset: Onset | None, served: Sequence[Timeline]
) -> cap.UnitRate | None:
    if onset is None or not evidence.units_before:
        return None
    first = min((t.at("in_service") or 0 for t in served), default=None)
    until = first if first is not None else evidence.steps[0].at_us
    return cap.calibrate(
        context.inputs.requests, onset.at_us, until, evidence.units_before, _offered(context, onset.at_us, until)
    )


def _offered(context: Context, begin: int, end: int) -> float:
    due = context.arrivals["due_us"]
    return int(((due >= begin) & (due < end)).sum()) / max(end - begin, 1) * US_PER_S


def _needed(
    context: Context,
    evidence: ScaleOutEvidence,
    onset: Onset | None,
    rate: cap.UnitRate | None,
    *,
    served: Sequence[Timeline],
    findings: list[Finding],
) -> int | None:
    """Return how many units the demand needed, capped at what the scaler asked for; its own figure when unknown."""
    desired = evidence.desired
    if rate is None or onset is None or desired is None or not served:
        return desired
    until = max(t.at("in_service") or 0 for t in served)
    due = context.arrivals["due_us"]
    last: int = due.max()  # type: ignore[assignment]
    wanted = cap.units_needed(_offered(context, onset.at_us, min(until, last)), rate.requests_per_s)
    if wanted > desired:
        text = (
            f"demand needed about {wanted} units, the scaler asked for {desired}: capacity here means what it asked for"
        )
        findings.append(Finding(code="under-asked", severity="warning", text=text))
    return min(max(wanted, (evidence.units_before or 0) + 1), desired)


def _marginal(evidence: ScaleOutEvidence, served: Sequence[Timeline], needed: int | None) -> Timeline | None:
    """Return the timeline of the unit that completed the needed capacity; None when it never came."""
    if not served:
        return None
    if served[0].unit_id is None or needed is None or evidence.units_before is None:
        return max(served, key=lambda t: t.at("in_service") or 0)
    ready = [t.at("in_service") or 0 for t in served]
    position = cap.marginal(ready, needed - evidence.units_before)
    if position is None:
        # Fewer units were named than counted: the activity's own end still says that all had come.
        done = evidence.steps[-1].done is not None
        return max(served, key=lambda t: t.at("in_service") or 0) if done else None
    return served[position]


def _unit_times(timeline: Timeline) -> UnitTimes:
    return UnitTimes(
        unit_id=timeline.unit_id,
        window=timeline.length("decision", "container_started"),
        download=timeline.lengths.get("download_finished") or timeline.length("download_started", "download_finished"),
        startup=timeline.length("decision", "in_service"),
    )


def _capacity(context: Context, scale_outs: Sequence[ScaleOutResult]) -> list[cap.Step]:
    at_start = _units_at_start(context)
    if at_start is None:
        at_start = next((s.units_before for s in scale_outs if s.units_before is not None), None)
    if at_start is None:
        return []
    begin = _since_us(context)
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


def _bin_us(arrivals: pl.DataFrame) -> int:
    """Return a bin that shows the run in at most `_MOST_BINS` bins."""
    if arrivals.is_empty():
        return _BINS_US[0]
    due = arrivals["due_us"]
    last: int = due.max()  # type: ignore[assignment]
    first: int = due.min()  # type: ignore[assignment]
    length = last - first
    return next((b for b in _BINS_US if length <= b * _MOST_BINS), _BINS_US[-1])
