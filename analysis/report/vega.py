"""What all charts of the report share: an x axis, data, and a specification that fits its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import altair as alt

Spec = dict[str, Any]
GREY: Final = "#8a8a8a"
_PX_PER_TICK: Final = 80


def x_axis(field: str, title: str) -> alt.X:
    """Return an x encoding with as many ticks as its width has room for."""
    ticks = alt.ExprRef(f"max(3, min(10, width / {_PX_PER_TICK}))")
    return alt.X(f"{field}:Q", title=title, scale=alt.Scale(nice=False), axis=alt.Axis(grid=True, tickCount=ticks))


def data(rows: Sequence[dict[str, Any]]) -> alt.Data:
    """Return rows as data within the specification."""
    return alt.Data(values=list(rows))  # type: ignore[no-untyped-call]


def specification(chart: alt.LayerChart | alt.FacetChart, height: int) -> Spec:
    """Return the specification, sized to its place, readable on light and dark, naming no address."""
    sized = chart.properties(width="container", height=height).configure(
        background="transparent",
        font="system-ui, sans-serif",
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            gridColor=GREY,
            gridOpacity=0.22,
            domainColor=GREY,
            tickColor=GREY,
            labelFontSize=11,
            titleFontSize=11,
            titleFontWeight="normal",
        ),
    )
    found: Spec = sized.to_dict()
    found.pop("$schema", None)
    found["autosize"] = {"type": "fit-x", "contains": "padding"}
    return found
