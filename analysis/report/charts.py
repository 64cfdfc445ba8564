"""The report's charts as Vega-Lite specifications. Times are seconds of endpoint time from the onset (or decision)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import altair as alt

from analysis.analyse import RunAnalysis
from analysis.compare import Pair
from analysis.records import ScaleOutResult
from analysis.report import palette
from traces.units import US_PER_S

Spec = dict[str, Any]
_GREY: Final = "#8a8a8a"
_INK: Final = "currentColor"
_TIME: Final = "time, s from the rise of demand"


def demand_chart(analysis: RunAnalysis) -> Spec | None:
    """Return demand against ready capacity with the deficit shaded; None without any request."""
    if analysis.load.is_empty():
        return None
    zero = _zero(analysis)
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
    base = alt.Chart(_data(rows)).encode(x=_x("t", _TIME))
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
            alt.Chart(_data(points))
            .mark_line(color=palette.CAPACITY, interpolate="step-after", strokeWidth=2.4)
            .encode(x=_x("t", _TIME), y="y:Q", tooltip=["units:Q", "t:Q"])
        )
    layers += _marks(analysis, zero)
    return _spec(alt.layer(*layers), height=240)


def _marks(analysis: RunAnalysis, zero: int) -> list[alt.Chart]:
    rows = []
    for found in analysis.scale_outs:
        alarm = next((a.at_us for a in found.anchors if a.anchor == "alarm"), None)
        for name, at in (
            ("demand rises", None if found.onset is None else found.onset.at_us),
            ("alarm", alarm),
            ("decision", found.decision.at_us),
            ("capacity", None if found.in_service is None else found.in_service.at_us),
        ):
            if at is not None:
                rows.append({"t": (at - zero) / US_PER_S, "what": name})
    if not rows:
        return []
    for i, row in enumerate(sorted(rows, key=lambda r: float(str(r["t"])))):
        row["y"] = -46 + 13 * (i % 4)
    base = alt.Chart(_data(rows)).encode(x=_x("t", _TIME))
    rule = base.mark_rule(color=_GREY, strokeDash=[3, 3]).encode(tooltip=["what:N", "t:Q"])
    label = base.mark_text(align="left", dx=4, fontSize=11).encode(text="what:N", y=alt.Y("y:Q", scale=None, axis=None))
    return [rule, label]


def waterfall(found: ScaleOutResult) -> Spec | None:
    """Return a scale-out's phases as bars in time, with the bounds of each length as a whisker at its end."""
    tops = [row for row in found.phases if row.parent is None and row.phase != "unattributed"]
    zero = found.onset.at_us if found.onset is not None else found.decision.at_us
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
        alt.Chart(_data(placed))
        .mark_bar(height=14, cornerRadius=2)
        .encode(
            x=_x("start", _TIME),
            x2="end:Q",
            y=y,
            color=alt.Color("colour:N", scale=None),
            opacity=alt.Opacity("opacity:Q", scale=None),
            tooltip=["phase:N", "length:Q", "critical:Q", "method:N"],
        )
    )
    layers: list[Any] = [bars]
    if whiskers:
        base = alt.Chart(_data(whiskers)).encode(y=y)
        layers.append(base.mark_rule(color=_INK, strokeWidth=1.5).encode(x=_x("lo", _TIME), x2="hi:Q"))
        ends = base.mark_tick(color=_INK, thickness=1.5, size=10)
        layers += [ends.encode(x=_x(side, _TIME)) for side in ("lo", "hi")]
    if hidden:
        base = alt.Chart(_data(hidden)).encode(y=y)
        layers.append(
            base.mark_rule(strokeDash=[4, 3], strokeWidth=3).encode(
                x=_x("start", _TIME), x2="end:Q", color=alt.Color("colour:N", scale=None)
            )
        )
        layers.append(base.mark_text(dy=-8, fontSize=11).encode(x=_x("middle", _TIME), text="note:N"))
    return _spec(alt.layer(*layers), height=26 * len(order) + 12)


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


def latency_chart(analysis: RunAnalysis) -> Spec | None:
    """Return the time to first token over time, from due and from sent; None without an answered request."""
    frame = analysis.latency_over_time
    if frame.is_empty():
        return None
    zero = _zero(analysis)
    rows = []
    for row in frame.iter_rows(named=True):
        t = (row["start_us"] - zero) / US_PER_S
        rows += [
            {"t": t, "s": row[f"{name}_{quantile}"], "measured": label, "quantile": quantile}
            for name, label in (("ttft_from_due", "from due"), ("ttft_from_sent", "from sent"))
            for quantile in ("p50", "p95")
            if (row[f"{name}_{quantile}"] or 0) > 0
        ]
    if not rows:
        return None
    chart = (
        alt.Chart(_data(rows))
        .mark_line(interpolate="linear")
        .encode(
            x=_x("t", _TIME),
            y=alt.Y(
                "s:Q",
                title="time to first token, s (log)",
                scale=alt.Scale(type="log", nice=True),
                axis=alt.Axis(values=[0.001, 0.01, 0.1, 1, 10, 100, 1000], format="~g"),
            ),
            color=alt.Color(
                "measured:N",
                legend=None,
                scale=alt.Scale(domain=["from due", "from sent"], range=[palette.FROM_DUE, palette.FROM_SENT]),
            ),
            strokeDash=alt.StrokeDash(
                "quantile:N", title=None, scale=alt.Scale(domain=["p50", "p95"], range=[[1, 0], [5, 3]])
            ),
            # From due lies under from sent: where a client is on time the two are one line with a rim.
            size=alt.condition("datum.measured == 'from due'", alt.value(4.5), alt.value(1.6)),
            tooltip=["measured:N", "quantile:N", "t:Q", "s:Q"],
        )
    )
    return _spec(alt.layer(chart), height=210)


def lanes(pair: Pair) -> Spec | None:
    """Return both arms' start-ups as the pair identifies them, pull and download on lanes of their own."""
    if pair.pull is None or pair.pull.before_us is None or pair.provisioning_us is None:
        return None
    rows: list[dict[str, Any]] = []
    sides = (
        (pair.before, pair.pull.before_us, pair.download_before, pair.startup_before_us),
        (pair.after, pair.pull.after_us, pair.download_after, pair.startup_after_us),
    )
    order = []
    for arm, pull, download, startup in sides:
        assert download is not None
        joined = pair.provisioning_us + max(pull, download.at_us)
        lanes_of = ((f"{arm} · image", pull, "pull"), (f"{arm} · model", download.at_us, "download"))
        for lane, length, phase in lanes_of:
            order.append(lane)
            rows.append(_lane(lane, 0, pair.provisioning_us, "provisioning"))
            if length:
                rows.append(_lane(lane, pair.provisioning_us, pair.provisioning_us + length, phase))
            rows.append(_lane(lane, joined, startup, "start"))
    names = {"provisioning": "provisioning", "pull": "pull", "download": "download", "start": "start and registration"}
    for row in rows:
        row["phase"] = names[row["phase"]]
    scale = alt.Scale(domain=list(names.values()), range=[palette.COLOURS[k] for k in names])
    chart = (
        alt.Chart(_data(rows))
        .mark_bar(height=16, cornerRadius=2)
        .encode(
            x=_x("from", "time, s from the decision to scale"),
            x2="to:Q",
            y=alt.Y("lane:N", sort=order, title=None, axis=alt.Axis(labelLimit=260)),
            color=alt.Color("phase:N", title=None, scale=scale),
            tooltip=["lane:N", "phase:N", "length:Q"],
        )
    )
    return _spec(alt.layer(chart), height=30 * len(order))


def _lane(lane: str, start_us: int, end_us: int, phase: str) -> dict[str, Any]:
    return {
        "lane": lane,
        "from": start_us / US_PER_S,
        "to": end_us / US_PER_S,
        "length": (end_us - start_us) / US_PER_S,
        "phase": phase,
    }


def decomposition(pair: Pair) -> Spec | None:
    """Return the change of the start-up as steps from before to after."""
    if pair.split is None:
        return None
    level = pair.startup_before_us
    rows = [
        {
            "step": f"before: {pair.before}",
            "from": 0.0,
            "to": level / US_PER_S,
            "colour": _GREY,
            "label": f"{level / US_PER_S:.1f} s",
        }
    ]
    named = (
        ("pull beyond the download", "structural", pair.split.structural),
        ("download runs faster alone", "relief", pair.split.relief),
        ("everything else", "rest", pair.split.rest),
    )
    for words, key, us in named:
        rows.append(
            {
                "step": words,
                "from": (level - us) / US_PER_S,
                "to": level / US_PER_S,
                "colour": palette.SPLIT[key],
                "label": f"−{us / US_PER_S:.1f} s" if us >= 0 else f"+{-us / US_PER_S:.1f} s",
            }
        )
        level -= us
    rows.append(
        {
            "step": f"after: {pair.after}",
            "from": 0.0,
            "to": level / US_PER_S,
            "colour": _GREY,
            "label": f"{level / US_PER_S:.1f} s",
        }
    )
    for row in rows:
        row["right"] = max(float(str(row["from"])), float(str(row["to"])))
    y = alt.Y("step:N", sort=[str(r["step"]) for r in rows], title=None, axis=alt.Axis(labelLimit=260))
    bars = (
        alt.Chart(_data(rows))
        .mark_bar(height=18, cornerRadius=2)
        .encode(
            x=_x("from", "start-up, s"),
            x2="to:Q",
            y=y,
            color=alt.Color("colour:N", scale=None),
            tooltip=["step:N", "label:N"],
        )
    )
    text = (
        alt.Chart(_data(rows))
        .mark_text(align="left", dx=5, fontSize=12)
        .encode(x=_x("right", "start-up, s"), y=y, text="label:N")
    )
    return _spec(alt.layer(bars, text), height=30 * len(rows))


def _zero(analysis: RunAnalysis) -> int:
    for found in analysis.scale_outs:
        return found.onset.at_us if found.onset is not None else found.decision.at_us
    first: int = analysis.load["start_us"].min()  # type: ignore[assignment]
    return first


def _x(field: str, title: str) -> alt.X:
    return alt.X(f"{field}:Q", title=title, scale=alt.Scale(nice=False), axis=alt.Axis(grid=True, tickCount=10))


def _data(rows: Sequence[dict[str, Any]]) -> alt.Data:
    return alt.Data(values=list(rows))  # type: ignore[no-untyped-call]


def _spec(chart: alt.LayerChart | alt.FacetChart, height: int) -> Spec:
    """Return the specification, sized to its place, readable on light and dark, naming no address."""
    sized = chart.properties(width="container", height=height).configure(
        background="transparent",
        font="system-ui, sans-serif",
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            gridColor=_GREY,
            gridOpacity=0.22,
            domainColor=_GREY,
            tickColor=_GREY,
            labelFontSize=11,
            titleFontSize=11,
            titleFontWeight="normal",
        ),
        legend=alt.LegendConfig(orient="top", labelFontSize=11, symbolStrokeWidth=3, columns=2),
    )
    found: Spec = sized.to_dict()
    found.pop("$schema", None)
    found["autosize"] = {"type": "fit-x", "contains": "padding"}
    return found
