"""Observations → scale-outs: which activities raised capacity, which alarm led there, which units they brought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from analysis.records import Sighting
from traces.units import US_PER_S

_SHARED_ANCHORS: Final = ("breach", "alarm", "decision")
DID_NOT_SCALE: Final = frozenset({"Failed", "Unfulfilled", "Overridden"})
"""Ends of an activity after which the count stays what it was; a retry is the next step of the same scale-out."""
_SLACK_US: Final = US_PER_S
"""How far apart two sources may date the same decision before they are taken for two."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One rise of the desired count. `decision` is the observation that dates it best."""

    decision: Sighting
    scaling_id: str | None
    units_before: int | None
    desired: int | None
    done: Sighting | None

    @property
    def failed(self) -> bool:
        """Whether the platform says that it brought nothing."""
        return self.decision.detail.get("status_code") in DID_NOT_SCALE

    @property
    def at_us(self) -> int:
        """When the scaler decided (the observation's upper bound)."""
        at = self.decision.hi_us if self.decision.hi_us is not None else self.decision.lo_us
        assert at is not None
        return at


class ScaleOutEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything observed about one scale-out: its steps, and sightings by what they are about.

    `shared` concern the whole scale-out, `by_unit` one new unit, `unlabelled` one of them without saying which;
    `counts` are changes of the number in service.
    """

    steps: tuple[Step, ...]
    shared: tuple[Sighting, ...]
    by_unit: dict[str, tuple[Sighting, ...]]
    unlabelled: tuple[Sighting, ...]
    counts: tuple[Sighting, ...]

    @property
    def units_before(self) -> int | None:
        """Units before the first step."""
        return self.steps[0].units_before

    @property
    def desired(self) -> int | None:
        """Units asked for by the last step."""
        return self.steps[-1].desired


def find_steps(seen: Sequence[Sighting], units_at_start: int | None, since_us: int | None) -> list[Step]:
    """Return every rise of the desired count at or after `since_us`, in order.

    Scaling activities say it best; without any (access denied), the endpoint's own status and counts.
    """
    decisions = sorted((s for s in seen if s.anchor == "decision" and _at(s) is not None), key=Sighting.sort_key)
    if since_us is not None:
        decisions = [s for s in decisions if (_at(s) or 0) >= since_us - _SLACK_US]
    activities = [s for s in decisions if s.scaling_id is not None]
    chosen = activities or _without_doubles(decisions)
    current, steps = units_at_start, []
    for sighting in chosen:
        desired = _integer(sighting.detail, "desired", "to")
        before = _integer(sighting.detail, "from")
        before = current if before is None else before
        rises = not _calls_for_fewer(sighting, seen) if before is None else desired is None or desired > before
        if rises:
            done = next((s for s in seen if s.anchor == "in_service" and _same_activity(s, sighting)), None)
            steps.append(
                Step(decision=sighting, scaling_id=sighting.scaling_id, units_before=before, desired=desired, done=done)
            )
        if desired is not None and not (steps and steps[-1].decision is sighting and steps[-1].failed):
            current = desired
    return steps


def _calls_for_fewer(decision: Sighting, seen: Sequence[Sighting]) -> bool:
    """Tell whether the alarm behind a decision is raised by a metric that is low."""
    name = decision.detail.get("alarm_name")
    compared = (s.detail.get("comparison") for s in seen if name is not None and s.detail.get("alarm_name") == name)
    return "-AlarmLow-" in str(name) or any(str(comparison).startswith("LessThan") for comparison in compared)


def _same_activity(sighting: Sighting, other: Sighting) -> bool:
    return sighting.scaling_id is not None and sighting.scaling_id == other.scaling_id


def _without_doubles(decisions: list[Sighting]) -> list[Sighting]:
    """Return status and count readings with one per decision: a count (it says how many) over a status."""
    counted = [s for s in decisions if _integer(s.detail, "to") is not None]
    lone = [s for s in decisions if s not in counted and not any(_near(s, c) for c in counted)]
    return sorted([*counted, *lone], key=Sighting.sort_key)


def _near(status: Sighting, count: Sighting) -> bool:
    at = _at(status) or 0
    return (count.lo_us or 0) - 30 * US_PER_S <= at <= (count.hi_us or 0) + _SLACK_US


def group_steps(steps: Sequence[Step], seen: Sequence[Sighting]) -> list[tuple[Step, ...]]:
    """Return steps grouped into scale-outs: a step taken before the one before it was fulfilled belongs to it."""
    groups: list[list[Step]] = []
    for step in steps:
        if groups and not _fulfilled(groups[-1][-1], step.at_us, seen):
            groups[-1].append(step)
        else:
            groups.append([step])
    return [tuple(group) for group in groups]


def _fulfilled(step: Step, by_us: int, seen: Sequence[Sighting]) -> bool:
    """Tell whether a step's capacity was there by an instant.

    Its activity had ended, the count had risen to it, or as many units as it asked for had come into service.
    """
    if step.done is not None:
        return (step.done.hi_us or 0) <= by_us
    by_then = [s for s in seen if s.anchor == "in_service" and step.at_us < (s.hi_us or 0) <= by_us]
    if any((rise := count_rise(s)) is not None and rise[1] >= (step.desired or 0) for s in by_then):
        return True
    units = {s.unit_id for s in by_then if s.unit_id is not None}
    return step.desired is not None and len(units) >= step.desired - (step.units_before or 0)


def gather(groups: Sequence[tuple[Step, ...]], seen: Sequence[Sighting]) -> list[ScaleOutEvidence]:
    """Return the evidence on each group of steps; what lies before the first decision is the alarm that led there."""
    result = []
    for i, group in enumerate(groups):
        begin = group[0].at_us
        previous = groups[i - 1][0].at_us if i else None
        following = groups[i + 1][0].at_us if i + 1 < len(groups) else None
        own = [s for s in seen if _belongs(s, begin, following)]
        by_unit = {
            unit: tuple(rows)
            for unit, rows in sorted(_by_unit(seen).items())
            # Seen to be there before: a bound on one side, "not before", does not say that.
            if all(s.hi_us is None or s.hi_us >= begin - _SLACK_US for s in rows)
            and any(_belongs(s, begin, following) for s in rows)
        }
        result.append(
            ScaleOutEvidence(
                steps=group,
                shared=(*_alarm(group[0], seen, previous), *_decisions(group, seen, following)),
                by_unit=by_unit,
                unlabelled=tuple(
                    s
                    for s in own
                    if s.unit_id is None
                    and s.anchor not in (None, *_SHARED_ANCHORS)
                    and not _is_count(s)
                    and s.scaling_id is None
                ),
                counts=tuple(s for s in own if _is_count(s)),
            )
        )
    return result


def _is_count(s: Sighting) -> bool:
    """Tell whether a sighting is a change of the number in service, of nobody in particular."""
    return s.anchor == "in_service" and s.unit_id is None and s.scaling_id is None and count_rise(s) is not None


def _belongs(s: Sighting, begin: int, following: int | None) -> bool:
    at = _at(s)
    return at is not None and at > begin - _SLACK_US and (following is None or at <= following)


def _by_unit(seen: Sequence[Sighting]) -> dict[str, list[Sighting]]:
    """Return what was seen of each unit. A unit belongs, whole, to the scale-out during which it first appeared."""
    found: dict[str, list[Sighting]] = {}
    for s in seen:
        if s.unit_id is not None and s.anchor is not None:
            found.setdefault(s.unit_id, []).append(s)
    return {unit: _one_line_each(rows) for unit, rows in found.items()}


def _one_line_each(rows: list[Sighting]) -> list[Sighting]:
    """Return sightings with at most one log line per anchor.

    A server and the engine inside it may each print that they load and that they are ready. All must be ready, so the
    last such line counts; the weights' load is that of the innermost, which begins last, up to its first line of end.
    """
    lines = [s for s in rows if s.source == "logs:pattern"]
    if not lines:
        return rows
    loads = [s for s in lines if s.anchor in {"load_started", "load_finished"}]
    begins = [s for s in loads if s.anchor == "load_started"]
    inner = (max(begins, key=Sighting.sort_key) if begins else min(loads, key=Sighting.sort_key)) if loads else None
    engine = None if inner is None else inner.detail.get("engine")
    picked = []
    for anchor in sorted({s.anchor for s in lines if s.anchor is not None}):
        group = [s for s in lines if s.anchor == anchor and (s not in loads or s.detail.get("engine") == engine)]
        if group:
            picked.append((min if anchor.startswith("load_") else max)(group, key=Sighting.sort_key))
    picked = _weights_after_download(picked)
    return [s for s in rows if s.source != "logs:pattern"] + picked


def _weights_after_download(lines: list[Sighting]) -> list[Sighting]:
    """Return lines of one unit; an engine that says it loads, and then downloads, reads the weights only after that."""
    fetched = next((s for s in lines if s.anchor == "download_finished"), None)
    if fetched is None:
        return lines
    return [
        msgspec.structs.replace(s, lo_us=fetched.lo_us, hi_us=fetched.hi_us)
        if s.anchor == "load_started" and s.sort_key() < fetched.sort_key()
        else s
        for s in lines
    ]


def _alarm(first: Step, seen: Sequence[Sighting], previous_us: int | None) -> list[Sighting]:
    """Return the alarm (and its breach) behind a step: the latest before it, named by the activity where it says."""
    alarms = [
        s
        for s in seen
        if s.anchor == "alarm"
        and (at := _at(s)) is not None
        and at <= first.at_us + _SLACK_US
        and (previous_us is None or at > previous_us)
    ]
    named = [s for s in alarms if _names(first.decision, s.detail.get("alarm_name"))]
    candidates = named or alarms
    if not candidates:
        return []
    alarm = max(candidates, key=Sighting.sort_key)
    stem = alarm.native_id.rpartition(":")[0]
    breaches = [s for s in seen if s.anchor == "breach" and s.native_id.rpartition(":")[0] == stem]
    return [alarm, *breaches]


def _names(activity: Sighting, alarm_name: Any) -> bool:
    if not isinstance(alarm_name, str):
        return False
    return activity.detail.get("alarm_name") == alarm_name or alarm_name in str(activity.detail.get("cause") or "")


def _decisions(group: tuple[Step, ...], seen: Sequence[Sighting], following: int | None) -> list[Sighting]:
    """Return other sources' readings of the group's only decision; with several steps it is unclear whose they are."""
    if len(group) > 1:
        return []
    step = group[0]
    return [
        s
        for s in seen
        if s.anchor == "decision"
        and s is not step.decision
        and s.scaling_id is None
        and _belongs(s, step.at_us, following)
        and (step.desired is None or _integer(s.detail, "to") in {None, step.desired})
        and (s.lo_us is None or s.lo_us <= step.at_us + _SLACK_US)
    ]


def _at(s: Sighting) -> int | None:
    return s.hi_us if s.hi_us is not None else s.lo_us


def _integer(detail: dict[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = detail.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def count_rise(s: Sighting) -> tuple[int, int] | None:
    """Return (from, to) of a change of the number of units in service, None when it does not say."""
    before, after = _integer(s.detail, "from"), _integer(s.detail, "to")
    return None if before is None or after is None else (before, after)
