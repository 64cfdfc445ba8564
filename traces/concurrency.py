"""How many requests were under way at once, where the recording knows how long each took."""

from __future__ import annotations

import msgspec
import polars as pl


class Concurrency(msgspec.Struct, frozen=True, kw_only=True):
    """Requests under way. `known_share` is the share of rows whose latency is recorded; only those are counted.

    `highest` is the largest number within each bin of `bin_us`, from the trace's start.
    """

    known_share: float
    mean: float
    peak: int
    bin_us: int
    highest: list[int]


def concurrency(spans: pl.DataFrame, rows: int, span_us: int, bin_us: int) -> Concurrency | None:
    """Return the requests under way over `[0, span_us]`; None when there is no span.

    `spans` has `arrival_us` and `source_latency_us` of the rows whose latency is known, out of `rows` in all; a request
    is under way from its arrival to its arrival plus its latency.
    """
    if spans.is_empty():
        return None
    ends = pl.col("arrival_us") + pl.col("source_latency_us")
    moves = pl.concat(
        [
            spans.select(at="arrival_us", change=pl.lit(1, dtype=pl.Int64)),
            spans.select(at=ends, change=pl.lit(-1, dtype=pl.Int64)),
        ]
    )
    # What counts at an instant is the level once everything at it has happened.
    levels = moves.group_by("at").agg(pl.col("change").sum()).sort("at").with_columns(level=pl.col("change").cum_sum())
    levels = levels.filter(pl.col("at") <= span_us)
    bins = levels.group_by(bin=pl.col("at") // bin_us).agg(
        top=pl.col("level").max(), last=pl.col("level").last(), first_at=pl.col("at").min()
    )
    every = pl.DataFrame({"bin": range(span_us // bin_us + 1)}, schema={"bin": pl.Int64})
    joined = every.join(bins, on="bin", how="left").sort("bin")
    before = pl.col("last").forward_fill().shift(1).fill_null(0)
    carried = pl.when(pl.col("first_at") == pl.col("bin") * bin_us).then(0).otherwise(before)
    highest = joined.select(pl.max_horizontal("top", carried)).to_series()
    busy_us = spans.select(pl.min_horizontal(ends, pl.lit(span_us)) - pl.col("arrival_us")).to_series().sum()
    return Concurrency(
        known_share=spans.height / rows,
        mean=float(busy_us) / span_us if span_us else float(spans.height),
        peak=int(levels["level"].max()),  # type: ignore[arg-type]
        bin_us=bin_us,
        highest=highest.to_list(),
    )
