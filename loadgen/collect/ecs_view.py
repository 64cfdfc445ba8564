"""How well a scale-out of an ECS service will be seen, from what its sources read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadgen.collect.ecs_service import LAST, log_streams
from loadgen.collect.platform import SEEN, Finding, PhaseView
from loadgen.collect.scaling_view import alarms, detection, scaling

_FINER = "scale on a metric that is published every 10 s"
_LOGS = "log by the awslogs driver with an awslogs-stream-prefix, so that lines of the engine date it"


def findings(snapshots: Mapping[str, Any]) -> list[Finding]:
    """Return what is set up well and what is not: scaling, alarms, the service, its task definition."""
    return [*scaling(snapshots, "the service"), *alarms(snapshots), *_service(snapshots), *_definition(snapshots)]


def phases(snapshots: Mapping[str, Any], *, probed: bool) -> list[PhaseView]:
    """Return how well each phase will be seen, in causal order; `probed` where the tasks are asked themselves."""
    service, definition = snapshots.get(LAST) or {}, snapshots.get("describe-task-definition") or {}
    logged, checked = bool(log_streams(definition)) and was_read(snapshots, "logs"), _checked(definition)
    machines = "the task's pull" if on_fargate(service) else "the machine's registration, else the task's pull"
    balanced = _balanced(service) and was_read(snapshots, "elbv2:target-health")
    registration = PhaseView("registration", "bounded", "the target's health, polled")
    if not balanced:
        advice = "a health check, or a target group, says when a task can serve"
        told = "the task's health, polled" if checked else "nothing but the task's start"
        registration = PhaseView(
            "registration", "bounded" if checked else "invisible", told, None if checked or probed else advice
        )
    return [
        *detection(snapshots, _FINER),
        PhaseView("provisioning", "measured", f"up to {machines}"),
        PhaseView("pull", "measured", "pullStartedAt and pullStoppedAt of the task, to 1 ms"),
        _by_log("download", logged),
        PhaseView("start", "measured", "startedAt of the task" + (", first line of its log" if logged else "")),
        _by_log("weights", logged),
        registration,
        recovery(probed=probed),
    ]


def recovery(*, probed: bool) -> PhaseView:
    """Return how well the time to each new unit's first answer will be seen."""
    if probed:
        return PhaseView("recovery", "measured", "responses of the replay, the engines' own counters")
    advice = "probe_port reads each unit's first answer from its engine; or let responses name the unit"
    return PhaseView("recovery", "bounded", "responses of the replay", advice)


def was_read(snapshots: Mapping[str, Any], source: str) -> bool:
    """Tell whether a source could be read; those of which nothing is known could."""
    return source in snapshots.get(SEEN, (source,))


def on_fargate(service: Mapping[str, Any]) -> bool:
    """Tell whether a service's tasks run on Fargate."""
    providers = [str(one.get("capacityProvider")) for one in service.get("capacityProviderStrategy") or ()]
    return service.get("launchType") == "FARGATE" or any(name.startswith("FARGATE") for name in providers)


def _by_log(phase: str, logged: bool) -> PhaseView:
    if logged:
        return PhaseView(phase, "measured", "lines of the engine's log")
    return PhaseView(phase, "invisible", "no log that can be read", _LOGS)


def _service(snapshots: Mapping[str, Any]) -> list[Finding]:
    service = snapshots.get(LAST)
    if service is None:
        return [Finding("service", "unknown", "it could not be read")]
    launched = "Fargate" if on_fargate(service) else "machines of the cluster"
    text = f"{service.get('runningCount')} of {service.get('desiredCount')} tasks run, on {launched}"
    found = [Finding("service", "ok", text)]
    if len(service.get("deployments") or ()) > 1:
        advice = "wait for it: the tasks that it starts look like a scale-out"
        found.append(Finding("deployment", "warn", "one is under way", advice))
    found += _machines(snapshots)
    if _balanced(service):
        found.append(Finding("load balancer", "ok", "a target group says when a task serves"))
    return found


def _machines(snapshots: Mapping[str, Any]) -> list[Finding]:
    """Return the Auto Scaling groups that the service's capacity providers launch machines from."""
    listed = (snapshots.get("describe-capacity-providers") or {}).get("capacityProviders") or ()
    found = []
    for provider in listed:
        arn = (provider.get("autoScalingGroupProvider") or {}).get("autoScalingGroupArn")
        if arn:
            group = str(arn).rpartition("/")[2]
            advice = "watch it too, as [collect.ec2], and it is seen when its machines were asked for and launched"
            found.append(Finding("capacity provider", "ok", f"{provider.get('name')}, of the group {group}", advice))
    return found


def _definition(snapshots: Mapping[str, Any]) -> list[Finding]:
    definition = snapshots.get("describe-task-definition")
    if definition is None:
        return [Finding("task definition", "unknown", "it could not be read")]
    groups = log_streams(definition)
    logs = (
        Finding("container log", "ok", ", ".join(groups)) if groups else Finding("container log", "warn", "none", _LOGS)
    )
    checked = _checked(definition)
    advice = None if checked else "one on the engine's /health dates its readiness"
    return [logs, Finding("health check", "ok" if checked else "warn", "in place" if checked else "none", advice)]


def _balanced(service: Mapping[str, Any]) -> bool:
    return any(balancer.get("targetGroupArn") for balancer in service.get("loadBalancers") or ())


def _checked(definition: Mapping[str, Any]) -> bool:
    return any(container.get("healthCheck") for container in definition.get("containerDefinitions") or ())
