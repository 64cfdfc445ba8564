"""A trace's picture as one Vega-Lite specification: rates with their bursts, concurrency, gaps, dispersion, lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import altair as alt

from traces.bursts import BurstReport
from traces.describe import Description
from traces.units import US_PER_S, format_duration

CHART_BINS: Final = 240
_WIDTH: Final = 820
_HALF: Final = 354
_GREY: Final = "#8a8a8a"
_BLUE: Final = "#0072B2"
_SKY: Final = "#56B4E9"
_GREEN: Final = "#009E73"
_ORANGE: Final = "#E69F00"
_BURSTS_SHOWN: Final = 20


def picture(described: Description, bursts: BurstReport, title: str) -> dict[str, Any]:
    """Return the specification; it names no address and loads nothing."""
    unit, per_unit = _time_unit(described.span_us)
    rows: list[Any] = [_rates(described, bursts, unit, per_unit)]
    if described.concurrency is not None:
        rows.append(_under_way(described, unit, per_unit))
    rows.append(alt.hconcat(_gaps(described), _dispersion(described), spacing=60))
    lengths = [
        _lengths(histogram, name, colour)
        for histogram, name, colour in (
            (described.input_tokens_histogram, "input tokens", _BLUE),
            (described.output_tokens_histogram, "output tokens", _SKY),
        )
        if histogram
    ]
    if lengths:
        rows.append(alt.hconcat(*lengths, spacing=60))
    chart = alt.vconcat(*rows, spacing=26, title=alt.TitleParams(title, anchor="start", fontSize=15, offset=12))
    axis = alt.AxisConfig(
        gridColor=_GREY,
        gridOpacity=0.22,
        domainColor=_GREY,
        tickColor=_GREY,
        titleFontWeight="normal",
        titleFontSize=11,
    )
    styled = chart.configure(
        font="system-ui, sans-serif",
        view=alt.ViewConfig(stroke=None),
        axis=axis,
        axisY=alt.AxisConfig(minExtent=38),
        padding=16,
    )
    found: dict[str, Any] = styled.to_dict()
    found.pop("$schema", None)
    return found


def _rates(described: Description, bursts: BurstReport, unit: str, per_unit: float) -> alt.LayerChart | alt.FacetChart:
    rates = described.rates
    points = [{"t": i * rates.bin_us / per_unit, "rate": rate} for i, rate in enumerate(rates.per_s)]
    points.append({**points[-1], "t": len(rates.per_s) * rates.bin_us / per_unit})
    span = [0, points[-1]["t"]]
    line = (
        alt.Chart(_data(points))
        .mark_area(interpolate="step-after", color=_BLUE, opacity=0.25, line={"color": _BLUE, "strokeWidth": 1.2})
        .encode(
            x=_time(unit, span),
            y=alt.Y("rate:Q", title=f"requests/s ({format_duration(rates.bin_us)} bins)"),
            tooltip=["t:Q", "rate:Q"],
        )
    )
    bands = [
        {"t": burst.start_us / per_unit, "end": burst.end_us / per_unit, "window": burst.window}
        for burst in bursts.bursts[:_BURSTS_SHOWN]
    ]
    layers: list[Any] = [line]
    if bands:
        band = alt.Chart(_data(bands)).mark_rect(color=_ORANGE, opacity=0.35)
        layers.insert(0, band.encode(x=_time(unit, span), x2="end:Q", tooltip=["window:N"]))
    more = (
        f", the {_BURSTS_SHOWN} strongest of {len(bursts.bursts)} bursts shaded"
        if len(bursts.bursts) > _BURSTS_SHOWN
        else ""
    )
    shaded = ", bursts shaded" if bands and not more else more
    return alt.layer(*layers).properties(width=_WIDTH, height=170, title=_title(f"Arrivals{shaded}"))


def _under_way(described: Description, unit: str, per_unit: float) -> alt.Chart:
    assert described.concurrency is not None
    found = described.concurrency
    points = [{"t": i * found.bin_us / per_unit, "n": level} for i, level in enumerate(found.highest)]
    share = "" if found.known_share == 1 else f", from the {found.known_share:.0%} of rows with a latency"
    chart: alt.Chart = (
        alt.Chart(_data(points))
        .mark_line(interpolate="step-after", color=_GREEN, strokeWidth=1.4)
        .encode(x=_time(unit, [0, len(points) * found.bin_us / per_unit]), y=alt.Y("n:Q", title="requests"))
        .properties(width=_WIDTH, height=110, title=_title(f"Under way (highest in each bin){share}"))
    )
    return chart


def _gaps(described: Description) -> alt.Chart:
    bins = [
        {"from": max(low, 1) / US_PER_S, "to": (high + 1) / US_PER_S, "n": count}
        for low, high, count in described.interarrival_histogram_us
        if high
    ]
    # A gap of nothing has no place on a logarithmic axis.
    gaps = sum(count for _, _, count in described.interarrival_histogram_us)
    ties = sum(count for _, high, count in described.interarrival_histogram_us if not high)
    tied = f" ({ties:,} of {gaps:,} are 0)" if ties else ""
    cv = "" if described.interarrival_cv is None else f", CV {described.interarrival_cv:.3g}"
    return _histogram(bins, "seconds (log)", _GREEN).properties(title=_title(f"Time between arrivals{cv}{tied}"))


def _dispersion(described: Description) -> alt.LayerChart | alt.FacetChart:
    points = [{"w": float(w.removesuffix("s")), "i": i} for w, i in described.dispersion.items() if i]
    x = alt.X(
        "w:Q", title="window, s (log)", scale=alt.Scale(type="log", domain=[0.08, 750], nice=False), axis=_log_axis()
    )
    highest = max([2.0, *(point["i"] * 1.3 for point in points)])
    lowest = min([0.5, *(point["i"] / 1.3 for point in points)])
    y = alt.Y(
        "i:Q",
        title="variance / mean (log)",
        scale=alt.Scale(type="log", domain=[lowest, highest], nice=False),
        axis=_log_axis(),
    )
    line = alt.Chart(_data(points)).mark_line(point={"size": 45, "color": _ORANGE}, color=_ORANGE).encode(x=x, y=y)
    poisson = alt.Chart(_data([{"i": 1}])).mark_rule(strokeDash=[4, 3], color=_GREY).encode(y=y)
    title = _title("Index of dispersion (1: Poisson)")
    return alt.layer(poisson, line).properties(width=_HALF, height=130, title=title)


def _lengths(histogram: Sequence[tuple[int, int, int]], name: str, colour: str) -> alt.Chart:
    # Zero has no place on a logarithm: its bar stands left of one.
    bins = [{"from": low or 0.5, "to": high + 1 if low else 1, "n": count} for low, high, count in histogram]
    return _histogram(bins, "tokens (log)", colour).properties(title=_title(name.capitalize()))


def _histogram(bins: Sequence[dict[str, Any]], title: str, colour: str) -> alt.Chart:
    edges = [edge for row in bins for edge in (row["from"], row["to"])] or [1, 2]
    scale = alt.Scale(type="log", domain=[min(edges), max(edges)], nice=False)
    chart: alt.Chart = (
        alt.Chart(_data(bins))
        .mark_bar(color=colour, opacity=0.75, binSpacing=1)
        .encode(
            x=alt.X("from:Q", title=title, scale=scale, axis=_log_axis(), bin="binned"),
            x2="to:Q",
            y=alt.Y("n:Q", title="rows"),
            tooltip=["from:Q", "to:Q", "n:Q"],
        )
        .properties(width=_HALF, height=130)
    )
    return chart


def _time(unit: str, domain: list[float]) -> alt.X:
    scale = alt.Scale(domain=domain, nice=False)
    return alt.X("t:Q", title=f"time, {unit} from the start", scale=scale, axis=alt.Axis(tickCount=12))


def _time_unit(span_us: int) -> tuple[str, float]:
    for unit, seconds, beyond in (("days", 86_400, 3 * 86_400), ("h", 3600, 3 * 3600), ("min", 60, 300)):
        if span_us > beyond * US_PER_S:
            return unit, seconds * US_PER_S
    return "s", US_PER_S


def _log_axis() -> alt.Axis:
    return alt.Axis(values=[10.0**n for n in range(-6, 9)], format="~s", grid=True)


def _title(text: str) -> alt.TitleParams:
    return alt.TitleParams(text, anchor="start", frame="group", fontSize=12, fontWeight="normal")


def _data(rows: Sequence[dict[str, Any]]) -> alt.Data:
    return alt.Data(values=list(rows))  # type: ignore[no-untyped-call]
