"""Pieces that several sections of the report are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.report.markup import Markup, element

Charts = dict[str, Any]
"""Chart specifications by the id of the place that they fill."""


Keys = Sequence[tuple[str, str]]
"""A chart's key: (colour, what it stands for)."""


def figure(title: str | None, spec: Any, charts: Charts, place: str, note: Any = None, *, keys: Keys = ()) -> list[Any]:
    """Return a chart with its title, key and note as one piece; without a title it goes on from the chart above."""
    if spec is None:
        return []
    heading = element("h3", title) if title else None
    entries = element("p", *(key(colour, text) for colour, text in keys)) if keys else None
    chart = drawn(title or "the same, continued", spec, charts, place, keys=keys)
    return [element("div", heading, entries, note, chart, class_="figure")]


def drawn(title: str, spec: dict[str, Any], charts: Charts, place: str, *, keys: Keys = ()) -> Markup:
    """Return the place that a chart fills; the title is its text alternative. Its picture file has title and key."""
    charts[place] = spec | {"usermeta": {"title": title, "keys": [list(one) for one in keys]}}
    return element("div", id=place, class_="chart", role="img", aria_label=title)


def key(colour: str, text: str) -> Markup:
    """Return one entry of a chart's key: a swatch and its text."""
    return element("span", element("span", class_="swatch", style=f"background:{colour}"), text, class_="key")
