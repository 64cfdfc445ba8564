"""An EC2 Auto Scaling group: its counts, its instances and their lifecycle, and its policies' alarms."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from loadgen.collect.anchors import EC2
from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, DeniedError, MalformedError, Reading, Row
from loadgen.collect.first_last import FirstAndLast
from loadgen.collect.polled import Change, Polled
from loadgen.collect.rows import observation
from loadgen.collect.scaling import AlarmBook
from traces.clock import to_us
from traces.units import US_PER_S

FIRST, LAST = "describe-group-first", "describe-group-last"
_IDS_AT_MOST: Final = 100


class Group:
    """The group under watch, and what its sources know of it in common."""

    def __init__(self, name: str, since_us: int) -> None:
        self.name = name
        self.since_us = since_us
        self.target_groups: list[str] | None = None
        self.starting: set[str] = set()
        """Instances that are to be looked at: the first ones once, others until they were seen running."""
        self.new: set[str] = set()
        """Instances that came, or were on their way, when the collection looked."""
        self.addresses: dict[str, str] = {}

    @property
    def resource(self) -> str:
        """The group, in the words of its ARN."""
        return f"autoScalingGroupName/{self.name}"


class GroupState:
    """Polls the group: counts, and the lifecycle state of each instance, those of the warm pool included."""

    name = "autoscaling:groups"
    kept_us: int | None = 0
    permissions: ClassVar = (
        Permission(
            "autoscaling",
            "describe_auto_scaling_groups",
            ("autoscaling:DescribeAutoScalingGroups",),
            "counts and lifecycle states",
        ),
        Permission(
            "autoscaling",
            "describe_warm_pool",
            ("autoscaling:DescribeWarmPool",),
            "which instances come from a warm pool",
            optional=True,
        ),
    )

    def __init__(self, api: Api, group: Group, period_us: int, before: Mapping[str, Any] | None) -> None:
        self.period_us = period_us
        self._api, self._group = api, group
        self._snapshots = FirstAndLast(FIRST, LAST, before)
        self._polled = Polled()
        self._asked_us: int | None = None
        self._pool_denied = False

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return what changed since the last poll, and the group as a snapshot."""
        answer = await self._api.call("describe_auto_scaling_groups", AutoScalingGroupNames=[self._group.name])
        found = found_group(answer, self._group.name)
        learn(self._group, found)
        reading = Reading(self._count_rows(found, answer))
        await self._read_pool(found, reading)
        for instance in found.get("Instances") or ():
            reading.observations += self._instance_rows(instance, answer, self._asked_us)
        reading.snapshots |= self._snapshots.take(found)
        self._asked_us = answer.sent_us
        return reading

    async def _read_pool(self, found: Mapping[str, Any], reading: Reading) -> None:
        if self._pool_denied or not found.get("WarmPoolConfiguration"):
            return
        try:
            answer = await self._api.call("describe_warm_pool", AutoScalingGroupName=self._group.name)
        except DeniedError as error:
            self._pool_denied = True
            reading.failures.append(error)
            return
        for instance in answer.data.get("Instances") or ():
            reading.observations += self._instance_rows(instance, answer, None)
        reading.snapshots["describe-warm-pool"] = answer.data

    def _count_rows(self, found: Mapping[str, Any], answer: Answer) -> list[Row]:
        listed = found.get("Instances") or ()
        serving = sum(1 for instance in listed if instance.get("LifecycleState") == "InService")
        counts = {"desired": found.get("DesiredCapacity"), "current": serving}
        rows = []
        for key, value in counts.items():
            change = self._polled.changed(key, value, answer)
            if change is None:
                continue
            detail = {"from": change.old, "to": change.new}
            # Behind a load balancer InService is not yet in service.
            rose = change.new > change.old and not (key == "current" and self._group.target_groups)
            field = {"desired": "DesiredCapacity", "current": "CurrentInService"}[key]
            signal = f"{key}.rose" if rose else "group.other"
            native = f"{key}:{change.old}->{change.new}:{answer.received_us}"
            rows.append(self._row(signal, native, change, answer, detail if rose else {"field": field, **detail}))
        return rows

    def _instance_rows(self, instance: Mapping[str, Any], answer: Answer, absent_us: int | None) -> list[Row]:
        unit, state = str(instance.get("InstanceId")), str(instance.get("LifecycleState"))
        if unit not in self._polled and not state.startswith("Warmed"):
            self._group.starting.add(unit)
            if absent_us is not None or state.startswith("Pending"):
                self._group.new.add(unit)
        change = self._polled.first_time(unit, state, answer, absent_us)
        if change is None:
            return []
        # Back from Standby is no new unit.
        serving = state == "InService" and (change.old is None or str(change.old).startswith(("Pending", "Warmed")))
        if serving:
            balanced = bool(self._group.target_groups)
            signal = "instance.state" if balanced else "instance.in-service"
            detail = {"milestone": "lifecycle-InService"}
            return [self._row(signal, f"{unit}:in-service", change, answer, detail, unit=unit)]
        detail = {"from": change.old, "to": state, "milestone": f"lifecycle-{state}"}
        native = f"{unit}:{change.old}->{state}:{answer.received_us}"
        return [self._row("instance.state", native, change, answer, detail, unit=unit)]

    def _row(
        self,
        signal: str,
        native: str,
        change: Change,
        answer: Answer,
        detail: Mapping[str, Any],
        *,
        unit: str | None = None,
    ) -> Row:
        return observation(
            EC2[signal],
            self._group.resource,
            native,
            answer,
            unit_id=unit,
            lo_us=change.lo_us,
            hi_us=change.hi_us,
            resolution_us=change.hi_us - change.lo_us,
            detail=detail,
        )


class Instances:
    """Reads the instances that are on their way: when EC2 launched them, and when they ran."""

    name = "ec2:describe-instances"
    kept_us: int | None = 0
    permissions: ClassVar = (
        Permission(
            "ec2",
            "describe_instances",
            ("ec2:DescribeInstances",),
            "when a machine was there",
            optional=True,
        ),
    )

    def __init__(self, api: Api, group: Group, period_us: int) -> None:
        self.period_us = period_us
        self._api, self._group = api, group
        self._polled = Polled()

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return launch times, and changes to running."""
        reading = Reading()
        ids = sorted(self._group.starting)[:_IDS_AT_MOST]
        if not ids:
            return reading
        filters = [{"Name": "instance-id", "Values": ids}]
        answer = await self._api.call("describe_instances", Filters=filters)
        for reservation in answer.data.get("Reservations") or ():
            for instance in reservation.get("Instances") or ():
                reading.observations += self._rows(instance, answer)
        return reading

    def _rows(self, instance: Mapping[str, Any], answer: Answer) -> list[Row]:
        unit, state = str(instance.get("InstanceId")), str((instance.get("State") or {}).get("Name"))
        if instance.get("PrivateIpAddress"):
            self._group.addresses[unit] = str(instance["PrivateIpAddress"])
        launched = instance.get("LaunchTime")
        launch_us = to_us(launched) if isinstance(launched, datetime) else None
        rows: list[Row] = []
        # One that runs at the first look is new only if the collection saw it come.
        first = unit not in self._polled and unit in self._group.new
        change = self._polled.changed(unit, state, answer)
        if state not in {"pending", "stopped"}:
            self._group.starting.discard(unit)
        about: dict[str, Any] = {"instance_type": instance.get("InstanceType")}

        def row(signal: str, name: str, lo_us: int | None, hi_us: int | None, **detail: Any) -> Row:
            native_id = f"{unit}:{name}"
            return observation(
                EC2[signal],
                self._group.resource,
                native_id,
                answer,
                unit_id=unit,
                lo_us=lo_us,
                hi_us=hi_us,
                detail={**about, **detail},
            )

        if launch_us is not None and launch_us >= self._group.since_us - US_PER_S:
            name = f"launch-time:{launch_us}"
            rows.append(row("instance.launch-time", name, launch_us, launch_us + US_PER_S, milestone="launch-time"))
            rows.append(row("instance.launched-after", "launched-after", launch_us, None))
        if state == "running" and (first or change is not None):
            rows.append(
                row("instance.running", "running", None if change is None else change.lo_us, answer.received_us)
            )
        return rows


class GroupPolicies:
    """Keeps the names of the alarms that call the group's policies."""

    name = "autoscaling:policies"
    kept_us: int | None = 0
    permissions: ClassVar = (
        Permission(
            "autoscaling", "describe_policies", ("autoscaling:DescribePolicies",), "which alarms call the policies"
        ),
    )
    _PERIOD_POLLS = 6

    def __init__(self, api: Api, group: Group, period_us: int) -> None:
        self.period_us = period_us * self._PERIOD_POLLS
        self.alarms = AlarmBook(self.poll)
        self._api, self._group = api, group

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return the policies as a snapshot."""
        policies: list[dict[str, Any]] = []
        async for page in self._api.pages("describe_policies", AutoScalingGroupName=self._group.name):
            policies += page.data.get("ScalingPolicies") or []
        self.alarms.learn(policies)
        return Reading(snapshots={"scaling-policies": {"ScalingPolicies": policies}})


def found_group(answer: Answer, name: str) -> Mapping[str, Any]:
    """Return the group of that name. Raises `MalformedError` where there is none."""
    for group in answer.data.get("AutoScalingGroups") or ():
        if group.get("AutoScalingGroupName") == name:
            found: Mapping[str, Any] = group
            return found
    raise MalformedError(f'autoscaling describe_auto_scaling_groups: there is no group "{name}"')


def learn(group: Group, found: Mapping[str, Any]) -> None:
    """Note what other sources need to know of a group."""
    group.target_groups = [str(arn) for arn in found.get("TargetGroupARNs") or ()]
