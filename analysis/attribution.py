"""Scale-outs, one after the other: onset, unit timelines, the marginal unit, and its phases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from analysis import capacity as cap
from analysis.demand import between
from analysis.facts import since_us, units_at_start
from analysis.onset import LOOK_BACK_US, evident_after_us, fell, find_onset, of_the_deficit
from analysis.phases import attribute
from analysis.reconcile import FIRST_DECISION, PERIOD_CLOSED, Timeline
from analysis.records import AnchorValue, Finding, Onset, ScaleOutResult, UnitTimes
from analysis.scaleouts import ScaleOutEvidence, find_steps, gather, group_steps
from analysis.timelines import Context, timelines_of
from traces.units import US_PER_S


def attribute_scale_outs(context: Context, findings: list[Finding]) -> tuple[list[ScaleOutResult], cap.UnitRate | None]:
    """Return a run's scale-outs in order, and what one unit delivered where that was seen; tells `findings` more."""
    steps = find_steps(context.seen, units_at_start(context), since_us(context))
    found: list[ScaleOutResult] = []
    rate: cap.UnitRate | None = None
    previous: ScaleOutEvidence | None = None
    began: ScaleOutEvidence | None = None
    for evidence in gather(group_steps(steps, context.seen), context.seen):
        onset = _onset(context, evidence, previous)
        if onset is None and found and began is not None:
            onset = _same_burst(context, evidence, found[-1].onset)
        began = began if onset is not None and onset.how == "same-burst" else None
        if onset is None:
            text = (
                "demand did not rise before the decision (or is not recorded): time to capacity is unknown, "
                "start-up is not"
            )
            findings.append(Finding(code="no-onset", severity="warning", text=text))
        burst = (found[-1].burst + (began is None)) if found else 0
        result, calibrated = _attribute(
            context, evidence, onset, index=len(found), burst=burst, began=began, known_rate=rate, findings=findings
        )
        rate = rate or calibrated
        found.append(result)
        previous, began = evidence, began or (None if onset is None else evidence)
    return found, rate


def _onset(context: Context, evidence: ScaleOutEvidence, previous: ScaleOutEvidence | None) -> Onset | None:
    breach = next((s.hi_us for s in evidence.shared if s.anchor == "breach"), None)
    due, decision = context.due_us, evidence.steps[0].at_us
    found = find_onset(due, None if previous is None else previous.steps[-1].at_us, decision, breach)
    if found is None:
        return None
    return msgspec.structs.replace(found, evident_after_us=evident_after_us(due, found, decision))


def _same_burst(context: Context, evidence: ScaleOutEvidence, onset: Onset | None) -> Onset | None:
    """Return the burst's onset for a scale-out that goes on with it: demand neither rose again nor fell since."""
    if onset is None or fell(context.due_us, onset.at_us, evidence.steps[0].at_us):
        return None
    return msgspec.structs.replace(onset, how="same-burst")


def _attribute(
    context: Context,
    evidence: ScaleOutEvidence,
    onset: Onset | None,
    *,
    index: int,
    burst: int,
    began: ScaleOutEvidence | None,
    known_rate: cap.UnitRate | None,
    findings: list[Finding],
) -> tuple[ScaleOutResult, cap.UnitRate | None]:
    timelines = timelines_of(context, evidence, onset, began)
    served = [t for t in timelines if t.at("in_service") is not None]
    rate = known_rate or _rate(context, evidence, onset, served)
    refined = _of_the_deficit(context, evidence, onset, rate)
    if refined != onset:
        onset = refined
        timelines = timelines_of(context, evidence, onset, began)
        served = [t for t in timelines if t.at("in_service") is not None]
    demand = _demand(context, onset, served)
    wanted = None if demand is None or rate is None else cap.units_needed(demand, rate.requests_per_s)
    needed = _needed(evidence, wanted, findings)
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
        units_wanted=wanted,
        demand_requests_per_s=demand,
        burst=burst,
        marginal_unit=None if censored else timeline.unit_id,
        onset=onset,
        decision=timeline.anchors[FIRST_DECISION if began is None else "decision"],
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
        slack_us={} if result is None else result.slack_us,
    ), rate


def _of_the_deficit(
    context: Context, evidence: ScaleOutEvidence, onset: Onset | None, rate: cap.UnitRate | None
) -> Onset | None:
    """Return the rise that brought demand beyond what was ready, where both are known, instead of the likeliest."""
    if onset is None or rate is None or not evidence.units_before or onset.how != "change-point":
        return onset
    ready = evidence.units_before * rate.requests_per_s * (1 + cap.NEED_TOLERANCE)
    decision = evidence.steps[0].at_us
    begin = max(int(context.due_us[0]), decision - LOOK_BACK_US)
    found = of_the_deficit(context.due_us, onset, begin, decision, ready)
    if found.at_us == onset.at_us:
        return onset
    return msgspec.structs.replace(found, evident_after_us=evident_after_us(context.due_us, found, decision))


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
    return len(between(context.due_us, begin, end)) / max(end - begin, 1) * US_PER_S


def _demand(context: Context, onset: Onset | None, served: Sequence[Timeline]) -> float | None:
    """Return the offered load (requests/s) from the onset until the last new unit was in service; None: unknown."""
    if onset is None or not served or context.due_us.is_empty():
        return None
    until = max(t.at("in_service") or 0 for t in served)
    return _offered(context, onset.at_us, min(until, int(context.due_us[-1])))


def _needed(evidence: ScaleOutEvidence, wanted: int | None, findings: list[Finding]) -> int | None:
    """Return how many units the demand needed, capped at what the scaler asked for; its own figure when unknown."""
    desired = evidence.desired
    if wanted is None or desired is None:
        return desired
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
        return max(served, key=_came)
    # A count may rise by several units at once, when the last of them is ready: then that one was waited for.
    served = sorted(served, key=_came)
    ready = [t.at("in_service") or 0 for t in served]
    position = cap.marginal(ready, needed - evidence.units_before)
    if position is None:
        # Fewer units were named than counted: the activity's own end still says that all had come.
        done = evidence.steps[-1].done is not None
        return served[-1] if done else None
    together = [t for t in served if t.at("in_service") == ready[position]]
    return together[-1]


def _came(timeline: Timeline) -> tuple[int, int]:
    """Return when a unit came into service, and when it was ready as far as that is dated, to order units by."""
    ready = timeline.at("ready")
    return timeline.at("in_service") or 0, (timeline.at("container_started") or 0) if ready is None else ready


def _unit_times(timeline: Timeline) -> UnitTimes:
    path = attribute(timeline)
    tops = () if path is None else (row for row in path.phases if row.parent is None and row.critical_us)
    return UnitTimes(
        unit_id=timeline.unit_id,
        window=timeline.length("decision", "container_started"),
        download=timeline.lengths.get("download_finished") or timeline.length("download_started", "download_finished"),
        startup=timeline.length("decision", "in_service"),
        pull=timeline.length("pull_started", "pull_finished"),
        total_us=None if path is None else path.total_us,
        critical_us={row.phase: row.critical_us for row in tops},
    )
