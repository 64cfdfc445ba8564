"""CloudWatch metrics of a variant: one batched call on aligned periods, newest minutes read again until they settle."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple

from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, MalformedError, Reading, Row
from loadgen.collect.rows import sample
from loadgen.collect.variant import Watched
from traces.clock import to_datetime, to_us
from traces.units import US_PER_S

_ALIGN_US = 60 * US_PER_S
_AGAIN_US = 300 * US_PER_S
# CloudWatch keeps data finer than a minute for three hours.
_KEPT_US = 3 * 3_600 * US_PER_S - _ALIGN_US


class Metric(NamedTuple):
    """One series to ask for."""

    namespace: str
    name: str
    statistic: str
    period_s: int


_MODEL = "AWS/SageMaker"
_HOST = "/aws/sagemaker/Endpoints"

METRICS: Final = (
    Metric(_MODEL, "ConcurrentRequestsPerModel", "Maximum", 10),
    Metric(_MODEL, "Invocations", "Sum", 60),
    Metric(_MODEL, "InvocationsPerInstance", "Sum", 60),
    Metric(_MODEL, "ModelLatency", "Average", 60),
    Metric(_MODEL, "OverheadLatency", "Average", 60),
    Metric(_MODEL, "FirstChunkLatency", "Average", 60),
    Metric(_MODEL, "Invocation4XXErrors", "Sum", 60),
    Metric(_MODEL, "Invocation5XXErrors", "Sum", 60),
    Metric(_MODEL, "InvocationModelErrors", "Sum", 60),
    Metric(_HOST, "CPUUtilization", "Average", 60),
    Metric(_HOST, "MemoryUtilization", "Average", 60),
    Metric(_HOST, "DiskUtilization", "Average", 60),
    Metric(_HOST, "GPUUtilization", "Average", 60),
    Metric(_HOST, "GPUMemoryUtilization", "Average", 60),
)


class Metrics:
    """Reads the variant's series. A series that does not exist comes back empty and costs nothing."""

    name = "cloudwatch"
    kept_us: int | None = 15 * 86_400 * US_PER_S
    permissions: ClassVar = (
        Permission("cloudwatch", "get_metric_data", ("cloudwatch:GetMetricData",), "the scaling metric and the load"),
    )

    def __init__(self, api: Api, watched: Watched, period_us: int) -> None:
        self.period_us = period_us
        self._api = api
        self._watched = watched
        self._complete_us = watched.since_us
        self._queries = queries(watched.endpoint, watched.variant)

    async def poll(self, now_us: int) -> Reading:
        """Return every datapoint since five minutes before the last complete reading."""
        start_us, end_us = window(self._watched.since_us, self._complete_us, now_us)
        reading = Reading()
        parameters: dict[str, Any] = {
            "MetricDataQueries": self._queries,
            "StartTime": to_datetime(start_us),
            "EndTime": to_datetime(end_us),
            "ScanBy": "TimestampAscending",
        }
        complete = True
        async for page in self._api.pages("get_metric_data", **parameters):
            reading.samples += datapoints(page, self._watched.resource)
            statuses = {result.get("StatusCode") for result in page.data.get("MetricDataResults", [])}
            if statuses & {"InternalError", "Forbidden"}:
                complete = False
                told = ", ".join(sorted(str(status) for status in statuses))
                reading.failures.append(MalformedError(f"cloudwatch get_metric_data: partial answer ({told})"))
        if complete:
            self._complete_us = now_us
        return reading


def window(since_us: int, complete_us: int, now_us: int) -> tuple[int, int]:
    """Return the aligned [start, end) to ask for: all that may still change, never older than the service keeps."""
    start_us = max(since_us, min(complete_us, now_us) - _AGAIN_US, now_us - _KEPT_US)
    end_us = now_us - now_us % _ALIGN_US + _ALIGN_US
    return start_us - start_us % _ALIGN_US, end_us


def queries(endpoint: str, variant: str) -> list[dict[str, Any]]:
    """Return the MetricDataQueries of one call; the id of each is `m<position in METRICS>`."""
    dimensions = [{"Name": "EndpointName", "Value": endpoint}, {"Name": "VariantName", "Value": variant}]
    return [
        {
            "Id": f"m{position}",
            "MetricStat": {
                "Metric": {"Namespace": metric.namespace, "MetricName": metric.name, "Dimensions": dimensions},
                "Period": metric.period_s,
                "Stat": metric.statistic,
            },
            "ReturnData": True,
        }
        for position, metric in enumerate(METRICS)
    ]


def datapoints(answer: Answer, resource: str) -> list[Row]:
    """Return the Sample rows of one page; a result with an id that was not asked for is ignored."""
    asked = {f"m{position}": metric for position, metric in enumerate(METRICS)}
    rows = []
    for result in answer.data.get("MetricDataResults", []):
        metric = asked.get(str(result.get("Id")))
        if metric is None:
            continue
        for stamp, value in zip(result.get("Timestamps") or (), result.get("Values") or (), strict=False):
            if not isinstance(stamp, datetime):
                continue
            rows.append(
                sample(
                    "cloudwatch",
                    metric.name,
                    resource=resource,
                    start_us=to_us(stamp),
                    period_us=metric.period_s * US_PER_S,
                    statistic=metric.statistic,
                    value=value,
                    received_us=answer.received_us,
                )
            )
    return rows
