"""CloudWatch: alarms, their history, and metric data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from loadgen.emulator.alarms import Alarm, HistoryItem
from loadgen.emulator.api import ApiError, Handler, at, page
from loadgen.emulator.enhanced import by_unit
from loadgen.emulator.metrics import Datapoint, Series
from loadgen.emulator.model import REFUSED, EndpointModel
from traces.clock import to_us
from traces.units import US_PER_S

_STATISTICS = frozenset({"Minimum", "Maximum", "Sum", "SampleCount", "Average"})
_SHORT_PERIODS_S = frozenset({1, 5, 10, 20, 30})
_HIGH_RESOLUTION_KEPT_US = 3 * 3600 * US_PER_S
_MOST_DATAPOINTS = 100_800
_MOST_QUERIES = 500
_BAD_PAGE = "InvalidNextToken"


def describe_alarms(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeAlarms' members: the policy's two metric alarms, filtered."""
    if "MetricAlarm" not in request.get("AlarmTypes", ["MetricAlarm"]):
        return {"CompositeAlarms": [], "MetricAlarms": []}
    names = request.get("AlarmNames")
    found = [
        alarm
        for alarm in _alarms(model)
        if (not names or alarm.rule.name in names)
        and alarm.rule.name.startswith(request.get("AlarmNamePrefix", ""))
        and request.get("StateValue", alarm.state) == alarm.state
        and model.autoscaler.policy_arn.startswith(request.get("ActionPrefix", ""))
    ]
    limit = request.get("MaxRecords", 50)
    chosen, token = page(found, token=request.get("NextToken"), limit=limit, newest_first=False, bad_token=_BAD_PAGE)
    return {"CompositeAlarms": [], "MetricAlarms": [_alarm(model, a) for a in chosen], "NextToken": token}


def describe_alarm_history(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeAlarmHistory's members, newest first unless asked otherwise."""
    name, kind = request.get("AlarmName"), request.get("HistoryItemType")
    from_us = to_us(request["StartDate"]) if "StartDate" in request else None
    to = to_us(request["EndDate"]) if "EndDate" in request else None
    found = [
        (item.at_us, alarm.rule.name, item)
        for alarm in _alarms(model)
        for item in alarm.history
        if name in {None, alarm.rule.name}
        and kind in {None, item.kind}
        and (from_us is None or item.at_us >= from_us)
        and (to is None or item.at_us <= to)
    ]
    found.sort(key=lambda entry: entry[0])
    newest_first = request.get("ScanBy", "TimestampDescending") == "TimestampDescending"
    limit = request.get("MaxRecords", 100)
    chosen, token = page(
        found, token=request.get("NextToken"), limit=limit, newest_first=newest_first, bad_token=_BAD_PAGE
    )
    return {"AlarmHistoryItems": [_history_item(name, item) for _, name, item in chosen], "NextToken": token}


def get_metric_data(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return GetMetricData's members: one result per query, cut into pages by their datapoints."""
    queries = request["MetricDataQueries"]
    if len(queries) > _MOST_QUERIES:
        raise ApiError(
            "ValidationError", f"The collection MetricDataQueries must not have more than {_MOST_QUERIES} items."
        )
    if request["StartTime"] >= request["EndTime"]:
        raise ApiError("ValidationError", "The parameter StartTime must be less than the parameter EndTime.")
    from_us, to = to_us(request["StartTime"]), to_us(request["EndTime"])
    # All pages show what the first one could see: datapoints that come meanwhile would shift the others.
    place, _, seen = request.get("NextToken", "").partition(".")
    seen_us = int(seen) if seen.isdecimal() else model.now_us
    newest_first = request.get("ScanBy", "TimestampDescending") == "TimestampDescending"
    answers: list[tuple[Mapping[str, Any], Datapoint | None, str]] = []
    for query in queries:
        points, statistic = _datapoints(model, query, (from_us, to), seen_us)
        ordered = points[::-1] if newest_first else points
        answers += [(query, None, statistic)] if not ordered else [(query, point, statistic) for point in ordered]
    limit = min(request.get("MaxDatapoints", _MOST_DATAPOINTS), _MOST_DATAPOINTS)
    chosen, token = page(answers, token=place or None, limit=limit, newest_first=False, bad_token=_BAD_PAGE)
    results: dict[str, dict[str, Any]] = {}
    for query, point, statistic in chosen:
        label = query.get("Label") or query["MetricStat"]["Metric"]["MetricName"]
        empty = {"Id": query["Id"], "Label": label, "Timestamps": [], "Values": [], "StatusCode": "Complete"}
        result = results.setdefault(query["Id"], empty)
        if point is not None:
            result["Timestamps"].append(at(point.start_us))
            result["Values"].append(point.statistic(statistic))
    if token is not None and results:
        results[chosen[-1][0]["Id"]]["StatusCode"] = "PartialData"
    return {
        "MetricDataResults": list(results.values()),
        "NextToken": None if token is None else f"{token}.{seen_us}",
        "Messages": [],
    }


def list_metrics(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return ListMetrics' members: the metrics that have datapoints."""
    wanted = {(d["Name"], d.get("Value")) for d in request.get("Dimensions", [])}
    words = model.words
    namespace, dimensions = words.metric_namespace, words.dimensions()
    has_dimensions = all(any(n == d["Name"] and v in {None, d["Value"]} for d in dimensions) for n, v in wanted)
    found = [
        {"Namespace": namespace, "MetricName": name, "Dimensions": dimensions}
        for name, series in _series(model).items()
        if request.get("Namespace", namespace) == namespace
        and request.get("MetricName", name) == name
        and has_dimensions
        and not series.is_empty
    ]
    chosen, token = page(found, token=request.get("NextToken"), limit=500, newest_first=False, bad_token=_BAD_PAGE)
    return {"Metrics": chosen, "NextToken": token}


OPERATIONS: dict[str, Handler] = {
    "DescribeAlarms": describe_alarms,
    "DescribeAlarmHistory": describe_alarm_history,
    "GetMetricData": get_metric_data,
    "ListMetrics": list_metrics,
}


def _datapoints(
    model: EndpointModel, query: Mapping[str, Any], span_us: tuple[int, int], seen_us: int
) -> tuple[list[Datapoint], str]:
    """Return a query's datapoints, oldest first, and the statistic that it asks for."""
    stat = query.get("MetricStat")
    if stat is None:
        raise ApiError(
            "ValidationError", f"Query {query['Id']}: the emulator answers MetricStat queries, not expressions."
        )
    period_s, statistic = stat["Period"], stat["Stat"]
    if period_s not in _SHORT_PERIODS_S and period_s % 60:
        raise ApiError("ValidationError", "Period must be 1, 5, 10, 20, 30 or a multiple of 60.")
    if statistic not in _STATISTICS:
        raise ApiError("ValidationError", f"The value {statistic} for parameter Stat is not supported.")
    metric = stat["Metric"]
    series = _series(model).get(metric.get("MetricName", ""))
    named = {(d["Name"], d["Value"]) for d in metric.get("Dimensions", [])}
    ours = set(model.words.metric_dimensions.items())
    if series is None or metric.get("Namespace") != model.words.metric_namespace or named != ours:
        series = by_unit(model, metric.get("Namespace", ""), metric.get("MetricName", ""), named)
    if series is None:
        return [], statistic
    period_us = max(period_s * US_PER_S, series.period_us)
    from_us, to = span_us
    if period_us < 60 * US_PER_S:
        from_us = max(from_us, seen_us - _HIGH_RESOLUTION_KEPT_US)
    return series.between(from_us, to, period_us, seen_us), statistic


def _series(model: EndpointModel) -> dict[str, Series]:
    found = {model.words.metric: model.concurrency, **model.invocations}
    if model.config.component is not None:
        found["InvocationsPerCopy"] = found.pop("InvocationsPerInstance")
    return found


def _alarms(model: EndpointModel) -> list[Alarm]:
    scaler = model.autoscaler
    return [alarm for alarm in (scaler.high, scaler.low, scaler.zero) if alarm is not None]


def _alarm(model: EndpointModel, alarm: Alarm) -> dict[str, Any]:
    rule, policy_arn = alarm.rule, model.autoscaler.policy_arn
    return {
        "AlarmName": rule.name,
        "AlarmArn": rule.arn,
        "AlarmDescription": f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {policy_arn}.",
        "AlarmConfigurationUpdatedTimestamp": at(alarm.created_us),
        "ActionsEnabled": True,
        "OKActions": [],
        "AlarmActions": [policy_arn],
        "InsufficientDataActions": [],
        "StateValue": alarm.state,
        "StateReason": alarm.reason,
        "StateReasonData": None if alarm.reason_data is None else json.dumps(alarm.reason_data),
        "StateUpdatedTimestamp": at(alarm.updated_us),
        "StateTransitionedTimestamp": at(alarm.updated_us),
        "MetricName": REFUSED if alarm is model.autoscaler.zero else model.words.metric,
        "Namespace": model.words.metric_namespace,
        "Statistic": rule.statistic,
        "Dimensions": model.words.dimensions(),
        "Period": rule.period_us // US_PER_S,
        "EvaluationPeriods": rule.datapoints,
        "DatapointsToAlarm": rule.datapoints,
        "Threshold": rule.threshold,
        "ComparisonOperator": "GreaterThanThreshold" if rule.above else "LessThanThreshold",
        "TreatMissingData": "missing",
    }


def _history_item(alarm_name: str, item: HistoryItem) -> dict[str, Any]:
    return {
        "AlarmName": alarm_name,
        "AlarmType": "MetricAlarm",
        "Timestamp": at(item.at_us),
        "HistoryItemType": item.kind,
        "HistorySummary": item.summary,
        "HistoryData": item.data,
    }
