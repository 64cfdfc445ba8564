"""An ECS service: counts, events, what it runs on, and where its containers log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from loadgen.collect.anchors import ECS
from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, DeniedError, MalformedError, Reading, Row
from loadgen.collect.ecs_tasks import EcsService
from loadgen.collect.first_last import FirstAndLast
from loadgen.collect.polled import Polled
from loadgen.collect.redaction import said
from loadgen.collect.rows import observation
from traces.clock import to_us

FIRST, LAST = "describe-service-first", "describe-service-last"
_SERVICE_ARN: Final = "arn:{partition}:ecs:{region}:{account}:service/{cluster}/{service}"
_EVENTS: Final = {
    "has started": "tasks-started",
    "unable to place a task": "not-placed",
    "registered": "targets-registered",
    "deregistered": "targets-deregistered",
    "has reached a steady state": "steady",
    "is unhealthy in": "target-unhealthy",
    "has stopped": "tasks-stopped",
    "unable to consistently start": "start-failing",
}


class ServiceState:
    """Polls the service: its counts, and the last hundred of its events."""

    name = "ecs:describe-services"
    kept_us: int | None = 0
    permissions: ClassVar = (
        Permission(
            "ecs",
            "describe_services",
            ("ecs:DescribeServices",),
            "counts and events of the service",
            (_SERVICE_ARN,),
        ),
    )

    def __init__(self, api: Api, watched: EcsService, period_us: int, before: Mapping[str, Any] | None) -> None:
        self.period_us = period_us
        self._api = api
        self._watched = watched
        self._snapshots = FirstAndLast(FIRST, LAST, before)
        self._counts = Polled()

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return what changed, events that are new, and the service as a snapshot."""
        watched = self._watched
        answer = await self._api.call("describe_services", cluster=watched.cluster, services=[watched.service])
        service = found_service(answer, watched.service)
        learn(watched, service)
        rows = self._count_rows(service, answer)
        for event in service.get("events") or ():
            rows += event_rows(event, answer, watched)
        kept = {key: value for key, value in service.items() if key != "events"}
        return Reading(rows, snapshots=self._snapshots.take(kept))

    def _count_rows(self, service: Mapping[str, Any], answer: Answer) -> list[Row]:
        rows = []
        for key in ("desiredCount", "runningCount"):
            change = self._counts.changed(key, service.get(key), answer)
            if change is None or change.old is None or change.new is None:
                continue
            detail = {"from": change.old, "to": change.new}
            rose = key == "desiredCount" and change.new > change.old
            rows.append(
                observation(
                    ECS["desired.rose" if rose else "service.other"],
                    self._watched.resource,
                    f"{key}:{change.old}->{change.new}:{answer.received_us}",
                    answer,
                    lo_us=change.lo_us,
                    hi_us=change.hi_us,
                    resolution_us=change.hi_us - change.lo_us,
                    detail=detail
                    if rose
                    else {"field": f"Current.{key}" if change.new < change.old else key, **detail},
                )
            )
        return rows


class ServiceConfiguration:
    """Reads the task definition and the capacity providers, now and then: a deployment changes both."""

    name = "ecs:configuration"
    kept_us: int | None = 0
    permissions: ClassVar = (
        Permission(
            "ecs", "describe_task_definition", ("ecs:DescribeTaskDefinition",), "image, health check, log group"
        ),
        Permission(
            "ecs",
            "describe_capacity_providers",
            ("ecs:DescribeCapacityProviders",),
            "the Auto Scaling group beneath",
            optional=True,
        ),
    )
    _PERIOD_POLLS = 12

    def __init__(self, api: Api, watched: EcsService, period_us: int) -> None:
        self.period_us = period_us * self._PERIOD_POLLS
        self._api = api
        self._watched = watched
        self._denied = False
        self.log_streams: dict[str, str] = {}
        """Log group → the part of its streams' names before the task's id."""

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return both as snapshots."""
        reading = Reading()
        name = self._watched.task_definition
        if name is None:
            return reading
        answer = await self._api.call("describe_task_definition", taskDefinition=name)
        definition = answer.data.get("taskDefinition") or {}
        self.log_streams = log_streams(definition)
        self._watched.checked = any(c.get("healthCheck") for c in definition.get("containerDefinitions") or ())
        reading.snapshots["describe-task-definition"] = with_environments(definition)
        if self._watched.providers and not self._denied:
            try:
                # Without names it would list those of everybody in the account.
                answer = await self._api.call("describe_capacity_providers", capacityProviders=self._watched.providers)
                reading.snapshots["describe-capacity-providers"] = answer.data
            except DeniedError as error:
                self._denied = True
                reading.failures.append(error)
        return reading


def found_service(answer: Answer, name: str) -> Mapping[str, Any]:
    """Return the service of that name. Raises `MalformedError` where there is none."""
    for service in answer.data.get("services") or ():
        if name in {service.get("serviceName"), service.get("serviceArn")}:
            found: Mapping[str, Any] = service
            return found
    raise MalformedError(f'ecs describe_services: there is no service "{name}"')


def learn(watched: EcsService, service: Mapping[str, Any]) -> None:
    """Note what other sources need to know of a service."""
    groups = (balancer.get("targetGroupArn") for balancer in service.get("loadBalancers") or ())
    watched.target_groups = [str(group) for group in groups if group]
    watched.task_definition = service.get("taskDefinition")
    strategy = (one.get("capacityProvider") for one in service.get("capacityProviderStrategy") or ())
    watched.providers = sorted({str(name) for name in strategy if name})


def event_rows(event: Mapping[str, Any], answer: Answer, watched: EcsService) -> list[Row]:
    """Return a fact for a service event, with its kind where the wording is a known one."""
    at, message = event.get("createdAt"), str(event.get("message") or "")
    if not isinstance(at, datetime) or to_us(at) < watched.since_us or not event.get("id"):
        return []
    kind = next((kind for words, kind in _EVENTS.items() if words in message), "other")
    detail = {"milestone": f"service-{kind}", "message": said(message)}
    return [
        observation(ECS["service.event"], watched.resource, str(event["id"]), answer, at_us=to_us(at), detail=detail)
    ]


def log_streams(definition: Mapping[str, Any]) -> dict[str, str]:
    """Return where the containers log: group → `prefix/container`, before the task's id in a stream's name."""
    found = {}
    for container in definition.get("containerDefinitions") or ():
        options = (container.get("logConfiguration") or {}).get("options") or {}
        group, prefix = options.get("awslogs-group"), options.get("awslogs-stream-prefix")
        if group and prefix and group not in found:
            found[str(group)] = f"{prefix}/{container.get('name')}"
    return found


def with_environments(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task definition whose containers state their environment as a map, which is how it is redacted."""
    containers = [
        {**container, "Environment": {str(v.get("name")): v.get("value") for v in container.get("environment") or ()}}
        for container in definition.get("containerDefinitions") or ()
    ]
    return {**definition, "containerDefinitions": containers}
