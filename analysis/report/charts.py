"""The report's charts as Vega-Lite specifications. Times are seconds of endpoint time from the onset (or decision)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import altair as alt

from analysis.analyse import RunAnalysis
from analysis.records import ScaleOutResult
from analysis.report import palette
from analysis.report.vega import GREY, Spec, data, specification, x_axis
from traces.units import US_PER_S

_INK: Final = "currentColor"
_BELOW: Final = 10
_MERGED_SHARE: Final = 0.02
"""Marks nearer to each other than this share of the chart share one rule and one label."""
MOST_TOLD: Final = 3
"""So many scale-outs have room for the names of their events."""
_MOST_NUMBERS: Final = 30


def demand_chart(analysis: RunAnalysis) -> Spec | None:
    """Return demand against ready capacity with the deficit shaded; None without any request."""
    if analysis.load.is_empty():
        return None
    zero, time = _zero(analysis)
    rate = None if analysis.unit_rate is None else analysis.unit_rate.requests_per_s
    rows = [
        {
            "t": (row["start_us"] - zero) / US_PER_S,
            "demand": row["requests_per_s"],
            "capacity": row["capacity_per_s"],
            "top": None if rate is None else max(row["requests_per_s"], row["capacity_per_s"] or 0),
        }
        for row in analysis.load.iter_rows(named=True)
    ]
    base = alt.Chart(data(rows)).encode(x=x_axis("t", time))
    layers = []
    if rate is not None and analysis.capacity:
        layers.append(
            base.mark_area(color=palette.DEFICIT, opacity=0.28, interpolate="step-after").encode(
                y=alt.Y("capacity:Q", title="requests/s"), y2="top:Q"
            )
        )
    y = alt.Y("demand:Q", title="requests/s", scale=alt.Scale(zero=True))
    layers.append(base.mark_line(color=palette.DEMAND, interpolate="step-after", strokeWidth=1.6).encode(y=y))
    if rate is not None and analysis.capacity:
        end = rows[-1]["t"] + analysis.bin_us / US_PER_S
        start = rows[0]["t"]
        points = [
            {"t": max((s.at_us - zero) / US_PER_S, start), "y": s.units * rate, "units": s.units}
            for s in analysis.capacity
        ]
        points.append({**points[-1], "t": max(end, points[-1]["t"])})
        layers.append(
            alt.Chart(data(points))
            .mark_line(color=palette.CAPACITY, interpolate="step-after", strokeWidth=2.4)
            .encode(x=x_axis("t", time), y="y:Q", tooltip=["units:Q", "t:Q"])
        )
    layers += _marks(analysis, zero, time, (rows[0]["t"], rows[-1]["t"]))
    return specification(alt.layer(*layers), height=240)


def _marks(analysis: RunAnalysis, zero: int, time: str, ends: tuple[float, float]) -> list[alt.Chart]:
    """Return a rule and a label per event of the scale-outs; events that would lie on each other share one.

    Of many scale-outs each has one rule, where it begins, and its number.
    """
    if len(analysis.scale_outs) > MOST_TOLD:
        return _numbers(analysis.scale_outs, zero, time)
    rows: list[dict[str, Any]] = []
    length = ends[1] - ends[0]
    for at_us, name in sorted(event for found in analysis.scale_outs for event in _events(found)):
        t = (at_us - zero) / US_PER_S
        if rows and t - rows[-1]["t"] < _MERGED_SHARE * length:
            rows[-1]["what"] += f" · {name}"
        else:
            rows.append({"t": t, "what": name})
    if not rows:
        return []
    for i, row in enumerate(rows):
        row["y"] = -36 + 13 * (i % 3)
    base = alt.Chart(data(rows)).encode(x=x_axis("t", time))
    layers = [base.mark_rule(color=GREY, strokeDash=[3, 3]).encode(tooltip=["what:N", "t:Q"])]
    # Towards the end there is no room to the right.
    middle = ends[0] + 0.6 * length
    early, late = [row for row in rows if row["t"] <= middle], [row for row in rows if row["t"] > middle]
    if early:
        layers.append(_labels(early, time).mark_text(align="left", dx=4, fontSize=11))
    if late:
        layers.append(_labels(late, time).mark_text(align="right", dx=-4, fontSize=11))
    return layers


def _numbers(scale_outs: Sequence[ScaleOutResult], zero: int, time: str) -> list[alt.Chart]:
    every = math.ceil(len(scale_outs) / _MOST_NUMBERS)
    rows = [
        {
            "t": (min(_events(found))[0] - zero) / US_PER_S,
            "scale_out": found.index + 1,
            "what": str(found.index + 1) if i % every == 0 else "",
            "y": -10 - 13 * (i // every % 2),
        }
        for i, found in enumerate(scale_outs)
    ]
    rules = alt.Chart(data(rows)).mark_rule(color=GREY, strokeDash=[3, 3])
    return [
        rules.encode(x=x_axis("t", time), tooltip=[alt.Tooltip("scale_out:Q", title="scale-out"), "t:Q"]),
        _labels(rows, time).mark_text(fontSize=11),
    ]


def _labels(rows: list[dict[str, Any]], time: str) -> alt.Chart:
    y = alt.Y("y:Q", scale=None, axis=None)
    return alt.Chart(data(rows)).encode(x=x_axis("t", time), text="what:N", y=y)


def _events(found: ScaleOutResult) -> list[tuple[int, str]]:
    alarm = next((a.at_us for a in found.anchors if a.anchor == "alarm"), None)
    events = (
        (None if found.onset is None else found.onset.at_us, "demand rises"),
        (alarm, "alarm"),
        (found.decision.at_us, "decision"),
        (None if found.in_service is None else found.in_service.at_us, "capacity"),
    )
    return [(at, name) for at, name in events if at is not None]


def waterfall(found: ScaleOutResult) -> Spec | None:
    """Return a scale-out's phases as bars in time, with the bounds of each length as a whisker at its end."""
    tops = [row for row in found.phases if row.parent is None and row.phase != "unattributed"]
    zero, time = _zero_of(found)
    placed, whiskers, hidden, order = [], [], [], []
    windows = [r for r in tops if r.start_us is not None and "pull" in r.phase.split("+")]
    for top in tops:
        for row in [top, *(p for p in found.phases if p.parent == top.phase)]:
            name = row.phase if row.parent is None else f"· {row.phase}"
            order.append(name)
            shade = row.phase if row.parent is None else top.phase
            if row.start_us is None or row.end_us is None:
                window = windows[0] if windows and row.parent is None else top
                if row.duration_us is not None and window.start_us is not None and window.end_us is not None:
                    hidden.append(_hidden(name, row.duration_us, window.start_us - zero, window.end_us - zero, shade))
                continue
            start, end = (row.start_us - zero) / US_PER_S, (row.end_us - zero) / US_PER_S
            placed.append(
                {
                    "phase": name,
                    "start": start,
                    "end": end,
                    "critical": row.critical_us / US_PER_S,
                    "length": end - start,
                    "method": row.method,
                    "colour": palette.colour(shade),
                    "opacity": 0.9 if row.parent is None else 0.45,
                }
            )
            if row.lo_us is not None and row.hi_us is not None:
                whiskers.append({"phase": name, "lo": start + row.lo_us / US_PER_S, "hi": start + row.hi_us / US_PER_S})
    if not placed:
        return None
    y = alt.Y("phase:N", sort=order, title=None, axis=alt.Axis(labelLimit=330))
    bars = (
        alt.Chart(data(placed))
        .mark_bar(height=13, cornerRadius=2)
        .encode(
            x=x_axis("start", time),
            x2="end:Q",
            y=y,
            color=alt.Color("colour:N", scale=None),
            opacity=alt.Opacity("opacity:Q", scale=None),
            tooltip=["phase:N", "length:Q", "critical:Q", "method:N"],
        )
    )
    # However short a phase is, it keeps a stroke of its own.
    stroke = alt.Chart(data(placed)).mark_tick(thickness=3, size=14, opacity=1)
    layers: list[Any] = [
        bars,
        stroke.encode(x=x_axis("start", time), y=y, color=alt.Color("colour:N", scale=None)),
    ]
    if whiskers:
        # Below the bar, so that a short one is not hidden under its own bounds.
        base = alt.Chart(data(whiskers)).encode(y=y)
        layers.append(
            base.mark_rule(color=_INK, strokeWidth=1.2, yOffset=_BELOW).encode(x=x_axis("lo", time), x2="hi:Q")
        )
        ends = base.mark_tick(color=_INK, thickness=1.2, size=6, yOffset=_BELOW)
        layers += [ends.encode(x=x_axis(side, time)) for side in ("lo", "hi")]
    if hidden:
        base = alt.Chart(data(hidden)).encode(y=y)
        layers.append(
            base.mark_rule(strokeDash=[4, 3], strokeWidth=3).encode(
                x=x_axis("start", time), x2="end:Q", color=alt.Color("colour:N", scale=None)
            )
        )
        layers.append(base.mark_text(dy=10, fontSize=11).encode(x=x_axis("middle", time), text="note:N"))
    return specification(alt.layer(*layers), height=28 * len(order) + 12)


def _hidden(name: str, duration_us: int, start_us: int, end_us: int, phase: str) -> dict[str, Any]:
    start, end = start_us / US_PER_S, end_us / US_PER_S
    return {
        "phase": name,
        "start": start,
        "end": end,
        "middle": (start + end) / 2,
        "colour": palette.colour(phase),
        "note": f"{duration_us / US_PER_S:.0f} s somewhere in here",
    }


def latency_chart(analysis: RunAnalysis, quantile: str) -> Spec | None:
    """Return a quantile ("p50", "p95") of the time to first token over time; None without an answered request.

    From due lies wide and pale under from sent: where a client is on time, the two are one line with a rim. A line
    ends where a bin holds no answered request; a bin alone is a dot.
    """
    zero, time = _zero(analysis)
    rows = _stretches(analysis, quantile, zero)
    if not rows:
        return None
    y = alt.Y(
        "s:Q",
        title=f"{quantile}, s (log)",
        scale=alt.Scale(type="log", nice=True),
        axis=alt.Axis(values=[0.001, 0.01, 0.1, 1, 10, 100, 1000], format="~g"),
    )
    layers: list[Any] = []
    for label, colour, opacity, width in (
        ("from due", palette.FROM_DUE, 0.5, 7),
        ("from sent", palette.FROM_SENT, 1, 2),
    ):
        ours = [row for row in rows if row["measured"] == label]
        alone = [row for row in ours if row["alone"]]
        line = alt.Chart(data(ours)).mark_line(color=colour, opacity=opacity, strokeWidth=width)
        dots = alt.Chart(data(alone)).mark_circle(color=colour, opacity=opacity, size=6 * width)
        place = {"x": x_axis("t", time), "y": y, "detail": "stretch:N", "tooltip": ["measured:N", "t:Q", "s:Q"]}
        layers += [line.encode(**place)] + ([dots.encode(**place)] if alone else [])
    return specification(alt.layer(*layers), height=150)


def _stretches(analysis: RunAnalysis, quantile: str, zero: int) -> list[dict[str, Any]]:
    """Return the points of both lines; each belongs to a stretch of bins next to one another."""
    rows: list[dict[str, Any]] = []
    for name, label in (("ttft_from_due", "from due"), ("ttft_from_sent", "from sent")):
        column, last, stretch = f"{name}_{quantile}", None, 0
        for row in analysis.latency_over_time.iter_rows(named=True):
            if (row[column] or 0) <= 0:
                continue
            if last is None or row["start_us"] - last > analysis.bin_us:
                stretch += 1
            last, t = row["start_us"], (row["start_us"] - zero) / US_PER_S
            rows.append({"t": t, "s": row[column], "measured": label, "stretch": stretch})
    sizes: dict[tuple[str, int], int] = {}
    for row in rows:
        key = (row["measured"], row["stretch"])
        sizes[key] = sizes.get(key, 0) + 1
    return [row | {"alone": sizes[row["measured"], row["stretch"]] == 1} for row in rows]


def _zero(analysis: RunAnalysis) -> tuple[int, str]:
    """Return the instant that time is counted from, and the axis title that says which it is."""
    for found in analysis.scale_outs:
        return _zero_of(found)
    first: int = analysis.load["start_us"].min()  # type: ignore[assignment]
    return first, "time, s from the start of the load"


def _zero_of(found: ScaleOutResult) -> tuple[int, str]:
    if found.onset is not None:
        start = "the rise of demand" if found.onset.how == "change-point" else "the first request"
        return found.onset.at_us, f"time, s from {start}"
    return found.decision.at_us, "time, s from the decision to scale"
