"""Enhanced metrics: the same series by instance, and what the first datapoint of a new one tells.

An instance is learnt from its log stream and asked for by name: the list of metrics lags by many minutes. Only the
instances that came up since the start are asked for; each series is billed at every reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from loadgen.collect.anchors import SAGEMAKER
from loadgen.collect.base import Answer, Row
from loadgen.collect.rows import observation
from loadgen.collect.series import Metric, Query
from loadgen.collect.variant import Watched
from traces.clock import to_us
from traces.units import US_PER_S

_HOST, _MODEL = "/aws/sagemaker/Endpoints", "AWS/SageMaker"
_COPY = re.compile(r"(i-[0-9a-f]+)-(.+)")

_ALIVE, _ARRIVED, _ANSWERED = "CPUUtilization", "Invocations", "ModelLatency"
_SERIES: Final = (
    (_MODEL, _ARRIVED, "Sum"),
    (_MODEL, _ANSWERED, "Average"),
    (_HOST, _ALIVE, "Average"),
    (_HOST, "DiskUtilization", "Average"),
    (_HOST, "GPUMemoryUtilization", "Average"),
)


class Instances(NamedTuple):
    """The units to read one by one, and how often the platform publishes; none where enhanced metrics are off."""

    units: Sequence[str] = ()
    publish_s: int = 60


def instance_metrics(watched: Watched, instances: Instances) -> list[Query]:
    """Return the queries for each unit; a unit that is a copy is named by its instance and its container."""
    found = []
    base = {"EndpointName": watched.endpoint, "VariantName": watched.variant}
    for place, unit in enumerate(instances.units):
        dimensions = {**base, "InstanceId": unit}
        copy = _COPY.fullmatch(unit)
        if watched.component is not None and copy is not None:
            dimensions = {
                "InferenceComponentName": watched.component,
                "InstanceId": copy[1],
                "ContainerId": copy[2],
            }
        for position, (namespace, name, statistic) in enumerate(_SERIES):
            metric = Metric(namespace, name, statistic, instances.publish_s)
            found.append(Query(f"u{place}x{position}", metric, dimensions, unit))
    return found


def instance_rows(samples: Iterable[Row], resource: str, first: dict[tuple[str, str], Row]) -> list[Row]:
    """Return what the datapoints of single units date; `first` keeps each one's earliest from reading to reading.

    The first datapoint of a host metric: the instance was up by then. The first request that came to a unit, and the
    first that it answered, enclose its first service; a request is counted in the period in which it comes.
    """
    for row in samples:
        counted = row["metric"] == _ALIVE or row["value"] > 0
        if row["unit_id"] is not None and counted and row["metric"] in {_ALIVE, _ARRIVED, _ANSWERED}:
            key = (row["unit_id"], row["metric"])
            if key not in first or row["start"] < first[key]["start"]:
                first[key] = row
    rows = []
    for (unit, metric), row in first.items():
        start_us, period_us = to_us(row["start"]), row["period_us"]
        received_us = to_us(row["received"])
        served = metric != _ALIVE
        rows.append(
            observation(
                SAGEMAKER["metric.first-served" if served else "metric.first-host"],
                resource,
                f"{unit}:{metric}",
                Answer({}, received_us, received_us),
                unit_id=unit,
                lo_us=start_us if metric == _ARRIVED else None,
                hi_us=None if metric == _ARRIVED else start_us + period_us,
                resolution_us=period_us,
                detail={"metric": metric, "period_s": period_us // US_PER_S},
            )
        )
    return rows
