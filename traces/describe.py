"""What a trace looks like, in figures. Pure: a trace frame in, figures out, in one pass and bounded memory."""

from __future__ import annotations

import math
from typing import Final

import msgspec
import polars as pl

from traces.batches import in_batches
from traces.units import US_PER_S

_QUANTILES: Final = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


class Description(msgspec.Struct, kw_only=True):
    """Figures of a trace; null where rows are too few to tell.

    `mean_rate_per_s` is one over the mean gap between arrivals; peak rates are of the fullest bin, bins counted from
    the trace's start; `interarrival_cv` is the gaps' standard deviation over their mean (1 for Poisson arrivals).
    Token figures: mean, min, p50, p90, p99 and max of the lengths that are known; quantiles are lengths that occur
    (the least that is not below the stated share of rows).
    """

    rows: int
    span_us: int
    mean_rate_per_s: float | None
    peak_rate_1s_per_s: float | None
    peak_rate_10s_per_s: float | None
    interarrival_cv: float | None
    input_tokens: dict[str, float | None]
    output_tokens: dict[str, float | None]


def describe(frame: pl.LazyFrame) -> Description:
    """Return the figures of a trace frame that is in order of arrival."""
    gaps = _Moments()
    seconds, inputs, outputs = _Counts(), _Counts(), _Counts()
    rows = 0
    for batch in in_batches(frame):
        rows += batch.height
        gaps.add(batch["gap_us"].drop_nulls())
        seconds.add(batch["arrival_us"] // US_PER_S)
        inputs.add(batch["input_tokens"].drop_nulls())
        outputs.add(batch["output_tokens"].drop_nulls())
    return Description(
        rows=rows,
        span_us=round(gaps.count * gaps.mean),
        mean_rate_per_s=US_PER_S / gaps.mean if gaps.mean else None,
        peak_rate_1s_per_s=_peak_rate_per_s(seconds.table, 1),
        peak_rate_10s_per_s=_peak_rate_per_s(seconds.table, 10),
        interarrival_cv=gaps.standard_deviation() / gaps.mean if gaps.mean and gaps.count > 1 else None,
        input_tokens=_token_figures(inputs.table),
        output_tokens=_token_figures(outputs.table),
    )


class _Moments:
    """Count, mean and squared deviations, merged batch by batch (Chan, Golub and LeVeque, 1979)."""

    def __init__(self) -> None:
        self.count, self.mean, self._squares = 0, 0.0, 0.0

    def add(self, values: pl.Series) -> None:
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
        return math.sqrt(self._squares / (self.count - 1))


class _Counts:
    """How often each whole number occurs: its memory grows with distinct values, not with rows."""

    def __init__(self) -> None:
        self.table = pl.DataFrame(schema={"value": pl.Int64, "count": pl.Int64})

    def add(self, values: pl.Series) -> None:
        counted = values.alias("value").to_frame().group_by("value").agg(pl.len().cast(pl.Int64).alias("count"))
        self.table = pl.concat([self.table, counted]).group_by("value").agg(pl.col("count").sum())


def _peak_rate_per_s(seconds: pl.DataFrame, bin_s: int) -> float | None:
    bins = seconds.group_by(pl.col("value") // bin_s).agg(pl.col("count").sum())["count"]
    return None if bins.is_empty() else max(bins.to_list()) / bin_s


def _token_figures(counts: pl.DataFrame) -> dict[str, float | None]:
    if counts.is_empty():
        return dict.fromkeys(("mean", *_QUANTILES))
    ordered = counts.sort("value").with_columns(pl.col("count").cum_sum().alias("up_to"))
    rows = ordered["up_to"][-1]
    mean = (ordered["value"] * ordered["count"]).sum() / rows
    figures: dict[str, float | None] = {"mean": mean}
    for name, share in _QUANTILES.items():
        rank = max(1, math.ceil(share * rows))
        figures[name] = ordered["value"][int(ordered["up_to"].search_sorted(rank, side="left"))]
    return figures
