"""CloudWatch metrics: one batched call on aligned periods, newest minutes read again until they settle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, MalformedError, Reading, Row
from loadgen.collect.instance_metrics import Instances, instance_metrics, instance_rows
from loadgen.collect.rows import sample
from loadgen.collect.series import Metric, Query
from loadgen.collect.variant import Watched
from traces.clock import to_datetime, to_us
from traces.units import US_PER_S

_ALIGN_US = 60 * US_PER_S
_AGAIN_US = 300 * US_PER_S
# CloudWatch keeps data finer than a minute for three hours.
_KEPT_US = 3 * 3_600 * US_PER_S - _ALIGN_US
_QUERIES_PER_CALL = 500

_MODEL = "AWS/SageMaker"
_HOST = "/aws/sagemaker/Endpoints"
_COPIES = "/aws/sagemaker/InferenceComponents"

_LOAD: Final = (
    Metric(_MODEL, "Invocations", "Sum", 60),
    Metric(_MODEL, "ModelLatency", "Average", 60),
    Metric(_MODEL, "OverheadLatency", "Average", 60),
    Metric(_MODEL, "FirstChunkLatency", "Average", 60),
    Metric(_MODEL, "Invocation4XXErrors", "Sum", 60),
    Metric(_MODEL, "Invocation5XXErrors", "Sum", 60),
    Metric(_MODEL, "InvocationModelErrors", "Sum", 60),
)
VARIANT_METRICS: Final = (
    Metric(_MODEL, "ConcurrentRequestsPerModel", "Maximum", 10),
    Metric(_MODEL, "InvocationsPerInstance", "Sum", 60),
    *_LOAD,
    Metric(_HOST, "CPUUtilization", "Average", 60),
    Metric(_HOST, "MemoryUtilization", "Average", 60),
    Metric(_HOST, "DiskUtilization", "Average", 60),
    Metric(_HOST, "GPUUtilization", "Average", 60),
    Metric(_HOST, "GPUMemoryUtilization", "Average", 60),
)
COMPONENT_METRICS: Final = (
    Metric(_MODEL, "ConcurrentRequestsPerCopy", "Maximum", 10),
    Metric(_MODEL, "InvocationsPerCopy", "Sum", 60),
    # Requests that failed because there was no copy: they are demand, and what starts a scale from zero.
    Metric(_MODEL, "NoCapacityInvocationFailures", "Sum", 60),
    *_LOAD,
    Metric(_COPIES, "CPUUtilizationNormalized", "Average", 60),
    Metric(_COPIES, "MemoryUtilizationNormalized", "Average", 60),
    Metric(_COPIES, "GPUUtilizationNormalized", "Average", 60),
    Metric(_COPIES, "GPUMemoryUtilizationNormalized", "Average", 60),
)


class Metrics:
    """Reads the series of what is watched. A series that does not exist comes back empty, but is billed all the same.

    Enhanced metrics, where they are on, are read for the instances that came up since the start.
    """

    name = "cloudwatch"
    kept_us: int | None = 455 * 86_400 * US_PER_S
    permissions: ClassVar = (
        Permission("cloudwatch", "get_metric_data", ("cloudwatch:GetMetricData",), "the scaling metric and the load"),
    )

    def __init__(
        self,
        api: Api,
        watched: Watched,
        period_us: int,
        instances: Callable[[], Instances] = Instances,
        age_us: int = 0,
    ) -> None:
        self.period_us = period_us
        self._shortest_s = shortest_period_s(age_us)
        self._api = api
        self._watched = watched
        self._instances = instances
        self._complete_us: int | None = None
        self._first: dict[tuple[str, str], Row] = {}

    async def poll(self, now_us: int) -> Reading:
        """Return every datapoint since five minutes before the last complete reading."""
        since_us = self._watched.since_us
        start_us, end_us = window(since_us, since_us if self._complete_us is None else self._complete_us, now_us)
        if self._complete_us is None:
            # Coarser data is kept for longer than what later readings may ask for.
            start_us = since_us - since_us % _ALIGN_US
        instances = self._instances()
        asked = [*queries(self._watched, self._shortest_s), *instance_metrics(self._watched, instances)]
        reading = Reading(billed_metrics=len(asked))
        complete = True
        for first in range(0, len(asked), _QUERIES_PER_CALL):
            part = asked[first : first + _QUERIES_PER_CALL]
            parameters: dict[str, Any] = {
                "MetricDataQueries": [query.document for query in part],
                "StartTime": to_datetime(start_us),
                "EndTime": to_datetime(end_us),
                "ScanBy": "TimestampAscending",
            }
            async for page in self._api.pages("get_metric_data", **parameters):
                reading.samples += datapoints(page, part, self._watched.resource)
                statuses = {result.get("StatusCode") for result in page.data.get("MetricDataResults", [])}
                if statuses & {"InternalError", "Forbidden"}:
                    complete = False
                    told = ", ".join(sorted(str(status) for status in statuses))
                    reading.failures.append(MalformedError(f"cloudwatch get_metric_data: partial answer ({told})"))
        reading.observations += instance_rows(reading.samples, self._watched.resource, self._first)
        if complete:
            self._complete_us = now_us
        return reading


def window(since_us: int, complete_us: int, now_us: int) -> tuple[int, int]:
    """Return the aligned [start, end) to ask for: all that may still change, never older than the service keeps."""
    start_us = max(since_us, min(complete_us, now_us) - _AGAIN_US, now_us - _KEPT_US)
    end_us = now_us - now_us % _ALIGN_US + _ALIGN_US
    return start_us - start_us % _ALIGN_US, end_us


def shortest_period_s(age_us: int) -> int:
    """Return the finest period that is still kept of data so old.

    >>> [shortest_period_s(hours * 3600 * 1_000_000) for hours in (1, 4, 24 * 20, 24 * 100)]
    [1, 60, 300, 3600]
    """
    hours = age_us / (3_600 * US_PER_S)
    return next((period for kept, period in ((3, 1), (15 * 24, 60), (63 * 24, 300)) if hours < kept), 3_600)


def queries(watched: Watched, shortest_s: int = 1) -> list[Query]:
    """Return the queries for the watched variant, or component, with no period shorter than `shortest_s`."""
    if watched.component is not None:
        metrics: Sequence[Metric] = COMPONENT_METRICS
        dimensions = {"InferenceComponentName": watched.component}
    else:
        metrics = VARIANT_METRICS
        dimensions = {"EndpointName": watched.endpoint, "VariantName": watched.variant}
    kept = [metric._replace(period_s=max(metric.period_s, shortest_s)) for metric in metrics]
    return [Query(f"m{position}", metric, dimensions) for position, metric in enumerate(kept)]


def datapoints(answer: Answer, asked: Iterable[Query], resource: str) -> list[Row]:
    """Return the Sample rows of one page; a result with an id that was not asked for is ignored."""
    by_id = {query.id: query for query in asked}
    rows = []
    for result in answer.data.get("MetricDataResults", []):
        query = by_id.get(str(result.get("Id")))
        if query is None:
            continue
        for stamp, value in zip(result.get("Timestamps") or (), result.get("Values") or (), strict=False):
            if not isinstance(stamp, datetime):
                continue
            rows.append(
                sample(
                    "cloudwatch",
                    query.metric.name,
                    resource=resource,
                    unit_id=query.unit_id,
                    start_us=to_us(stamp),
                    period_us=query.metric.period_s * US_PER_S,
                    statistic=query.metric.statistic,
                    value=value,
                    received_us=answer.received_us,
                )
            )
    return rows
