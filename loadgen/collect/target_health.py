"""Elastic Load Balancing: when a target became healthy, seen by polling. It is what lets traffic through to a unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from loadgen.collect.anchors import Signal
from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, Reading, Row
from loadgen.collect.polled import Change, Polled
from loadgen.collect.redaction import said
from loadgen.collect.rows import observation

_KEPT = 1_000


class TargetHealth:
    """Polls the target groups; `unit_of` names the unit behind a target, `None` for one that is not known (yet)."""

    name = "elbv2:target-health"
    kept_us: int | None = 0
    permissions: ClassVar = (
        Permission(
            "elbv2",
            "describe_target_health",
            ("elasticloadbalancing:DescribeTargetHealth",),
            "when the load balancer sends a unit traffic",
            optional=True,
        ),
    )

    def __init__(
        self,
        api: Api,
        period_us: int,
        *,
        groups: Callable[[], list[str]],
        unit_of: Callable[[Mapping[str, Any]], str | None],
        signals: Mapping[str, Signal],
        resource: str,
    ) -> None:
        self.period_us = period_us
        self._api = api
        self._groups, self._unit_of = groups, unit_of
        self._signals, self._resource = signals, resource
        self._states = Polled()
        self._asked_us: dict[str, int] = {}
        """Target group → when it was last asked (client time)."""
        self._unknown: list[tuple[Mapping[str, Any], Change, Mapping[str, Any], Answer]] = []

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return a row for each target whose state changed, one that is new included; an unknown unit's comes later."""
        changes, self._unknown = self._unknown[-_KEPT:], []
        for group in self._groups():
            answer = await self._api.call("describe_target_health", TargetGroupArn=group)
            before_us = self._asked_us.get(group)
            for described in answer.data.get("TargetHealthDescriptions") or ():
                target, health = described.get("Target") or {}, described.get("TargetHealth") or {}
                key = (group, target.get("Id"), target.get("Port"))
                change = self._states.first_time(key, health.get("State"), answer, before_us)
                if change is not None:
                    changes.append((target, change, health, answer))
            self._asked_us[group] = answer.sent_us
        reading = Reading()
        for item in changes:
            unit = self._unit_of(item[0])
            if unit is None:
                self._unknown.append(item)
            else:
                reading.observations.append(self._row(unit, *item))
        return reading

    def _row(
        self, unit: str, target: Mapping[str, Any], change: Change, health: Mapping[str, Any], told: Answer
    ) -> Row:
        # One that was unhealthy in between is no new unit.
        healthy = change.new == "healthy" and change.old in {None, "initial", "unavailable"}
        detail = {
            "target": target.get("Id"),
            "from": change.old,
            "to": change.new,
            "reason": said(health.get("Reason") or "") or None,
        }
        return observation(
            self._signals["target.healthy" if healthy else "target.other"],
            self._resource,
            f"{unit}:healthy" if healthy else f"{unit}:{change.old}->{change.new}:{told.received_us}",
            told,
            unit_id=unit,
            lo_us=change.lo_us,
            hi_us=change.hi_us,
            resolution_us=change.hi_us - change.lo_us,
            detail=detail if healthy else {**detail, "milestone": f"target-{change.new}"},
        )
