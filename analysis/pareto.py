"""Which variants of a sweep nothing beats: the Pareto front of time to capacity, damage and cost. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Objectives = tuple[float, float, float]


def objectives(point: dict[str, Any]) -> Objectives:
    """Return a sweep point's medians: time to capacity (s; infinite when not reached), violations, cost.

    Cost is instance-hours where no price is known.
    """
    time = point["time_to_capacity_s"]["p50"]
    cost = point["cost"] or point["instance_hours"]
    return (math.inf if time is None else time, point["violations"]["p50"], cost["p50"])


def front(points: Sequence[Objectives]) -> list[bool]:
    """Tell of each point whether none other is at least as good in everything and better in something.

    >>> front([(1.0, 5.0, 2.0), (2.0, 5.0, 1.0), (2.0, 6.0, 2.0)])
    [True, True, False]
    """
    return [not any(_dominates(other, point) for other in points) for point in points]


def _dominates(one: Objectives, other: Objectives) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and one != other


def label(point: dict[str, Any], points: Sequence[dict[str, Any]]) -> str:
    """Return a point's name: its values of the axes that differ between the points."""
    varying = {axis for axis in point["values"] if len({p["values"][axis] for p in points}) > 1}
    shown = [f"{axis} {value}" for axis, value in point["values"].items() if axis in varying]
    return ", ".join(shown) or "as it is"
