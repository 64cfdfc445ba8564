"""Pure transforms of a trace frame."""

from __future__ import annotations

import polars as pl

from traces.units import format_duration


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


def _plain(us: int) -> str:
    return "0 s" if us == 0 else format_duration(us)
