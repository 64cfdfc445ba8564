"""Which raw signal dates which anchor, per platform: a table, not code.

`verified` is false where nobody has yet held the signal's meaning against a live account: the published documents
leave it open, or only describe it. Signals that are true have published captures to go by.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from traces.units import US_PER_MS, US_PER_S


class Signal(NamedTuple):
    """How one kind of raw signal is filed in the Observation table."""

    source: str
    anchor: str | None
    method: str
    clock: str
    resolution_us: int | None = None
    verified: bool = False


_ACTIVITY = "application-autoscaling:activity"
_ALARM = "cloudwatch:alarm-history"
_ENDPOINT = "sagemaker:describe-endpoint"
_COMPONENT = "sagemaker:describe-inference-component"
_EVENTS = "eventbridge"
_TRAIL = "cloudtrail"

SAGEMAKER: Final = {
    "activity.start": Signal(_ACTIVITY, "decision", "event", "service", US_PER_MS, verified=True),
    # The scaler noticed that the change was fulfilled: an upper bound whose lag is not published.
    "activity.end": Signal(_ACTIVITY, "in_service", "event", "service", US_PER_MS, verified=True),
    "activity.not-scaled": Signal(_ACTIVITY, None, "event", "service", US_PER_MS, verified=True),
    "alarm.to-alarm": Signal(_ALARM, "alarm", "event", "service", US_PER_MS, verified=True),
    "alarm.breach": Signal(_ALARM, "breach", "event", "service", verified=True),
    "alarm.other": Signal(_ALARM, None, "event", "service", US_PER_MS, verified=True),
    "variant.updating": Signal(_ENDPOINT, "decision", "event", "service", US_PER_MS),
    "variant.shrinking": Signal(_ENDPOINT, None, "event", "service", US_PER_MS),
    "desired.rose": Signal(_ENDPOINT, "decision", "polled", "client"),
    "current.rose": Signal(_ENDPOINT, "in_service", "polled", "client"),
    "endpoint.other": Signal(_ENDPOINT, None, "polled", "client"),
    "instances.rose": Signal(_ENDPOINT, "launched", "polled", "client"),
    "copies.desired": Signal(_COMPONENT, "decision", "polled", "client"),
    "copies.current": Signal(_COMPONENT, "in_service", "polled", "client"),
    "component.other": Signal(_COMPONENT, None, "polled", "client"),
    "event.variant": Signal(_EVENTS, "decision", "event", "service", US_PER_MS),
    "event.count": Signal(_EVENTS, "in_service", "event", "service", US_PER_S),
    "event.other": Signal(_EVENTS, None, "event", "service", US_PER_S),
    "trail.capacity": Signal(_TRAIL, "decision", "event", "service", US_PER_S),
    "trail.pull": Signal(_TRAIL, "pull_started", "event", "service", US_PER_S),
    "trail.layer": Signal(_TRAIL, None, "event", "service", US_PER_S),
    "metric.first-served": Signal("cloudwatch:by-instance", "first_served", "derived", "service"),
    "metric.first-host": Signal("cloudwatch:by-instance", "launched", "derived", "service"),
    "log.first-event": Signal("logs:first-event", "container_started", "event", "instance", US_PER_MS),
    "promql.model_download_time": Signal(
        "promql:model_download_time", "download_finished", "reported", "service", US_PER_S
    ),
    "promql.container_start_time": Signal("promql:container_start_time", "ready", "reported", "service", US_PER_S),
    "promql.gpu_load_time": Signal("promql:gpu_load_time", "load_finished", "reported", "service", US_PER_S),
    "promql.e2e_duration": Signal("promql:e2e_duration", "in_service", "reported", "service", US_PER_S),
    "promql.e2e_duration.in": Signal("promql:e2e_duration", None, "reported", "service", US_PER_S),
}


_ECS_TASKS = "ecs:describe-tasks"
_ECS_SERVICE = "ecs:describe-services"
_TARGETS = "elbv2:target-health"

ECS: Final = {
    "activity.start": Signal(_ACTIVITY, "decision", "event", "service", US_PER_MS, verified=True),
    # The tasks run by then; whether they also serve by then is not published.
    "activity.end": Signal(_ACTIVITY, None, "event", "service", US_PER_MS, verified=True),
    "activity.not-scaled": Signal(_ACTIVITY, None, "event", "service", US_PER_MS, verified=True),
    "task.created": Signal(_ECS_TASKS, None, "event", "service", US_PER_MS),
    # The machine that the task waited for joined the cluster.
    "task.machine": Signal("ecs:container-instances", "launched", "event", "service", US_PER_MS),
    "task.pull-started": Signal(_ECS_TASKS, "pull_started", "event", "service", US_PER_MS),
    "task.pull-stopped": Signal(_ECS_TASKS, "pull_finished", "event", "service", US_PER_MS),
    # The whole task runs: its containers started between the end of the pull and then.
    "task.started": Signal(_ECS_TASKS, "container_started", "event", "service", US_PER_MS),
    "task.healthy": Signal(_ECS_TASKS, "ready", "polled", "client"),
    # Only where neither a load balancer nor a health check says more.
    "task.running": Signal(_ECS_TASKS, "in_service", "event", "service", US_PER_MS),
    "task.healthy-in-service": Signal(_ECS_TASKS, "in_service", "polled", "client"),
    "task.stopped": Signal(_ECS_TASKS, None, "event", "service", US_PER_MS),
    "task.other": Signal(_ECS_TASKS, None, "event", "service", US_PER_MS),
    "target.healthy": Signal(_TARGETS, "in_service", "polled", "client"),
    "target.other": Signal(_TARGETS, None, "polled", "client"),
    "desired.rose": Signal(_ECS_SERVICE, "decision", "polled", "client"),
    "service.other": Signal(_ECS_SERVICE, None, "polled", "client"),
    "service.event": Signal("ecs:service-events", None, "event", "service", US_PER_MS),
}

_EC2_ACTIVITY = "autoscaling:activity"
_EC2_GROUP = "autoscaling:groups"

EC2: Final = {
    # Both instants stand in the activity's prose, to the second.
    "activity.decision": Signal(_EC2_ACTIVITY, "decision", "event", "service", US_PER_S, verified=True),
    "activity.start": Signal(_EC2_ACTIVITY, None, "event", "service", US_PER_MS, verified=True),
    # It may hold the instance's warm-up: a bound on the moment of service, never that moment.
    "activity.end": Signal(_EC2_ACTIVITY, "in_service", "derived", "service", US_PER_MS),
    "activity.other": Signal(_EC2_ACTIVITY, None, "event", "service", US_PER_MS, verified=True),
    "activity.failed": Signal(_EC2_ACTIVITY, None, "event", "service", US_PER_MS, verified=True),
    "instance.running": Signal("ec2:describe-instances", "launched", "polled", "client"),
    # EC2 had accepted the launch (or the start of a stopped instance) by then.
    "instance.launched-after": Signal("ec2:describe-instances", "launched", "event", "service", US_PER_S),
    "instance.launch-time": Signal("ec2:describe-instances", None, "event", "service", US_PER_S),
    "instance.in-service": Signal(_EC2_GROUP, "in_service", "polled", "client"),
    "instance.state": Signal(_EC2_GROUP, None, "polled", "client"),
    "target.healthy": Signal(_TARGETS, "in_service", "polled", "client"),
    "target.other": Signal(_TARGETS, None, "polled", "client"),
    "desired.rose": Signal(_EC2_GROUP, "decision", "polled", "client"),
    "current.rose": Signal(_EC2_GROUP, "in_service", "polled", "client"),
    "group.other": Signal(_EC2_GROUP, None, "polled", "client"),
}

_KUBELET = "kubernetes:pod-events"
_PODS = "kubernetes:pods"

KUBERNETES: Final = {
    "hpa.rescaled": Signal("kubernetes:hpa-events", "decision", "event", "service", US_PER_S, verified=True),
    "hpa.scale-time": Signal("kubernetes:hpa", "decision", "event", "service", US_PER_S),
    "keda.activated": Signal("kubernetes:keda-events", "decision", "event", "service", US_PER_S),
    # The controller follows whoever asked for another count.
    "deployment.scaled": Signal("kubernetes:deployment-events", "decision", "event", "service", US_PER_S),
    "deployment.ready": Signal("kubernetes:deployment", "in_service", "event", "client"),
    "deployment.other": Signal("kubernetes:deployment", None, "event", "client"),
    "event.other": Signal("kubernetes:events", None, "event", "service", US_PER_S),
    "pod.created": Signal(_PODS, None, "event", "service", US_PER_S, verified=True),
    "pod.scheduled": Signal(_PODS, "launched", "event", "service", US_PER_S, verified=True),
    "pod.container-started": Signal(_PODS, "container_started", "event", "node", US_PER_S, verified=True),
    "pod.download-started": Signal(_PODS, "download_started", "event", "node", US_PER_S, verified=True),
    "pod.download-finished": Signal(_PODS, "download_finished", "event", "node", US_PER_S, verified=True),
    "pod.ready": Signal(_PODS, "ready", "event", "node", US_PER_S, verified=True),
    "pod.ready-in-service": Signal(_PODS, "in_service", "event", "node", US_PER_S, verified=True),
    # With a Service: a pod is sent traffic after it is ready.
    "pod.ready-before-service": Signal(_PODS, "in_service", "event", "node", US_PER_S),
    "pod.other": Signal(_PODS, None, "event", "service", US_PER_S, verified=True),
    "pull.started": Signal(_KUBELET, "pull_started", "event", "node", US_PER_S, verified=True),
    "pull.finished": Signal(_KUBELET, "pull_finished", "event", "node", US_PER_S, verified=True),
    "pull.length": Signal(_KUBELET, "pull_finished", "reported", "node", US_PER_MS, verified=True),
    "pull.other": Signal(_KUBELET, None, "event", "node", US_PER_S, verified=True),
    "endpoint.ready": Signal("kubernetes:endpointslices", "in_service", "event", "client"),
    "node.stamp": Signal("kubernetes:nodes", None, "event", "service", US_PER_S, verified=True),
    "node.allocatable": Signal("kubernetes:nodes", None, "event", "client"),
    "autoscaler.status": Signal("kubernetes:autoscaler-status", None, "event", "service", US_PER_S),
    "autoscaler.count": Signal("kubernetes:autoscaler-status", None, "event", "client"),
    "nodeclaim.stamp": Signal("kubernetes:nodeclaims", None, "event", "service", US_PER_S),
}

PROBE: Final = {
    "ready": Signal("probe", "ready", "polled", "client", verified=True),
    "in-service": Signal("probe", "in_service", "polled", "client", verified=True),
    "first-served": Signal("probe:metrics", "first_served", "polled", "client", verified=True),
    "stage": Signal("probe", None, "polled", "client", verified=True),
}


def log_pattern(anchor: str | None) -> Signal:
    """Return how a matched log line is filed; its anchor comes from `log_patterns.toml`."""
    return Signal("logs:pattern", anchor, "event", "instance", US_PER_MS)
