"""ECS tasks of a service: every instant that DescribeTasks states, and the changes of health that it does not date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

from loadgen.collect.anchors import ECS
from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, DeniedError, MalformedError, Reading, Row
from loadgen.collect.polled import Polled
from loadgen.collect.redaction import said
from loadgen.collect.rows import observation
from traces.clock import to_us

_PER_CALL: Final = 100
_STOPPED_POLLS: Final = 6
_TASKS: Final = "arn:{partition}:ecs:{region}:{account}:task/{cluster}/*"
_MACHINES: Final = "arn:{partition}:ecs:{region}:{account}:container-instance/{cluster}/*"
_STAMPS: Final = {
    "createdAt": "task.created",
    "pullStartedAt": "task.pull-started",
    "pullStoppedAt": "task.pull-stopped",
    "connectivityAt": "task.other",
    "stoppingAt": "task.other",
    "executionStoppedAt": "task.other",
    "stoppedAt": "task.stopped",
}


class EcsService:
    """The service under watch, and what its sources know of it in common.

    `target_groups` is `None` until the service has been read; then the health of its targets says what is in service.
    """

    def __init__(self, cluster: str, service: str, since_us: int) -> None:
        self.cluster = cluster
        self.service = service
        self.since_us = since_us
        self.target_groups: list[str] | None = None
        self.task_definition: str | None = None
        self.providers: list[str] = []
        """Capacity providers of the service, by name."""
        self.checked: bool | None = None
        """Whether a container has a health check; `None` until the task definition has been read."""
        self.tasks: dict[str, Mapping[str, Any]] = {}
        """Task id → the task as it was last described, as long as it runs."""
        self.machines: dict[str, Mapping[str, Any]] = {}
        """ARN → container instance."""

    @property
    def resource(self) -> str:
        """The service in Application Auto Scaling's words."""
        return f"service/{self.cluster}/{self.service}"

    def unit_of_target(self, target: Mapping[str, Any]) -> str | None:
        """Return the task behind a load balancer's target: by its own address, or by its machine and port."""
        name, port = target.get("Id"), target.get("Port")
        for unit, task in self.tasks.items():
            if name in addresses(task):
                return unit
            machine = self.machines.get(str(task.get("containerInstanceArn")), {})
            if name == machine.get("ec2InstanceId") and port in _host_ports(task):
                return unit
        return None


class Tasks:
    """Reads the service's tasks, running and lately stopped, and the machines that they were placed on."""

    name = "ecs:describe-tasks"
    kept_us: int | None = 3_600_000_000
    permissions: ClassVar = (
        Permission("ecs", "list_tasks", ("ecs:ListTasks",), "which tasks there are"),
        Permission("ecs", "describe_tasks", ("ecs:DescribeTasks",), "pull, start and health of each", (_TASKS,)),
        Permission(
            "ecs",
            "describe_container_instances",
            ("ecs:DescribeContainerInstances",),
            "when a machine joined the cluster (EC2 launch type)",
            (_MACHINES,),
            optional=True,
        ),
    )

    def __init__(self, api: Api, watched: EcsService, period_us: int) -> None:
        self.period_us = period_us
        self._api = api
        self._watched = watched
        self._health = Polled()
        self._polls = 0
        self._machines_denied = False

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return the rows of every task that is not older than the collection."""
        reading = Reading()
        arns = await self._arns("RUNNING")
        if self._polls % _STOPPED_POLLS == 0:
            arns += [arn for arn in await self._arns("STOPPED") if arn not in arns]
        self._polls += 1
        described: list[tuple[Mapping[str, Any], Answer]] = []
        for first in range(0, len(arns), _PER_CALL):
            scope = {"cluster": self._watched.cluster, "tasks": arns[first : first + _PER_CALL]}
            answer = await self._api.call("describe_tasks", **scope)
            described += [(task, answer) for task in answer.data.get("tasks") or ()]
        await self._read_machines([task for task, _ in described], reading)
        running = {unit_of(task): task for task, _ in described if task.get("lastStatus") != "STOPPED"}
        self._watched.tasks = running
        for task, answer in described:
            reading.observations += task_rows(task, answer, self._watched)
            reading.observations += self._health_rows(task, answer)
        return reading

    async def _arns(self, status: str) -> list[str]:
        found: list[str] = []
        scope = {"cluster": self._watched.cluster, "serviceName": self._watched.service, "desiredStatus": status}
        async for page in self._api.pages("list_tasks", "nextToken", **scope):
            found += page.data.get("taskArns") or ()
        return found

    async def _read_machines(self, tasks: Sequence[Mapping[str, Any]], reading: Reading) -> None:
        known = self._watched.machines
        arns = sorted({str(t["containerInstanceArn"]) for t in tasks if t.get("containerInstanceArn")} - known.keys())
        if not arns or self._machines_denied:
            return
        scope = {"cluster": self._watched.cluster, "containerInstances": arns[:_PER_CALL]}
        try:
            answer = await self._api.call("describe_container_instances", **scope)
        except (DeniedError, MalformedError) as error:
            self._machines_denied = isinstance(error, DeniedError)
            reading.failures.append(error)
            return
        for machine in answer.data.get("containerInstances") or ():
            known[str(machine.get("containerInstanceArn"))] = machine

    def _health_rows(self, task: Mapping[str, Any], answer: Answer) -> list[Row]:
        unit, health = unit_of(task), task.get("healthStatus")
        change = self._health.changed(unit, health, answer)
        if change is None or health != "HEALTHY":
            return []
        # Without a load balancer a healthy task is in service; with one the targets' health says when.
        # The engine was ready before the check noticed.
        bounds: dict[str, int | None] = {"task.healthy": None}
        if self._watched.target_groups == []:
            bounds["task.healthy-in-service"] = change.lo_us
        return [
            observation(
                ECS[signal],
                self._watched.resource,
                f"{unit}:{signal.partition('.')[2]}",
                answer,
                unit_id=unit,
                lo_us=lo_us,
                hi_us=change.hi_us,
                resolution_us=change.hi_us - change.lo_us,
            )
            for signal, lo_us in bounds.items()
        ]


def task_rows(task: Mapping[str, Any], answer: Answer, watched: EcsService) -> list[Row]:
    """Return the rows of the instants that a task states, to the millisecond; none of one from before the collection.

    A pull that is not stated, or took no time, was of an image that was there already or is fetched while it runs.
    """
    created = _instant(task.get("createdAt"))
    if created is None or created < watched.since_us:
        return []
    unit = unit_of(task)
    pulled = [_instant(task.get(key)) for key in ("pullStartedAt", "pullStoppedAt")]
    about = {
        "launch_type": task.get("launchType"),
        "capacity_provider": task.get("capacityProviderName"),
        "platform_version": task.get("platformVersion"),
        "mode": pull_mode(pulled[0], pulled[1]),
    }

    def row(signal: str, name: str, lo_us: int, hi_us: int, **detail: Any) -> Row:
        native_id = f"{unit}:{name}"
        return observation(
            ECS[signal],
            watched.resource,
            native_id,
            answer,
            unit_id=unit,
            lo_us=lo_us,
            hi_us=hi_us,
            detail={**about, **detail},
        )

    rows = []
    for key, signal in _STAMPS.items():
        at = _instant(task.get(key))
        if at is not None:
            detail = {"milestone": f"task-{key.removesuffix('At')}"} if ECS[signal].anchor is None else {}
            if signal == "task.stopped":
                reason = said(task.get("stoppedReason") or "")
                detail |= {"stop_code": str(task.get("stopCode")), "reason": reason}
            rows.append(row(signal, key, at, at, **detail))
    started = _instant(task.get("startedAt"))
    if started is not None:
        rows.append(row("task.started", "startedAt", min(pulled[1] or created, started), started, **_images(task)))
        if watched.target_groups == [] and watched.checked is False:
            rows.append(row("task.running", "running", started, started))
    machine = watched.machines.get(str(task.get("containerInstanceArn")), {})
    registered = _instant(machine.get("registeredAt"))
    # One that was there before the task was asked for is no part of its start.
    if registered is not None and registered >= created:
        rows.append(row("task.machine", "machine", registered, registered, instance_id=machine.get("ec2InstanceId")))
    return rows


def pull_mode(started_us: int | None, stopped_us: int | None) -> str:
    """Return how the image came, as far as the task's stamps tell.

    >>> pull_mode(None, None), pull_mode(0, 400_000), pull_mode(0, 90_000_000), pull_mode(0, None)
    ('unknown', 'cached-or-lazy', 'pulled', 'pulling')
    """
    if started_us is None:
        return "unknown"
    if stopped_us is None:
        return "pulling"
    return "cached-or-lazy" if stopped_us - started_us < 1_000_000 else "pulled"


def unit_of(task: Mapping[str, Any]) -> str:
    """Return a task's id, which is also how its log streams end.

    >>> unit_of({"taskArn": "arn:aws:ecs:us-east-1:1:task/c/0af1"})
    '0af1'
    """
    return str(task.get("taskArn")).rpartition("/")[2]


def addresses(task: Mapping[str, Any]) -> set[str]:
    """Return a task's own private addresses (network mode `awsvpc`)."""
    found = {
        str(detail.get("value"))
        for attachment in task.get("attachments") or ()
        for detail in attachment.get("details") or ()
        if detail.get("name") == "privateIPv4Address"
    }
    for container in task.get("containers") or ():
        found |= {str(i.get("privateIpv4Address")) for i in container.get("networkInterfaces") or ()}
    return found - {"None"}


def _host_ports(task: Mapping[str, Any]) -> set[int]:
    bindings = (b for c in task.get("containers") or () for b in c.get("networkBindings") or ())
    return {int(binding["hostPort"]) for binding in bindings if binding.get("hostPort")}


def _images(task: Mapping[str, Any]) -> dict[str, Any]:
    return {"image_digests": [c.get("imageDigest") for c in task.get("containers") or ()]}


def _instant(value: Any) -> int | None:
    return to_us(value) if isinstance(value, datetime) else None
