"""Pieces that several sections of the report are made of."""

from __future__ import annotations

from typing import Any

from analysis.report.markup import Markup, element

Charts = dict[str, Any]
"""Chart specifications by the id of the place that they fill."""


def figure(title: str | None, spec: Any, charts: Charts, place: str, note: Any = None) -> list[Any]:
    """Return a chart with its title and note as one piece; without a title it goes on from the chart above."""
    if spec is None:
        return []
    charts[place] = spec
    drawn = element("div", id=place, class_="chart", role="img", aria_label=title or "the same, continued")
    return [element("div", element("h3", title) if title else None, note, drawn, class_="figure")]


def key(colour: str, text: str) -> Markup:
    """Return one entry of a chart's key: a swatch and its text."""
    return element("span", element("span", class_="swatch", style=f"background:{colour}"), text, class_="key")
