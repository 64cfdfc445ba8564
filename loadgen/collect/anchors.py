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


def log_pattern(anchor: str | None) -> Signal:
    """Return how a matched log line is filed; its anchor comes from `log_patterns.toml`."""
    return Signal("logs:pattern", anchor, "event", "instance", US_PER_MS)
