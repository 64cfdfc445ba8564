"""Pure transforms of a trace frame, row by row; `traces.superpose` has those that change how many rows there are.

Each takes a frame with the columns of `traces.schema.Trace` in order of arrival and returns such a frame.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from traces.chance import uniform
from traces.units import US_PER_S, format_duration


def window(frame: pl.LazyFrame, start_us: int, end_us: int | None = None) -> pl.LazyFrame:
    """Return the rows that arrive in `[start_us, end_us)`, with arrivals counted from the window's start.

    `end_us` None is the trace's end. `row_id` is kept, so that a row can be found in its source.

    >>> trace = pl.LazyFrame({"row_id": [0, 1, 2], "arrival_us": [0, 5, 9]})
    >>> window(trace, 5, 9).collect().rows()
    [(1, 0)]
    """
    arrival = pl.col("arrival_us")
    inside = arrival >= start_us
    if end_us is not None:
        inside = inside & (arrival < end_us)
    return frame.filter(inside).with_columns(arrival - start_us)


def no_rows_message(source: str, start_us: int, end_us: int | None, span_us: int, rows: int) -> str:
    """Return the line that tells a user why a window holds nothing; `span_us` is the trace's last arrival.

    >>> no_rows_message("t.csv", 60_000_000, None, 9_000_000, 12)
    't.csv: no arrival in the window 60 s..end; its 12 rows arrive from 0 s to 9 s, choose a window inside'
    """
    end = "end" if end_us is None else _plain(end_us)
    return (
        f"{source}: no arrival in the window {_plain(start_us)}..{end}; "
        f"its {rows:,} rows arrive from 0 s to {_plain(span_us)}, choose a window inside"
    )


def time_scale(frame: pl.LazyFrame, factor: float) -> pl.LazyFrame:
    """Return the trace played `factor` times as fast: arrivals and think times divided by it.

    Gaps keep their distribution's shape: what was the index of dispersion at a window w is now the one at w / factor.

    >>> time_scale(pl.LazyFrame({"arrival_us": [0, 10], "think_us": [None, 4]}), 2).collect().rows()
    [(0, None), (5, 2)]
    """
    return frame.with_columns((pl.col("arrival_us", "think_us") / factor).round().cast(pl.Int64))


def jitter_ties(frame: pl.LazyFrame, seed: int, width_us: int | None = None) -> pl.LazyFrame:
    """Return the trace with rows that share a stamp spread at random behind it, in their order.

    They spread over `width_us`, but never past the next stamp: the time grid of the source dissolves, and every grid
    interval keeps its rows. The width defaults to the median gap between distinct stamps (one second where there is
    only one stamp). Rows alone on their stamp stay.
    """
    stamps = frame.select(pl.col("arrival_us").unique().sort().alias("stamp"))
    gaps = stamps.with_columns((pl.col("stamp").shift(-1) - pl.col("stamp")).alias("_gap"))
    usual = pl.col("_gap").median().fill_null(US_PER_S) if width_us is None else pl.lit(float(width_us))
    widths = gaps.with_columns(pl.min_horizontal(usual, pl.col("_gap").cast(pl.Float64)).alias("_width"))
    joined = frame.join(widths, left_on="arrival_us", right_on="stamp", how="left", maintain_order="left")
    # Sorted uniforms are what independent arrivals look like, and keep the rows of a stamp in order.
    share = uniform(pl.col("row_id"), seed, "jitter-ties").sort().over("arrival_us")
    tied = pl.len().over("arrival_us") > 1
    later = pl.when(tied).then((share * pl.col("_width")).floor().cast(pl.Int64)).otherwise(0)
    return joined.with_columns(pl.col("arrival_us") + later).drop("_gap", "_width")


def keep_models(frame: pl.LazyFrame, names: Sequence[str]) -> pl.LazyFrame:
    """Return the rows that ask for one of the named models."""
    return frame.filter(pl.col("model").is_in(list(names)))


def clamp_tokens(
    frame: pl.LazyFrame,
    input_bounds: tuple[int | None, int | None] = (None, None),
    output_bounds: tuple[int | None, int | None] = (None, None),
) -> pl.LazyFrame:
    """Return the trace with known lengths moved into their bounds (None is open); unknown ones stay unknown.

    Prefix blocks beyond a shortened prompt are cut off. Arrivals do not change.
    """
    clamped = frame.with_columns(
        pl.col("input_tokens").clip(*input_bounds), pl.col("output_tokens").clip(*output_bounds)
    )
    blocks = (pl.col("input_tokens") + pl.col("block_tokens") - 1) // pl.col("block_tokens")
    return clamped.with_columns(
        pl.when(blocks.is_null())
        .then(pl.col("prefix_blocks"))
        .otherwise(pl.col("prefix_blocks").list.head(blocks))
        .alias("prefix_blocks")
    )


def local_to_utc_us(naive_us: pl.Expr, zone: str) -> pl.Expr:
    """Return instants (µs since 1970 UTC) whose local clock in `zone` (an IANA name) reads `naive_us`.

    In the hour that autumn repeats the earlier instant is taken; a reading that spring skips is null.
    """
    local = naive_us.cast(pl.Datetime("us")).dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return local.dt.epoch("us")


def _plain(us: int) -> str:
    return "0 s" if us == 0 else format_duration(us)
