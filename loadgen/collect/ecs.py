"""An ECS service, on Fargate or on machines of its own: its sources, and the check before the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from loadgen.collect import ecs_view
from loadgen.collect.alarms import Alarms
from loadgen.collect.anchors import ECS
from loadgen.collect.aws import Api
from loadgen.collect.base import Reading, Source, Stream
from loadgen.collect.ecs_service import LAST, ServiceConfiguration, ServiceState, found_service, learn
from loadgen.collect.ecs_tasks import EcsService, Tasks, addresses
from loadgen.collect.first_call import first_call
from loadgen.collect.logs import Logs
from loadgen.collect.platform import Context, Finding, PhaseView
from loadgen.collect.probe import Probe, probe_urls
from loadgen.collect.scaling import Scaled, ScalingActivities, ScalingPolicies
from loadgen.collect.target_health import TargetHealth

NAMESPACE = "ecs"
DIMENSION = "ecs:service:DesiredCount"


class Ecs:
    """The platform: one service of a cluster."""

    name = "ecs"
    permissions = ()

    def __init__(self, context: Context) -> None:
        section = context.section.ecs
        assert section is not None
        self._context, self._section = context, section
        self._watched = EcsService(section.cluster, section.service, context.since_us)
        self.resource = self._watched.resource

    async def open(self, stack: AsyncExitStack) -> list[str]:  # noqa: ARG002 - the port passes it
        """Read the service once."""
        watched = self._watched

        async def call() -> None:
            api = self._context.aws.api("ecs")
            answer = await api.call("describe_services", cluster=watched.cluster, services=[watched.service])
            learn(watched, found_service(answer, watched.service))

        return await first_call(call, f"ECS service {self.resource}", self._context.section.endpoint_url)

    def sources(self) -> Sequence[Source | Stream]:
        """Return all sources of the service, those that others rely on first."""
        context, watched = self._context, self._watched
        aws, poll_us = context.aws, context.section.poll_us
        ecs, scaling = aws.api("ecs"), aws.api("application-autoscaling")
        scaled = Scaled(NAMESPACE, watched.resource, DIMENSION, watched.since_us)
        policies = ScalingPolicies(scaling, scaled, poll_us)
        configuration = ServiceConfiguration(ecs, watched, poll_us)
        found: list[Source | Stream] = [
            ServiceState(ecs, watched, poll_us, context.before.get(LAST)),
            Tasks(ecs, watched, poll_us),
            configuration,
            TargetHealth(
                aws.api("elbv2"),
                poll_us,
                groups=lambda: watched.target_groups or [],
                unit_of=watched.unit_of_target,
                signals=ECS,
                resource=watched.resource,
            ),
            policies,
            ScalingActivities(scaling, scaled, poll_us),
            Alarms(aws.api("cloudwatch"), scaled, poll_us, policies.alarms),
            TaskLogs(aws.api("logs"), watched, poll_us, configuration),
        ]
        if self._section.probe_port is not None:
            found.append(Probe(context, lambda: probe_urls(self._addresses(), self._section.probe_port)))
        return found

    @property
    def arn_names(self) -> dict[str, str]:
        """What stands for the placeholders in the resources of the permissions; both may be given as ARNs."""
        watched = self._watched
        return {name: getattr(watched, name).rpartition("/")[2] for name in ("cluster", "service")}

    def findings(self, snapshots: Mapping[str, Any]) -> list[Finding]:
        """Return what is set up well and what is not."""
        return ecs_view.findings(snapshots)

    def phases(self, snapshots: Mapping[str, Any]) -> list[PhaseView]:
        """Return how well each phase will be seen."""
        return ecs_view.phases(snapshots, probed=self._section.probe_port is not None)

    def _addresses(self) -> dict[str, str]:
        return {unit: min(found) for unit, task in self._watched.tasks.items() if (found := addresses(task))}


class _Streams(NamedTuple):
    log_group: str
    variant: str
    resource: str
    since_us: int


class TaskLogs:
    """The containers' streams, once the task definition has told where they are."""

    name = "logs"
    kept_us: int | None = None
    permissions = Logs.permissions

    def __init__(self, api: Api, watched: EcsService, period_us: int, configuration: ServiceConfiguration) -> None:
        self.period_us = period_us
        self._api, self._watched, self._configuration = api, watched, configuration
        self._logs: dict[str, Logs] = {}

    async def poll(self, now_us: int) -> Reading:
        """Return what the streams of every log group tell."""
        whole = Reading()
        for group, owner in self._configuration.log_streams.items():
            if group not in self._logs:
                streams = _Streams(group, owner, self._watched.resource, self._watched.since_us)
                self._logs[group] = Logs(self._api, streams, self.period_us)
            reading = await self._logs[group].poll(now_us)
            whole.observations += reading.observations
            whole.failures += reading.failures
        return whole
