"""The detection ladder: when each rung of detection was reached, against what the alarm's rule allows."""

from __future__ import annotations

from typing import Any, Final

import altair as alt
import msgspec

from analysis.records import ScaleOutResult
from analysis.report import palette
from analysis.report.vega import GREY, Spec, data, specification, x_axis
from traces.units import US_PER_S

_RUNGS: Final = {
    "emission": "first breaching period closed",
    "evaluation": "alarm fired",
    "decision": "scaler decided",
}


class AlarmRule(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm fires after `datapoints` breaching periods of `period_s`."""

    period_s: int
    datapoints: int


def alarm_rule(snapshots: dict[str, Any]) -> AlarmRule | None:
    """Return the rule of the alarm that scales out, as it was read from the platform; None when none or several do."""
    described = snapshots.get("alarms")
    alarms = described.get("MetricAlarms") if isinstance(described, dict) else None
    found = set()
    for alarm in alarms if isinstance(alarms, list) else ():
        operator, period = str(alarm.get("ComparisonOperator")), alarm.get("Period")
        datapoints = alarm.get("DatapointsToAlarm") or alarm.get("EvaluationPeriods")
        if operator.startswith("GreaterThan") and isinstance(period, int) and isinstance(datapoints, int):
            found.add((period, datapoints))
    if len(found) != 1:
        return None
    period, datapoints = found.pop()
    return AlarmRule(period_s=period, datapoints=datapoints)


def ladder(found: ScaleOutResult, rule: AlarmRule | None) -> Spec | None:
    """Return a dot per rung with its bounds; None where detection is not split.

    A band behind a dot is what the rule's window alone allows, whether or not the period in which demand rose breaches:
    the first breaching period closes within two periods, the alarm has its M datapoints after (M - 1) to (M + 1).
    """
    onset = None if found.onset is None else found.onset.at_us
    parts = [row for row in found.phases if row.parent == "detection" and row.end_us is not None]
    if onset is None or not parts:
        return None
    dots, whiskers, order = [], [], []
    anchors = {a.anchor: a for a in found.anchors if a.unit_id is None}
    for row in parts:
        leaf = row.phase.rpartition("+")[2]
        name = _RUNGS[leaf]
        order.append(name)
        assert row.end_us is not None
        dots.append({"rung": name, "t": (row.end_us - onset) / US_PER_S, "method": row.method})
        anchor = anchors.get({"evaluation": "alarm", "decision": "decision"}.get(leaf, ""))
        lo, hi = (row.lo_us, row.hi_us) if leaf == "emission" else (None, None)
        if anchor is not None and anchor.lo_us is not None and anchor.hi_us is not None:
            lo, hi = anchor.lo_us - onset, anchor.hi_us - onset
        if lo is not None and hi is not None:
            whiskers.append({"rung": name, "lo": max(lo, 0) / US_PER_S, "hi": hi / US_PER_S})
    time = "time, s from the rise of demand"
    y = alt.Y("rung:N", sort=order, title=None, axis=alt.Axis(labelLimit=260))
    layers: list[Any] = []
    bands = _bands(rule, order)
    if bands:
        band = alt.Chart(data(bands)).mark_bar(height=18, color=palette.colour("detection"), opacity=0.25)
        layers.append(band.encode(x=x_axis("lo", time), x2="hi:Q", y=y))
    if whiskers:
        rule_mark = alt.Chart(data(whiskers)).mark_rule(color=GREY, strokeWidth=2)
        layers.append(rule_mark.encode(x=x_axis("lo", time), x2="hi:Q", y=y))
    point = alt.Chart(data(dots)).mark_circle(size=90, opacity=1, color=palette.colour("detection"))
    layers.append(point.encode(x=x_axis("t", time), y=y, tooltip=["rung:N", "t:Q", "method:N"]))
    return specification(alt.layer(*layers), height=30 * len(order))


def _bands(rule: AlarmRule | None, order: list[str]) -> list[dict[str, Any]]:
    if rule is None:
        return []
    period, count = rule.period_s, rule.datapoints
    bands = {_RUNGS["emission"]: (0, 2 * period), _RUNGS["evaluation"]: ((count - 1) * period, (count + 1) * period)}
    return [{"rung": name, "lo": lo, "hi": hi} for name, (lo, hi) in bands.items() if name in order]


def ladder_note(rule: AlarmRule | None) -> str:
    """Return what the chart's marks mean."""
    text = "Dots are best values, lines their bounds."
    if rule is None:
        return f"{text} The alarm's rule was not read, so there is nothing to hold them against."
    return (
        f"{text} Shaded is what a rule of {rule.datapoints} datapoints of {rule.period_s} s allows by its window "
        "alone; what lies beyond it is lag of the metric's publication and of the evaluation."
    )
