"""Counts along a run's time axis in bounded memory: the whole run ever coarser, or its end alone. Pure."""

from __future__ import annotations

from typing import Any

from loadgen.histogram import Histogram


class Bin:
    """What fell into one stretch of time. Latency counts where a request was due, all else where it happened."""

    __slots__ = ("_told", "due", "failed", "lag_us", "latency", "ok", "sent", "version")

    def __init__(self) -> None:
        self.due = self.sent = self.ok = self.failed = 0
        self.lag_us: int | None = None
        self.latency = Histogram()
        self.version = 0
        self._told: tuple[int, int | None, int | None] = (0, None, None)

    def take(self, other: Bin) -> None:
        """Add what another bin counted."""
        self.due += other.due
        self.sent += other.sent
        self.ok += other.ok
        self.failed += other.failed
        if other.lag_us is not None:
            self.lag_us = max(self.lag_us or 0, other.lag_us)
        self.latency.merge(other.latency)

    def quantiles_us(self) -> tuple[int | None, int | None]:
        """Return the median and the 95th percentile of the latency; sorted anew only when something was added."""
        if self._told[0] != len(self.latency):
            self._told = (len(self.latency), self.latency.quantile_us(0.5), self.latency.quantile_us(0.95))
        return self._told[1:]


class Series:
    """Bins of equal width, at most `most` of them.

    A `rolling` series forgets what lies further back; another one doubles its width when it has no more room.
    `generation` changes when all of its bins did.
    """

    def __init__(self, width_us: int, most: int, *, rolling: bool) -> None:
        self.width_us = width_us
        self.generation = 0
        self.version = 0
        self._most = most
        self._rolling = rolling
        self._bins: dict[int, Bin] = {}
        self._newest = 0

    def at(self, us: int) -> Bin | None:
        """Return the bin of an instant (µs from the series' start), marked as changed; None where it is forgotten."""
        index = us // self.width_us
        if index < 0:
            return None
        while not self._rolling and index >= self._most:
            self._double()
            index = us // self.width_us
        if index > self._newest:
            self._newest = index
            if self._rolling:
                for old in [i for i in self._bins if i <= index - self._most]:
                    del self._bins[old]
        if self._rolling and index <= self._newest - self._most:
            return None
        found = self._bins.get(index)
        if found is None:
            found = self._bins[index] = Bin()
        self.version += 1
        found.version = self.version
        return found

    def between(self, begin_us: int, end_us: int) -> list[tuple[int, Bin]]:
        """Return the bins (with their start) that lie wholly within [begin, end); those that are missing are empty."""
        width = self.width_us
        return [
            (index * width, found)
            for index, found in sorted(self._bins.copy().items())
            if index * width >= begin_us and (index + 1) * width <= end_us
        ]

    def columns(self, since: int, *, latency_scale: float) -> dict[str, list[Any]]:
        """Return the bins that changed after version `since`, as columns; latencies in seconds, lag in ms.

        `i` counts bins from the series' start; null is *nothing was measured*. `latency_scale` turns client time into
        endpoint time.
        """
        changed = sorted((i, b) for i, b in self._bins.copy().items() if b.version > since)
        quantiles = [b.quantiles_us() for _, b in changed]
        return {
            "i": [i for i, _ in changed],
            "due": [b.due for _, b in changed],
            "sent": [b.sent for _, b in changed],
            "ok": [b.ok for _, b in changed],
            "failed": [b.failed for _, b in changed],
            "p50": [_seconds(p50, latency_scale) for p50, _ in quantiles],
            "p95": [_seconds(p95, latency_scale) for _, p95 in quantiles],
            "lag": [None if b.lag_us is None else round(b.lag_us / 1e3, 2) for _, b in changed],
        }

    def _double(self) -> None:
        self.width_us *= 2
        self.generation += 1
        self._newest //= 2
        old, self._bins = self._bins, {}
        self.version += 1
        for index, found in sorted(old.items()):
            kept = self._bins.setdefault(index // 2, Bin())
            kept.take(found)
            kept.version = self.version


def _seconds(us: int | None, scale: float) -> float | None:
    return None if us is None else float(f"{us * scale / 1e6:.4g}")
