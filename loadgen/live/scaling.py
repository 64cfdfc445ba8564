"""Observations so far → scale-outs in progress, the phase that each unit is in now, and ready capacity. Pure.

This is what can be said at a glance while a run goes on; `ramptrace analyse` reconciles all evidence and gives bounds.
Instants are µs on the run's time axis. A phase that the platform hides stays joined, as in the analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from loadgen.live.sightings import Seen
from loadgen.live.units import Unit, unit_of
from traces.units import US_PER_S

_DID_NOT_SCALE: Final = frozenset({"Failed", "Unfulfilled", "Overridden"})
_SLACK_US: Final = US_PER_S
_LAUNCHES: Final = frozenset(
    {"launched", "pull_started", "pull_finished", "download_finished", "container_started", "load_started", "ready"}
)


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """From `at_us` on, `units` are in service; the change was first seen then, and came not before `lo_us`."""

    at_us: int
    units: int
    lo_us: int | None = None


class ScaleOut(msgspec.Struct, frozen=True, kw_only=True):
    """One rise of the desired count. `begun_us` is the start of the first breaching metric period, where one is known.

    `capacity_us` is when the last unit that was asked for was first seen in service; None while it is waited for.
    """

    decision_us: int
    begun_us: int | None
    alarm_us: int | None
    units_before: int | None
    desired: int | None
    capacity_us: int | None
    units: tuple[Unit, ...]


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about capacity. `alarm_us` is of an alarm that no decision has followed yet."""

    scale_outs: tuple[ScaleOut, ...]
    levels: tuple[Level, ...]
    alarm_us: int | None


class _Step(msgspec.Struct, kw_only=True):
    at_us: int
    before: int | None
    desired: int | None
    scaling_id: str | None


def scaling(seen: Sequence[Seen], units_at_start: int | None) -> Scaling:
    """Return how the platform has scaled so far."""
    levels = _levels(seen, units_at_start)
    groups = _groups(_steps(seen, units_at_start), levels, seen)
    found = []
    for i, group in enumerate(groups):
        until = groups[i + 1][0].at_us if i + 1 < len(groups) else None
        since = groups[i - 1][-1].at_us if i else None
        found.append(_scale_out(group, seen, levels, since=since, until=until))
    last = max((step.at_us for group in groups for step in group), default=None)
    alarms = [at for s in seen if s.anchor == "alarm" and (at := _at(s)) is not None]
    pending = max(alarms, default=None)
    if pending is not None and last is not None and pending <= last + _SLACK_US:
        pending = None
    return Scaling(scale_outs=tuple(found), levels=tuple(levels), alarm_us=pending)


def _levels(seen: Sequence[Seen], units_at_start: int | None) -> list[Level]:
    """Return ready units as steps: from changes of the count where it is read, else from what came into service."""
    changes = []
    for s in seen:
        before, after, at = s.number("from"), s.number("to"), _at(s)
        fell = s.anchor is None and "Current" in str(s.detail.get("field") or "")
        if before is not None and after is not None and at is not None and (s.anchor == "in_service" or fell):
            changes.append((at, before, after, s.lo_us))
    changes.sort(key=lambda change: change[:3])
    if changes:
        start = changes[0][1] if units_at_start is None else units_at_start
        ends = [(s.number("desired"), _at(s)) for s in seen if s.anchor == "in_service" and s.scaling_id is not None]
        return [Level(at_us=0, units=start)] + [_level(at, to, lo, ends) for at, _, to, lo in changes]
    if units_at_start is None:
        return []
    arrivals = sorted({s.unit_id: _at(s) or 0 for s in seen if s.anchor == "in_service" and s.unit_id}.values())
    return [Level(at_us=0, units=units_at_start)] + [
        Level(at_us=at, units=units_at_start + n) for n, at in enumerate(arrivals, 1) if at > 0
    ]


def _level(at: int, units: int, lo: int | None, ends: Sequence[tuple[int | None, int | None]]) -> Level:
    """Return a level from two readings of the count; an activity that ended between them with it says when."""
    inside = [end for desired, end in ends if desired == units and end is not None and (lo or 0) <= end <= at]
    return Level(at_us=min(inside, default=at), units=units, lo_us=lo)


def _steps(seen: Sequence[Seen], units_at_start: int | None) -> list[_Step]:
    """Return the rises of the desired count: the scaler's own activities say it best, else the count's changes."""
    decisions = [s for s in seen if s.anchor == "decision" and (_at(s) or 0) > 0]
    activities = [s for s in decisions if s.scaling_id is not None]
    chosen = activities or [s for s in decisions if s.number("to") is not None] or decisions[:1]
    steps: list[_Step] = []
    current = units_at_start
    for s in sorted(chosen, key=lambda s: _at(s) or 0):
        if s.detail.get("status_code") in _DID_NOT_SCALE:
            continue
        desired, before = s.number("desired", "to"), s.number("from")
        before = current if before is None else before
        if desired is None or before is None or desired > before:
            steps.append(_Step(at_us=_at(s) or 0, before=before, desired=desired, scaling_id=s.scaling_id))
        current = current if desired is None else desired
    return steps


def _groups(steps: Sequence[_Step], levels: Sequence[Level], seen: Sequence[Seen]) -> list[list[_Step]]:
    """Return steps by scale-out: one that comes before the one before it was fulfilled belongs to it."""
    groups: list[list[_Step]] = []
    for step in steps:
        last = groups[-1][-1] if groups else None
        done = None if last is None else _fulfilled(last, levels, seen)
        if last is None or (done is not None and done <= step.at_us):
            groups.append([step])
        else:
            groups[-1].append(step)
    return groups


def _fulfilled(step: _Step, levels: Sequence[Level], seen: Sequence[Seen]) -> int | None:
    """Return when a step's capacity was there: the earliest that says so of the count and its activity's end."""
    ends = [
        at
        for s in seen
        if s.anchor == "in_service" and step.scaling_id is not None and s.scaling_id == step.scaling_id
        if (at := _at(s)) is not None
    ]
    if step.desired is not None:
        ends += [level.at_us for level in levels if level.at_us >= step.at_us and level.units >= step.desired]
    return min(ends, default=None)


def _scale_out(
    group: Sequence[_Step], seen: Sequence[Seen], levels: Sequence[Level], *, since: int | None, until: int | None
) -> ScaleOut:
    first, last = group[0], group[-1]
    alarm = _latest(seen, "alarm", since, first.at_us)
    breach = _latest(seen, "breach", since, first.at_us)
    by_unit: dict[str, list[Seen]] = {}
    for s in seen:
        if s.unit_id is not None and s.anchor is not None:
            by_unit.setdefault(s.unit_id, []).append(s)
    ours = []
    for unit_id, rows in by_unit.items():
        starts = [at for s in rows if s.anchor in _LAUNCHES and (at := _at(s)) is not None]
        if starts and first.at_us - _SLACK_US <= min(starts) and (until is None or min(starts) < until):
            ours.append((min(starts), unit_id, rows))
    capacity = _fulfilled(last, levels, seen)
    arrivals = _arrivals(levels, first.at_us, until)
    counted = bool(arrivals)
    asked = 0 if last.desired is None or first.before is None else last.desired - first.before
    named = [unit_of(unit_id, first.at_us, rows) for _, unit_id, rows in sorted(ours, key=lambda o: o[:2])]
    units = named + [unit_of(None, first.at_us, ()) for _ in range(max(asked, 1) - len(named))]
    # Who is ready first is taken to be counted first.
    waiting = sorted(range(len(units)), key=lambda i: (units[i].ready_us is None, units[i].ready_us or 0, i))
    for i in [i for i in waiting if units[i].in_service_us is None]:
        if arrivals:
            lo, hi = arrivals.pop(0)
        elif capacity is not None and not counted:
            lo, hi = None, capacity
        else:
            continue
        units[i] = units[i].arrived(lo, hi)
    return ScaleOut(
        decision_us=first.at_us,
        begun_us=None if breach is None else breach.lo_us if breach.lo_us is not None else breach.hi_us,
        alarm_us=None if alarm is None else _at(alarm),
        units_before=first.before,
        desired=last.desired,
        capacity_us=capacity,
        units=tuple(units),
    )


def _arrivals(levels: Sequence[Level], begin: int, until: int | None) -> list[tuple[int | None, int]]:
    """Return one (not before, first seen) per unit by which the count rose."""
    found: list[tuple[int | None, int]] = []
    for i, level in enumerate(levels):
        if i and level.at_us >= begin and (until is None or level.at_us < until):
            found += [(level.lo_us, level.at_us)] * (level.units - levels[i - 1].units)
    return found


def _latest(seen: Sequence[Seen], anchor: str, since: int | None, until: int) -> Seen | None:
    found = [
        s
        for s in seen
        if s.anchor == anchor
        and (at := _at(s)) is not None
        and at <= until + _SLACK_US
        and (since is None or at > since)
    ]
    return max(found, key=lambda s: _at(s) or 0, default=None)


def _at(s: Seen) -> int | None:
    return s.hi_us if s.hi_us is not None else s.lo_us
