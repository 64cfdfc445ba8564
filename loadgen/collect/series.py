"""One CloudWatch series and the query that asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """One series to ask for."""

    namespace: str
    name: str
    statistic: str
    period_s: int


class Query(NamedTuple):
    """A metric with its dimensions, under an id that is unique in the call; `unit_id` is the instance it is about."""

    id: str
    metric: Metric
    dimensions: Mapping[str, str]
    unit_id: str | None = None

    @property
    def document(self) -> dict[str, Any]:
        """The query as GetMetricData takes it."""
        metric = self.metric
        dimensions = [{"Name": name, "Value": value} for name, value in self.dimensions.items()]
        named = {"Namespace": metric.namespace, "MetricName": metric.name, "Dimensions": dimensions}
        stat = {"Metric": named, "Period": metric.period_s, "Stat": metric.statistic}
        return {"Id": self.id, "MetricStat": stat, "ReturnData": True}
