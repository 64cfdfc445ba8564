"""CloudWatch alarms: how they are set, and what their history says about breach and alarm."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from loadgen.collect.anchors import SAGEMAKER
from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, DeniedError, Reading, Row, SourceError, SourceUnreachableError, ThrottledError
from loadgen.collect.redaction import instant_text, said
from loadgen.collect.rows import observation
from loadgen.collect.scaling import AlarmBook, Scaled
from traces.clock import to_datetime, to_us
from traces.units import US_PER_S

_WINDOW_US = 900 * US_PER_S
_SETTINGS_POLLS = 12
_NAMES_AT_MOST = 100
_TOLD = re.compile(r"(greater|less) than (or equal to )?the threshold")


class Alarms:
    """Reads the history of the alarms that the scaling policies name."""

    name = "cloudwatch:alarm-history"
    # Documents differ: 14 days, or 30.
    kept_us: int | None = 14 * 86_400 * US_PER_S
    permissions: ClassVar = (
        Permission(
            "cloudwatch",
            "describe_alarm_history",
            ("cloudwatch:DescribeAlarmHistory",),
            "when the alarm was raised, and the first breach",
        ),
        Permission(
            "cloudwatch",
            "describe_alarms",
            ("cloudwatch:DescribeAlarms",),
            "how the alarms are set: period, threshold, datapoints",
        ),
    )

    def __init__(self, api: Api, scaled: Scaled, period_us: int, alarms: AlarmBook) -> None:
        self.period_us = period_us
        self._api = api
        self._scaled = scaled
        self._alarms = alarms
        self._settings: dict[str, dict[str, Any]] = {}
        self._settings_left = 0
        self._settings_denied = False
        self._complete_us = scaled.since_us

    async def poll(self, now_us: int) -> Reading:
        """Return the history's rows since a little before the last complete reading, and the alarms' settings."""
        # An alarm whose name is not known yet is not one that stayed silent.
        names = await self._alarms.names(now_us)
        reading = Reading()
        await self._read_settings(names, reading)
        start_us = max(self._scaled.since_us, min(self._complete_us, now_us) - _WINDOW_US)
        for name in names:
            scope: dict[str, Any] = {
                "AlarmName": name,
                "StartDate": to_datetime(start_us),
                "ScanBy": "TimestampDescending",
            }
            try:
                async for page in self._api.pages("describe_alarm_history", **scope):
                    for item in page.data.get("AlarmHistoryItems", []):
                        rows = history_rows(item, self._settings.get(name, {}), page, self._scaled.resource)
                        reading.observations += [inward(row) for row in rows] if name in self._alarms.inward else rows
            except (ThrottledError, SourceUnreachableError) as error:
                reading.failures.append(error)
        if not reading.failures:
            self._complete_us = now_us
        return reading

    async def _read_settings(self, names: list[str], reading: Reading) -> None:
        self._settings_left -= 1
        known = set(names) <= set(self._settings) and self._settings_left > 0
        if not names or known or self._settings_denied:
            return
        alarms: list[dict[str, Any]] = []
        try:
            async for page in self._api.pages("describe_alarms", AlarmNames=names[:_NAMES_AT_MOST]):
                alarms += page.data.get("MetricAlarms", [])
        except SourceError as error:
            self._settings_denied = isinstance(error, DeniedError)
            reading.failures.append(error)
            return
        self._settings = {alarm["AlarmName"]: alarm for alarm in alarms if alarm.get("AlarmName")}
        self._settings_left = _SETTINGS_POLLS
        reading.snapshots["alarms"] = {"MetricAlarms": alarms}


def inward(row: Row) -> Row:
    """Return the row of an alarm that takes capacity away: it dates nothing of a scale-out."""
    return {**row, "anchor": None}


def history_rows(item: Mapping[str, Any], settings: Mapping[str, Any], answer: Answer, resource: str) -> list[Row]:
    """Return the rows of one history item: the alarm and the first breach for a change to ALARM, else a plain fact.

    `settings` is the alarm as DescribeAlarms gives it (empty when unknown). Missing fields stay null; an item whose
    data cannot be read still dates the alarm by its own stamp.
    """
    stamp = item.get("Timestamp")
    if not isinstance(stamp, datetime):
        return []
    at_us = to_us(stamp)
    name, kind, summary = (
        str(item.get("AlarmName")),
        str(item.get("HistoryItemType")),
        said(item.get("HistorySummary") or ""),
    )
    state = _mapping(_mapping(item.get("HistoryData")).get("newState"))
    value = said(state.get("stateValue") or "") or ("ALARM" if summary.endswith("to ALARM") else None)
    base = f"{name}:{at_us}"
    if kind != "StateUpdate" or value != "ALARM":
        other = {"alarm_name": name, "type": kind, "state": value, "summary": summary}
        signal = SAGEMAKER["alarm.other"]
        return [observation(signal, resource, f"{base}:{kind}:{value or summary}", answer, at_us=at_us, detail=other)]
    detail: dict[str, Any] = {"alarm_name": name, **_facts(state, settings)}
    alarm = observation(SAGEMAKER["alarm.to-alarm"], resource, f"{base}:alarm", answer, at_us=at_us, detail=detail)
    first = first_breach(detail)
    if first is None or not detail["period_s"]:
        return [alarm]
    start_us, breaching = first
    period_us = round(detail["period_s"] * US_PER_S)
    breach = observation(
        SAGEMAKER["alarm.breach"],
        resource,
        f"{base}:breach",
        answer,
        lo_us=start_us,
        hi_us=start_us + period_us,
        resolution_us=period_us,
        detail={key: detail[key] for key in ("alarm_name", "period_s", "threshold")} | {"value": breaching},
    )
    return [alarm, breach]


def first_breach(facts: Mapping[str, Any]) -> tuple[int, float] | None:
    """Return the start (µs) and value of the earliest evaluated datapoint beyond the threshold, if it can be told."""
    threshold, comparison = facts["threshold"], facts["comparison"]
    breaches = _COMPARISONS.get(comparison)
    if threshold is None or breaches is None:
        return None
    found = []
    for point in facts["evaluated_datapoints"]:
        start_us = parse_instant_us(point["timestamp"])
        if start_us is not None and point["value"] is not None and breaches(point["value"], threshold):
            found.append((start_us, point["value"]))
    return min(found, default=None)


_COMPARISONS: dict[str | None, Callable[[float, float], bool]] = {
    "GreaterThanThreshold": lambda value, threshold: value > threshold,
    "GreaterThanOrEqualToThreshold": lambda value, threshold: value >= threshold,
    "LessThanThreshold": lambda value, threshold: value < threshold,
    "LessThanOrEqualToThreshold": lambda value, threshold: value <= threshold,
}


def parse_instant_us(text: Any) -> int | None:
    """Return the µs since 1970 of an ISO instant as alarm histories write it, or `None`.

    >>> parse_instant_us("2026-07-01T10:00:00.250+0000")
    1782900000250000
    """
    try:
        instant = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return to_us(instant if instant.tzinfo else instant.replace(tzinfo=UTC))


def _facts(state: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the evaluation says, completed from the alarm's settings where the history left a field out."""
    reason = _mapping(state.get("stateReasonData"))
    points = [
        {"timestamp": instant_text(point.get("timestamp")), "value": _number(point.get("value"))}
        for point in reason.get("evaluatedDatapoints") or ()
        if isinstance(point, Mapping)
    ]
    return {
        "period_s": _first(_number(reason.get("period")), _number(settings.get("Period"))),
        "query_date": instant_text(reason.get("queryDate")),
        "start_date": instant_text(reason.get("startDate")),
        "threshold": _first(_number(reason.get("threshold")), _number(settings.get("Threshold"))),
        "statistic": said(_first(reason.get("statistic"), settings.get("Statistic")) or "") or None,
        "comparison": _first(settings.get("ComparisonOperator"), _comparison_told(state.get("stateReason"))),
        "evaluated_datapoints": points,
    }


def _comparison_told(reason: Any) -> str | None:
    """Return the comparison that a state's prose names, for when the alarm itself may not be read."""
    told = _TOLD.search(str(reason or ""))
    if told is None:
        return None
    return f"{told[1].capitalize()}Than{'OrEqualTo' if told[2] else ''}Threshold"


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, also where it comes as text; anything else is empty."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.MsgspecError:
            return {}
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
