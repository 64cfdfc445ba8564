"""The index of dispersion for counts: how bursty arrivals are at each time scale.

`IDC(w) = Var N(w) / E N(w)`, with N(w) the number of arrivals in a window of length w (Cox and Lewis, 1966). Poisson
arrivals have 1 at every scale; a larger value means bursts at that scale, a smaller one regularity.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

from traces.units import US_PER_MS, US_PER_S

BASE_US: Final = 100 * US_PER_MS
WINDOWS_US: Final = (BASE_US, US_PER_S, 10 * US_PER_S, 60 * US_PER_S, 600 * US_PER_S)
MIN_WINDOWS: Final = 10
"""Fewer windows tell nothing: even for Poisson arrivals the estimate is off by sqrt(2 / (windows - 1))."""


class BinCounts:
    """Arrivals per bin, added in order of arrival; memory grows with the bins that hold any, not with rows."""

    def __init__(self, bin_us: int = BASE_US) -> None:
        self.bin_us = bin_us
        self._parts: list[pl.DataFrame] = []

    def add(self, arrivals_us: pl.Series) -> None:
        """Count one batch."""
        bins = (arrivals_us // self.bin_us).alias("bin").to_frame()
        self._parts.append(bins.group_by("bin", maintain_order=True).agg(pl.len().cast(pl.Int64).alias("count")))

    def table(self, bin_us: int | None = None) -> pl.DataFrame:
        """Return `bin` and `count` in order, without empty bins; `bin_us` is a multiple of the base bin."""
        if not self._parts:
            return pl.DataFrame(schema={"bin": pl.Int64, "count": pl.Int64})
        factor = 1 if bin_us is None else bin_us // self.bin_us
        grouped = pl.concat(self._parts).group_by(pl.col("bin") // factor).agg(pl.col("count").sum())
        return grouped.sort("bin")


def idc(counts: Iterable[int], windows: int) -> float | None:
    """Return the index of dispersion of counts in `windows` equal windows; those not listed are empty.

    None with fewer than `MIN_WINDOWS` windows, or without an arrival. The variance is the unbiased one.

    >>> idc([1] * 30, 30), idc([2] * 30, 60)
    (0.0, 1.0169491525423728)
    """
    listed = list(counts)
    total = sum(listed)
    if windows < MIN_WINDOWS or not total:
        return None
    squares = sum(count * count for count in listed)
    # Integers until the last division: no cancellation.
    return (windows * squares - total * total) / ((windows - 1) * total)


def idc_by_window(bins: BinCounts, span_us: int) -> dict[int, float | None]:
    """Return the index of dispersion by window length (µs), over the whole windows in `[0, span_us)`."""
    found: dict[int, float | None] = {}
    for window_us in WINDOWS_US:
        windows = span_us // window_us
        counts = bins.table(window_us).filter(pl.col("bin") < windows)["count"]
        found[window_us] = idc(counts.to_list(), windows)
    return found


def idc_of(arrivals_us: pl.Series, window_us: int, span_us: int | None = None) -> float | None:
    """Return the index of dispersion of arrivals at one window length; `span_us` defaults to the last arrival."""
    if arrivals_us.is_empty():
        return None
    length_us = max(arrivals_us.to_list()) if span_us is None else span_us
    windows = length_us // window_us
    bins = (arrivals_us // window_us).alias("bin").to_frame().filter(pl.col("bin") < windows)
    return idc(bins.group_by("bin").agg(pl.len())["len"].to_list(), windows)
