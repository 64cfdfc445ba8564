"""Figures of columns, added up batch by batch."""

from __future__ import annotations

import math
from typing import Final

import polars as pl

_QUANTILES: Final = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


class Moments:
    """Count, mean and squared deviations, merged batch by batch (Chan, Golub and LeVeque, 1979)."""

    def __init__(self) -> None:
        self.count, self.mean, self._squares = 0, 0.0, 0.0

    def add(self, values: pl.Series) -> None:
        """Count the values of one batch."""
        if values.is_empty():
            return
        exact = values.cast(pl.Float64)
        mean = float(exact.sum()) / exact.len()
        squares = float(((exact - mean) ** 2).sum())
        total = self.count + exact.len()
        shift = mean - self.mean
        self._squares += squares + shift**2 * self.count * exact.len() / total
        self.mean += shift * exact.len() / total
        self.count = total

    def standard_deviation(self) -> float:
        """Return the unbiased estimate; needs two values."""
        return math.sqrt(self._squares / (self.count - 1))


class Counts:
    """How often each value occurs: its memory grows with distinct values, not with rows."""

    def __init__(self, kind: type[pl.DataType] = pl.Int64) -> None:
        self.table = pl.DataFrame(schema={"value": kind, "count": pl.Int64})

    def add(self, values: pl.Series) -> None:
        """Count the values of one batch."""
        counted = values.alias("value").to_frame().group_by("value").agg(pl.len().cast(pl.Int64).alias("count"))
        self.table = pl.concat([self.table, counted]).group_by("value").agg(pl.col("count").sum())

    def figures(self) -> dict[str, float | None]:
        """Return mean, min, p50, p90, p99 and max; quantiles are values that occur. All None without a value."""
        if self.table.is_empty():
            return dict.fromkeys(("mean", *_QUANTILES))
        ordered = self.table.sort("value").with_columns(pl.col("count").cum_sum().alias("up_to"))
        rows = ordered["up_to"][-1]
        figures: dict[str, float | None] = {"mean": (ordered["value"] * ordered["count"]).sum() / rows}
        for name, share in _QUANTILES.items():
            rank = max(1, math.ceil(share * rows))
            figures[name] = ordered["value"][int(ordered["up_to"].search_sorted(rank, side="left"))]
        return figures

    def doubling(self) -> list[tuple[int, int, int]]:
        """Return a histogram with doubling bins as (first value, last value, count), from the first bin to the last.

        Bins are 0, 1, 2..3, 4..7 and so on; empty ones inside are listed.
        """
        found: dict[int, int] = {}
        for value, count in self.table.iter_rows():
            found[int(value).bit_length()] = found.get(int(value).bit_length(), 0) + count
        if not found:
            return []
        bins = range(min(found), max(found) + 1)
        return [((1 << n) >> 1, max(0, (1 << n) - 1), found.get(n, 0)) for n in bins]
