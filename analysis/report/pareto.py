"""The picture of a sweep: time to capacity and damage against cost, what nothing beats standing out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import altair as alt

from analysis.pareto import front, label, objectives
from analysis.report import palette
from analysis.report.vega import GREY, Spec, data
from traces.errors import BadInputError
from traces.run import write_atomically

_SIZE: Final = (430, 330)
_LABELLED_AT_MOST: Final = 10
_CHARACTERS_AT_MOST: Final = 46


def write_picture(sweep: dict[str, Any], path: Path) -> Path:
    """Write the picture of a sweep document as SVG or PNG, by the path's ending, and return the path."""
    import vl_convert

    spec = picture(sweep)
    if path.suffix == ".svg":
        content = vl_convert.vegalite_to_svg(spec).encode()
    elif path.suffix == ".png":
        content = vl_convert.vegalite_to_png(spec, scale=2)
    else:
        raise BadInputError(f"{path}: a picture is .svg or .png; name it so")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return path


def picture(sweep: dict[str, Any]) -> Spec:
    """Return both panels as one specification. Points that never reached capacity are left out of the first."""
    points = sweep["points"]
    best = front([objectives(point) for point in points])
    # Numbers stand in the picture, names beside it: names would lie on each other.
    aims = [objectives(point) for point in points]
    ranked = sorted({aim for aim, on_front in zip(aims, best, strict=True) if on_front}, key=lambda aim: aim[::-1])
    number = {aim: str(place) for place, aim in enumerate(ranked, 1)}
    rows = [
        _row(point, best[k], number.get(aims[k], "") if best[k] else "", label(point, points))
        for k, point in enumerate(points)
    ]
    priced = points[0]["cost"] is not None
    cost = f"cost per run ({sweep['currency']})" if priced else "instance-hours per run"
    reached = [row for row in rows if row["time"] is not None]
    left = _panel(reached, "time", "time to capacity (s)", cost)
    right = _panel(rows, "damage", f"requests beyond {sweep['ttft_s']:g} s to the first token, or failed", cost)
    chart = alt.vconcat(alt.hconcat(left, right), _names(rows)).properties(
        title=alt.TitleParams(
            "What nothing beats in time, damage and cost (numbered)",
            subtitle=f"simulated (emulated endpoint), medians and 5–95 % of {points[0]['runs']} seeds each",
            anchor="start",
            fontSize=14,
        )
    )
    spec: Spec = chart.configure(
        background="white",
        font="Helvetica, Arial, sans-serif",
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(gridColor=GREY, gridOpacity=0.2, domainColor=GREY, tickColor=GREY),
    ).to_dict()
    return spec


def _row(point: dict[str, Any], on_front: bool, number: str, name: str) -> dict[str, Any]:
    cost = point["cost"] or point["instance_hours"]
    time, damage = point["time_to_capacity_s"], point["violations"]
    return {
        "name": name,
        "number": number,
        "front": "nothing beats it" if on_front else "beaten",
        "cost": cost["p50"],
        "time": time["p50"],
        "time_lo": time["p05"],
        "time_hi": time["p95"] if time["p95"] is not None else time["p50"],
        "damage": damage["p50"],
        "damage_lo": damage["p05"],
        "damage_hi": damage["p95"],
    }


def _panel(rows: list[dict[str, Any]], field: str, title: str, cost: str) -> Any:
    scale = alt.Scale(domain=["nothing beats it", "beaten"], range=[palette.CAPACITY, "#b5b5b5"])
    x = alt.X("cost:Q", title=cost, scale=alt.Scale(zero=False, padding=18))
    y = alt.Y(f"{field}:Q", title=title)
    colour = alt.Color("front:N", scale=scale, legend=None)
    base = alt.Chart(data(rows))
    bars = base.mark_rule(opacity=0.6).encode(
        x=x, y=alt.Y(f"{field}_lo:Q", title=title), y2=f"{field}_hi:Q", color=colour
    )
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(x=x, y=y, color=colour, tooltip="name:N")
    names = base.mark_text(dx=9, dy=-7, fontSize=12, fontWeight="bold").encode(x=x, y=y, text="number:N")
    return alt.layer(bars, dots, names).properties(width=_SIZE[0], height=_SIZE[1])


def _names(rows: list[dict[str, Any]]) -> Any:
    """Return the list of the numbered points with their figures."""
    alike: dict[str, list[dict[str, Any]]] = {}
    for row in sorted((row for row in rows if row["number"]), key=lambda row: int(row["number"])):
        alike.setdefault(row["number"], []).append(row)
    lines = [
        {
            "line": place,
            "text": f"{number}  {_short(same[0]['name'])}"
            + (f" (and {len(same) - 1} with the same figures)" if len(same) > 1 else "")
            + (": not reached" if same[0]["time"] is None else f": {same[0]['time']:.0f} s")
            + f", {same[0]['damage']:.0f} requests, {same[0]['cost']:.3g}",
        }
        for place, (number, same) in enumerate(list(alike.items())[:_LABELLED_AT_MOST])
    ]
    return (
        alt.Chart(data(lines))
        .mark_text(align="left", fontSize=12)
        .encode(y=alt.Y("line:O", axis=None), x=alt.value(0), text="text:N")
        .properties(width=2 * _SIZE[0], height=alt.Step(18))
    )


def _short(name: str) -> str:
    return name if len(name) <= 2 * _CHARACTERS_AT_MOST else name[: 2 * _CHARACTERS_AT_MOST - 1] + "…"
