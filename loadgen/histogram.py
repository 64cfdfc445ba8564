"""Quantiles of any number of durations in bounded memory."""

from __future__ import annotations

import math
from typing import Any


class Histogram:
    """Counts of durations (µs) in buckets that grow by 2 %: a quantile is at most 2 % too high, never too low.

    >>> histogram = Histogram()
    >>> for us in (100, 200, 300, 40_000): histogram.add(us)
    >>> histogram.quantile_us(0.5) >= 200, histogram.quantile_us(1.0), len(histogram)
    (True, 40000, 4)
    """

    __slots__ = ("_counts", "_max_us", "_total")
    _RATIO = math.log(1.02)

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._total = 0
        self._max_us = 0

    def __len__(self) -> int:
        return self._total

    def add(self, us: int) -> None:
        """Count one duration; what is below a microsecond counts as one."""
        bucket = math.ceil(math.log(us) / self._RATIO) if us > 1 else 0
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self._total += 1
        self._max_us = max(self._max_us, us)

    def merge(self, other: Histogram) -> None:
        """Count what another one counted."""
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self._total += other._total
        self._max_us = max(self._max_us, other._max_us)

    def to_document(self) -> dict[str, Any]:
        """Return what was counted in plain values, for `from_document`."""
        return {"counts": list(self._counts.items()), "max_us": self._max_us}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Histogram:
        """Return a histogram from `to_document`.

        >>> histogram = Histogram()
        >>> histogram.add(1500)
        >>> Histogram.from_document(histogram.to_document()).quantile_us(0.5)
        1500
        """
        found = cls()
        found._counts = {int(bucket): int(count) for bucket, count in document["counts"]}
        found._total = sum(found._counts.values())
        found._max_us = int(document["max_us"])
        return found

    def quantile_us(self, q: float) -> int | None:
        """Return the q-quantile (0 to 1) in µs, or `None` while nothing was counted."""
        if not self._total:
            return None
        wanted = max(1, math.ceil(q * self._total))
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(self._max_us, math.ceil(math.exp(bucket * self._RATIO)))
        return self._max_us
