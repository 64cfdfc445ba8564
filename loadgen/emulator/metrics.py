"""How the platform sees the endpoint: a quantity watched over fixed periods, and its datapoints.

A datapoint is stamped with its period's start, covers `[start, start + period)` and can be seen some time after its
period ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec


class Datapoint(msgspec.Struct, frozen=True, kw_only=True):
    """One period of one metric. `exceeded_us` is the first instant in it when the value was above the watch level."""

    start_us: int
    period_us: int
    minimum: float
    maximum: float
    total: float
    samples: float
    visible_us: int
    exceeded_us: int | None = None

    def statistic(self, name: str) -> float:
        """Return one statistic by CloudWatch's name for it; KeyError for a name it does not have."""
        return {
            "Minimum": self.minimum,
            "Maximum": self.maximum,
            "Sum": self.total,
            "SampleCount": self.samples,
            "Average": self.total / self.samples,
        }[name]


def merge(points: Iterable[Datapoint], start_us: int, period_us: int) -> Datapoint | None:
    """Return the datapoint of a longer period from those of its parts; None when there is none."""
    listed = list(points)
    if not listed:
        return None
    exceeded = [point.exceeded_us for point in listed if point.exceeded_us is not None]
    return Datapoint(
        start_us=start_us,
        period_us=period_us,
        minimum=min(point.minimum for point in listed),
        maximum=max(point.maximum for point in listed),
        total=sum(point.total for point in listed),
        samples=sum(point.samples for point in listed),
        visible_us=max(point.visible_us for point in listed),
        exceeded_us=min(exceeded, default=None),
    )


class Gauge:
    """A quantity that holds a value until it is set anew. Its average is weighted by time."""

    __slots__ = (
        "_changed_us",
        "_exceeded_us",
        "_integral",
        "_maximum",
        "_minimum",
        "_opened_us",
        "_watch_above",
        "value",
    )

    def __init__(self, now_us: int, watch_above: float) -> None:
        self.value = 0.0
        self._watch_above = watch_above
        self._opened_us = self._changed_us = now_us
        self._minimum = self._maximum = self._integral = 0.0
        self._exceeded_us: int | None = None

    def set(self, now_us: int, value: float) -> None:
        """Change the value at an instant."""
        self._integral += self.value * (now_us - self._changed_us)
        self._changed_us = now_us
        self.value = value
        if value < self._minimum:
            self._minimum = value
        elif value > self._maximum:
            self._maximum = value
        if value > self._watch_above and self._exceeded_us is None:
            self._exceeded_us = now_us

    def held(self, never: int) -> tuple[tuple[float, ...], tuple[int, int]]:
        """Return all that it holds, for a loop that sets it elsewhere and comes back with `resume`.

        Value, integral, minimum, maximum, the watched limit; when it changed and when it exceeded (`never` for None).
        """
        exceeded_us = never if self._exceeded_us is None else self._exceeded_us
        values = (self.value, self._integral, self._minimum, self._maximum, self._watch_above)
        return values, (self._changed_us, exceeded_us)

    def resume(self, values: Sequence[float], instants_us: Sequence[int], never: int) -> None:
        """Hold what `held` returned and a loop has gone on with."""
        self.value, self._integral, self._minimum, self._maximum, _ = values
        self._changed_us, exceeded_us = instants_us
        self._exceeded_us = None if exceeded_us == never else exceeded_us

    def close(self, now_us: int, lag_us: int) -> Datapoint:
        """Return the datapoint of the period that ends now, and open the next one."""
        self.set(now_us, self.value)
        length = max(1, now_us - self._opened_us)
        point = Datapoint(
            start_us=self._opened_us,
            period_us=length,
            minimum=self._minimum,
            maximum=self._maximum,
            total=self._integral / length,
            samples=1.0,
            visible_us=now_us + lag_us,
            exceeded_us=self._exceeded_us,
        )
        self._opened_us, self._integral = now_us, 0.0
        self._minimum = self._maximum = self.value
        self._exceeded_us = now_us if self.value > self._watch_above else None
        return point


class Tally:
    """Things that happen one by one, each with a value; a period without any has no datapoint."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self._first_us: int | None = None

    def add(self, value: float, at_us: int | None = None) -> None:
        """Count one occurrence; where `at_us` is given, the period's first one counts as when it exceeded zero."""
        self.values.append(value)
        if self._first_us is None:
            self._first_us = at_us

    def close(self, start_us: int, now_us: int, lag_us: int) -> Datapoint | None:
        """Return the datapoint of the period that ends now, or None when nothing happened in it."""
        values, self.values = self.values, []
        first_us, self._first_us = self._first_us, None
        if not values:
            return None
        return Datapoint(
            start_us=start_us,
            period_us=now_us - start_us,
            minimum=min(values),
            maximum=max(values),
            total=sum(values),
            samples=float(len(values)),
            visible_us=now_us + lag_us,
            exceeded_us=first_us,
        )


class Series:
    """One metric's datapoints, by the start of their period."""

    def __init__(self, period_us: int) -> None:
        self.period_us = period_us
        self._points: dict[int, Datapoint] = {}

    def add(self, point: Datapoint) -> None:
        """Keep a datapoint, under the start of the period it falls in."""
        self._points[point.start_us // self.period_us * self.period_us] = point

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever measured."""
        return not self._points

    def over(self, start_us: int, period_us: int, seen_at_us: int) -> Datapoint | None:
        """Return what can be seen at an instant of the period `[start, start + period)`, or None."""
        parts = (self._points.get(at) for at in range(start_us, start_us + period_us, self.period_us))
        return merge((p for p in parts if p is not None and p.visible_us <= seen_at_us), start_us, period_us)

    def between(self, from_us: int, to_us: int, period_us: int, seen_at_us: int) -> list[Datapoint]:
        """Return the datapoints of the periods that start in `[from, to)`, oldest first."""
        if not self._points:
            return []
        oldest = next(iter(self._points))
        first = -(-max(from_us, oldest - period_us) // period_us) * period_us
        starts = range(first, min(to_us, seen_at_us), period_us)
        found = (self.over(start, period_us, seen_at_us) for start in starts)
        return [point for point in found if point is not None]
