"""CloudWatch alarms: M consecutive breaching datapoints at an evaluation turn the state, and the history says so.

Missing data is treated as `missing`: no datapoint in the evaluation range makes INSUFFICIENT_DATA, too few leave the
state as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from loadgen.emulator.metrics import Datapoint, Series
from traces.clock import to_datetime

State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]

_RANGE_EXTRA_PERIODS = 2
"""CloudWatch looks further back than the evaluation periods, so that one late datapoint does not blind the alarm."""


class HistoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item of an alarm's history; `data` is the JSON text that the API returns."""

    at_us: int
    kind: Literal["StateUpdate", "Action", "ConfigurationUpdate"]
    summary: str
    data: str


class AlarmRule(msgspec.Struct, frozen=True, kw_only=True):
    """What an alarm watches."""

    name: str
    arn: str
    above: bool
    threshold: float
    period_us: int
    datapoints: int
    statistic: str

    def breaches(self, point: Datapoint) -> bool:
        """Tell whether a datapoint lies beyond the threshold."""
        value = point.statistic(self.statistic)
        return value > self.threshold if self.above else value < self.threshold


class Alarm:
    """One alarm: its state, why, since when, and its history (oldest first)."""

    def __init__(self, rule: AlarmRule, created_us: int) -> None:
        self.rule = rule
        self.created_us = created_us
        self.state: State = "INSUFFICIENT_DATA"
        self.reason = "Unchecked: Initial alarm creation"
        self.reason_data: dict[str, Any] | None = None
        self.updated_us = created_us
        self.evaluated: list[Datapoint] = []
        self.history: list[HistoryItem] = []

    def evaluate(self, now_us: int, series: Series) -> bool:
        """Look at the newest datapoints that can be seen; tell whether the state changed."""
        rule = self.rule
        newest_us = now_us // rule.period_us * rule.period_us - rule.period_us
        reach = rule.datapoints + _RANGE_EXTRA_PERIODS
        starts = [newest_us - k * rule.period_us for k in range(reach)]
        found = [p for start in starts if (p := _whole(series, start, rule.period_us, now_us)) is not None]
        self.evaluated = found[: rule.datapoints]
        if not found:
            state: State = "INSUFFICIENT_DATA"
        elif len(self.evaluated) < rule.datapoints:
            return False
        else:
            state = "ALARM" if all(rule.breaches(point) for point in self.evaluated) else "OK"
        if state == self.state:
            return False
        self._turn(now_us, state)
        return True

    def record_action(self, now_us: int, action_arn: str) -> None:
        """Note in the history that the alarm ran its action."""
        data = {
            "actionState": "Succeeded",
            "stateUpdateTimestamp": self.updated_us // 1000,
            "notificationResource": action_arn,
        }
        item = HistoryItem(
            at_us=now_us,
            kind="Action",
            summary=f"Successfully executed action {action_arn}",
            data=json.dumps(data),
        )
        self.history.append(item)

    def _turn(self, now_us: int, state: State) -> None:
        old = self._state_document()
        summary = f"Alarm updated from {self.state} to {state}"
        self.state, self.updated_us = state, now_us
        self.reason = _reason(self.rule, self.evaluated, breaching=state == "ALARM")
        self.reason_data = _reason_data(self.rule, self.evaluated, now_us)
        document = {"version": "1.0", "oldState": old, "newState": self._state_document()}
        item = HistoryItem(at_us=now_us, kind="StateUpdate", summary=summary, data=json.dumps(document))
        self.history.append(item)

    def _state_document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"stateValue": self.state, "stateReason": self.reason}
        if self.reason_data is not None:
            document["stateReasonData"] = self.reason_data
        return document


def _whole(series: Series, start_us: int, period_us: int, now_us: int) -> Datapoint | None:
    """Return a period's datapoint once the period's last part can be seen; an unfinished one is not evaluated."""
    last_part_us = start_us + period_us - series.period_us
    if series.over(last_part_us, series.period_us, now_us) is None:
        return None
    return series.over(start_us, period_us, now_us)


def _reason(rule: AlarmRule, newest_first: Sequence[Datapoint], *, breaching: bool) -> str:
    if not newest_first:
        return f"Insufficient Data: {rule.datapoints} datapoints were unknown."
    shown = ", ".join(
        f"{point.statistic(rule.statistic)} ({to_datetime(point.start_us):%d/%m/%y %H:%M:%S})" for point in newest_first
    )
    relation = "greater" if rule.above else "less"
    negation = "" if breaching else "not "
    plural = len(newest_first) > 1
    subject = f"{len(newest_first)} datapoint{'s' if plural else ''} [{shown}]"
    verb = "were" if plural else "was"
    return f"Threshold Crossed: {subject} {verb} {negation}{relation} than the threshold ({rule.threshold})."


def _reason_data(rule: AlarmRule, newest_first: Sequence[Datapoint], now_us: int) -> dict[str, Any]:
    values = [point.statistic(rule.statistic) for point in newest_first]
    data: dict[str, Any] = {"version": "1.0", "queryDate": _stamp(now_us)}
    if newest_first:
        data["startDate"] = _stamp(newest_first[-1].start_us)
    data |= {
        "statistic": rule.statistic,
        "period": rule.period_us // 1_000_000,
        "recentDatapoints": values[::-1],
        "threshold": rule.threshold,
        "evaluatedDatapoints": [
            {"timestamp": _stamp(point.start_us), "sampleCount": point.samples, "value": value}
            for point, value in zip(newest_first, values, strict=True)
        ],
    }
    return data


def _stamp(us: int) -> str:
    return to_datetime(us).strftime("%Y-%m-%dT%H:%M:%S.") + f"{us // 1000 % 1000:03d}+0000"
