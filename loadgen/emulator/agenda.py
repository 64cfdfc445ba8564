"""The model's agenda: what happens when, in integer microseconds of endpoint time."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Callable
from enum import IntEnum
from typing import Any


class Rank(IntEnum):
    """Which of several things at one instant comes first: a datapoint is visible before an alarm looks at it."""

    EMISSION = 0
    EVALUATION = 1
    LIFE_CYCLE = 2
    SERVING = 3


class Agenda:
    """Pending actions in order of time, then rank, then the order in which they were entered."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us
        self._heap: list[tuple[int, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._entered = itertools.count()
        self._shown: list[int] = []

    def shows(self, at_us: int | None = None) -> None:
        """Note that what the platform answers changes at an instant, or now."""
        bisect.insort(self._shown, self.now_us if at_us is None else at_us)

    def changed(self, after_us: int, until_us: int) -> bool:
        """Tell whether what the platform answers (but for metric data) changed in `(after, until]`."""
        return bisect.bisect_right(self._shown, after_us) < bisect.bisect_right(self._shown, until_us)

    def at(self, at_us: int, rank: Rank, action: Callable[..., None], *arguments: Any) -> None:
        """Enter an action; one in the past happens at the present instant."""
        when = max(at_us, self.now_us)
        heapq.heappush(self._heap, (when, rank, next(self._entered), action, arguments))

    def next_us(self) -> int | None:
        """Return the instant of the next action, or None when there is none."""
        return self._heap[0][0] if self._heap else None

    def advance(self, to_us: int) -> None:
        """Do everything due up to and including `to_us`, each at its own instant; time never goes back."""
        while self._heap and self._heap[0][0] <= to_us:
            self.now_us, _, _, action, arguments = heapq.heappop(self._heap)
            action(*arguments)
        self.now_us = max(self.now_us, to_us)
