"""Application Auto Scaling: targets and policies as snapshots, scaling activities as observations."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from loadgen.collect.anchors import ECS, SAGEMAKER, Signal
from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, Reading, Row
from loadgen.collect.redaction import said
from loadgen.collect.rows import observation
from traces.clock import to_us
from traces.units import US_PER_S

KEPT_US = 42 * 86_400 * US_PER_S
"""Activities are kept for six weeks."""

_PERIOD_POLLS = 6
_WINDOW_US = 3_600 * US_PER_S
_NOT_SCALED = {"Failed", "Unfulfilled", "Overridden"}
_COUNT = re.compile(r"count to (\d+)")
_CAUSE = re.compile(r"monitor alarm (?P<alarm>.+?) in state \w+ triggered policy (?P<policy>.+?)\.?$")


class Scaled(NamedTuple):
    """What Application Auto Scaling scales, in its own words; events before `since_us` (endpoint time) do not count."""

    namespace: str
    resource: str
    dimension: str
    since_us: int

    @property
    def signals(self) -> Mapping[str, Signal]:
        """How its activities are filed."""
        return ECS if self.namespace == "ecs" else SAGEMAKER

    @property
    def scope(self) -> dict[str, str]:
        """The parameters that name it in a call."""
        return {
            "ServiceNamespace": self.namespace,
            "ResourceId": self.resource,
            "ScalableDimension": self.dimension,
        }


class AlarmBook:
    """The alarms that a target's policies name, once those were read: names are never built. `read` reads them."""

    def __init__(self, read: Callable[[int], Awaitable[Any]]) -> None:
        self.inward: set[str] = set()
        """Alarms that take capacity away."""
        self._read = read
        self._names: list[str] | None = None

    def learn(self, policies: Iterable[Mapping[str, Any]]) -> None:
        """Note the alarms of all policies."""
        listed = [(alarm.get("AlarmName"), policy) for policy in policies for alarm in policy.get("Alarms") or ()]
        named = {str(name): policy for name, policy in listed if name}
        self.inward = {name for name, policy in named.items() if takes_away(name, policy)}
        self._names = sorted(named)

    async def names(self, now_us: int) -> list[str]:
        """Return the alarms' names, reading the policies first where they never were. Raises `SourceError`."""
        if self._names is None:
            await self._read(now_us)
        return self._names or []


class ScalingPolicies:
    """Keeps the names of the alarms that the policies made: they are never built, always read."""

    name = "application-autoscaling:policies"
    kept_us: int | None = 0
    permissions: ClassVar = (
        Permission(
            "application-autoscaling",
            "describe_scalable_targets",
            ("application-autoscaling:DescribeScalableTargets",),
            "the limits of scaling",
        ),
        Permission(
            "application-autoscaling",
            "describe_scaling_policies",
            ("application-autoscaling:DescribeScalingPolicies",),
            "the policies, and which alarms they made",
        ),
    )

    def __init__(self, api: Api, scaled: Scaled, period_us: int) -> None:
        self.period_us = period_us * _PERIOD_POLLS
        self.alarms = AlarmBook(self.poll)
        self._api = api
        self._scaled = scaled

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return the snapshots of the targets and the policies."""
        targets = await self._api.call(
            "describe_scalable_targets",
            ServiceNamespace=self._scaled.namespace,
            ResourceIds=[self._scaled.resource],
            ScalableDimension=self._scaled.dimension,
        )
        policies: list[dict[str, Any]] = []
        async for page in self._api.pages("describe_scaling_policies", **self._scaled.scope):
            policies += page.data.get("ScalingPolicies", [])
        self.alarms.learn(policies)
        return Reading(snapshots={"scalable-targets": targets.data, "scaling-policies": {"ScalingPolicies": policies}})


def takes_away(alarm_name: str, policy: Mapping[str, Any]) -> bool:
    """Tell whether a policy's alarm only ever asks for less capacity.

    Target tracking makes a pair of alarms and names them so; a step policy says by its adjustments what it does.
    """
    if policy.get("PolicyType") == "TargetTrackingScaling":
        return "-AlarmLow-" in alarm_name
    configured = policy.get("StepScalingPolicyConfiguration") or policy
    steps = configured.get("StepAdjustments") or ([policy] if "ScalingAdjustment" in policy else [])
    return bool(steps) and all((step.get("ScalingAdjustment") or 0) < 0 for step in steps)


class ScalingActivities:
    """Reads the activities, newest first, over a sliding window: they change after they appeared."""

    name = "application-autoscaling:activity"
    kept_us: int | None = KEPT_US
    permissions: ClassVar = (
        Permission(
            "application-autoscaling",
            "describe_scaling_activities",
            ("application-autoscaling:DescribeScalingActivities",),
            "decisions, their ends, and why nothing was scaled",
        ),
    )

    def __init__(self, api: Api, scaled: Scaled, period_us: int) -> None:
        self.period_us = period_us
        self._api = api
        self._scaled = scaled
        self._complete = False
        self._open_us: int | None = None

    async def poll(self, now_us: int) -> Reading:
        """Return the rows of every activity in the window; what did not change is dropped later by its content."""
        start_us = max(self._scaled.since_us, now_us - _WINDOW_US) if self._complete else self._scaled.since_us
        if self._open_us is not None:
            start_us = min(start_us, self._open_us)
        reading = Reading()
        open_us: list[int] = []
        scope: dict[str, Any] = {**self._scaled.scope, "IncludeNotScaledActivities": True}
        async for page in self._api.pages("describe_scaling_activities", **scope):
            activities = page.data.get("ScalingActivities", [])
            older = 0
            for activity in activities:
                began = _instant(activity.get("StartTime"))
                ended = _instant(activity.get("EndTime"))
                running = activity.get("StatusCode") in {"Pending", "InProgress"}
                if began is None or (began < start_us and not running and (ended is None or ended < start_us)):
                    older += 1
                    continue
                if running:
                    open_us.append(began)
                reading.observations += activity_rows(activity, page, self._scaled.resource, self._scaled.signals)
            if older and older == len(activities):
                break
        self._open_us = min(open_us, default=None)
        self._complete = True
        return reading


def activity_rows(
    activity: Mapping[str, Any], answer: Answer, resource: str, signals: Mapping[str, Signal] = SAGEMAKER
) -> list[Row]:
    """Return the rows of one scaling activity.

    An activity that asked for another count dates a decision, whatever became of it (its `status_code` says); one that
    asked for nothing (`NotScaledReasons`), or did not end well, has a row without an anchor that tells why. The end is
    an upper bound on the moment of service: it is when the scaler noticed.
    """
    key = activity.get("ActivityId")
    began, ended = _instant(activity.get("StartTime")), _instant(activity.get("EndTime"))
    if not key or began is None:
        return []
    code, reasons = activity.get("StatusCode"), activity.get("NotScaledReasons") or []

    def row(signal: str, suffix: str, hi_us: int, **extra: Any) -> Row:
        return observation(
            signals[signal],
            resource,
            f"{key}:{suffix}",
            answer,
            scaling_id=key,
            lo_us=began,
            hi_us=hi_us,
            detail=_detail(activity) | extra,
        )

    rows = []
    if not reasons:
        rows.append(row("activity.start", "decision", began))
    if not reasons and code == "Successful" and ended is not None:
        rows.append(row("activity.end", "in_service", max(began, ended)))
    if reasons or code in _NOT_SCALED:
        rows.append(row("activity.not-scaled", "not-scaled", began, reasons=[_reason(reason) for reason in reasons]))
    return rows


def _reason(reason: Mapping[str, Any]) -> dict[str, Any]:
    return {key: said(value) if isinstance(value, str) else value for key, value in reason.items()}


def _detail(activity: Mapping[str, Any]) -> dict[str, Any]:
    description, cause = str(activity.get("Description") or ""), str(activity.get("Cause") or "")
    count, named = _COUNT.search(description), _CAUSE.search(cause)
    return {
        "description": said(description),
        "cause": said(cause),
        "status_code": activity.get("StatusCode"),
        "status_message": said(activity.get("StatusMessage") or ""),
        "desired": int(count[1]) if count else None,
        "alarm_name": named["alarm"] if named else None,
        "policy_name": named["policy"] if named else None,
    }


def _instant(value: Any) -> int | None:
    return to_us(value) if isinstance(value, datetime) else None
