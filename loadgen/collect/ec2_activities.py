"""EC2 Auto Scaling's activities: one per instance, with both times of its cause inside the prose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec

from loadgen.collect.anchors import EC2
from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, Reading, Row
from loadgen.collect.ec2_groups import Group
from loadgen.collect.kube_times import stamp
from loadgen.collect.redaction import said
from loadgen.collect.rows import observation
from loadgen.collect.scaling import KEPT_US
from traces.clock import to_us
from traces.units import US_PER_S

_WINDOW_US: Final = 3_600 * US_PER_S
_FAILED: Final = {"Failed", "Cancelled"}
_INSTANCE: Final = re.compile(r"\bi-[0-9a-f]{8,}\b")
_SENTENCE: Final = re.compile(r"At (?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) (?P<what>.*?)(?=\s+At \d{4}-\d\d-\d\dT|$)")
_ALARM: Final = re.compile(
    r"a monitor alarm (?P<alarm>.+?) in state ALARM triggered policy (?P<policy>.+?) "
    r"changing the desired capacity from (?P<from>\d+) to (?P<to>\d+)"
)
_OTHER: Final = re.compile(r"changing the desired capacity from (?P<from>\d+) to (?P<to>\d+)")


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """What a cause's prose says: when the capacity was changed by whom, and when this instance was started for it."""

    decided_us: int | None = None
    before: int | None = None
    desired: int | None = None
    alarm: str | None = None
    policy: str | None = None
    started_us: int | None = None


class Activities:
    """Reads the activities, newest first, over a sliding window: they change after they appeared."""

    name = "autoscaling:activity"
    kept_us: int | None = KEPT_US
    permissions: ClassVar = (
        Permission(
            "autoscaling",
            "describe_scaling_activities",
            ("autoscaling:DescribeScalingActivities",),
            "decisions, launches, their ends and failures",
        ),
    )

    def __init__(self, api: Api, group: Group, period_us: int) -> None:
        self.period_us = period_us
        self._api, self._group = api, group
        self._open_us: int | None = None

    async def poll(self, now_us: int) -> Reading:
        """Return the rows of every activity in the window; what did not change is dropped later by its content."""
        start_us = max(self._group.since_us, now_us - _WINDOW_US)
        start_us = start_us if self._open_us is None else min(start_us, self._open_us)
        reading, running = Reading(), []
        async for page in self._api.pages("describe_scaling_activities", AutoScalingGroupName=self._group.name):
            listed = page.data.get("Activities") or []
            older = 0
            for activity in listed:
                began, ended = _instant(activity.get("StartTime")), _instant(activity.get("EndTime"))
                if began is None or (began < start_us and ended is not None and ended < start_us):
                    older += 1
                    continue
                if ended is None:
                    running.append(began)
                reading.observations += activity_rows(
                    activity, page, self._group.resource, balanced=bool(self._group.target_groups)
                )
            if older and older == len(listed):
                break
        self._open_us = min(running, default=None)
        return reading


def activity_rows(activity: Mapping[str, Any], answer: Answer, resource: str, *, balanced: bool) -> list[Row]:
    """Return the rows of one activity.

    All instances of one decision state the same first time: it is one decision, and one row. The activity's end may
    hold the instance's warm-up, so it only bounds the moment of service; of a group behind a load balancer (`balanced`)
    not even that.
    """
    key, began = activity.get("ActivityId"), _instant(activity.get("StartTime"))
    if not key or began is None:
        return []
    cause = cause_of(str(activity.get("Cause") or ""))
    description = str(activity.get("Description") or "")
    found = _INSTANCE.search(description)
    unit = found[0] if found and description.startswith("Launching") else None
    rows = _decision(cause, answer, resource)
    about = {
        "description": said(description),
        "status_code": activity.get("StatusCode"),
        "started_for_capacity": cause.started_us,
        "from_warm_pool": "warm pool" in description.lower(),
        "scaling_id": _scaling_id(cause),
    }
    ended, code = _instant(activity.get("EndTime")), activity.get("StatusCode")

    def row(signal: str, suffix: str, lo_us: int, hi_us: int, **detail: Any) -> Row:
        return observation(
            EC2[signal],
            resource,
            f"{key}:{suffix}",
            answer,
            unit_id=unit,
            lo_us=lo_us,
            hi_us=hi_us,
            detail={**about, **detail},
        )

    kind = "launch" if unit else "terminate" if description.startswith("Terminating") else "other"
    rows.append(row("activity.start", "start", began, began, milestone=f"{kind}-started"))
    if code in _FAILED:
        message = said(activity.get("StatusMessage") or "")
        rows.append(row("activity.failed", "not-scaled", began, ended or began, status_message=message))
    elif ended is not None and unit is not None and not balanced:
        rows.append(row("activity.end", "end", began, max(began, ended)))
    elif ended is not None:
        rows.append(row("activity.other", "ended", ended, ended, milestone=f"{kind}-ended"))
    return rows


def cause_of(text: str) -> Cause:
    """Return what a cause says, as far as its sentences have a known form.

    >>> cause_of("At 2026-07-01T10:00:00Z a monitor alarm high in state ALARM triggered policy p changing the desired "
    ...          "capacity from 1 to 3.  At 2026-07-01T10:00:09Z an instance was started in response to a difference "
    ...          "between desired and actual capacity, increasing the capacity from 1 to 3.").desired
    3
    """
    found: dict[str, Any] = {}
    for sentence in _SENTENCE.finditer(text):
        at, what = stamp(sentence["at"]), sentence["what"]
        if at is None:
            continue
        alarm, other = _ALARM.search(what), _OTHER.search(what)
        if alarm is not None or other is not None:
            told = (alarm or other).groupdict()  # type: ignore[union-attr]
            found |= {"decided_us": at.lo_us, "before": int(told["from"]), "desired": int(told["to"])}
            found |= {"alarm": told.get("alarm"), "policy": told.get("policy")}
        elif "an instance was started" in what or "instances were started" in what:
            found["started_us"] = at.lo_us
    return Cause(**found)


def _decision(cause: Cause, answer: Answer, resource: str) -> list[Row]:
    if cause.decided_us is None:
        return []
    key = _scaling_id(cause)
    detail = {"from": cause.before, "desired": cause.desired, "alarm_name": cause.alarm, "policy_name": cause.policy}
    return [
        observation(
            EC2["activity.decision"],
            resource,
            f"{key}:decision",
            answer,
            scaling_id=key,
            lo_us=cause.decided_us,
            hi_us=cause.decided_us + US_PER_S,
            detail=detail,
        )
    ]


def _scaling_id(cause: Cause) -> str | None:
    if cause.decided_us is None:
        return None
    return f"{cause.before}->{cause.desired}@{cause.decided_us // US_PER_S}"


def _instant(value: Any) -> int | None:
    return to_us(value) if isinstance(value, datetime) else None
