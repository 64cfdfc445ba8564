"""A trace repeated lap after lap, each with row ids, arrivals and conversations of its own. Pure."""

from __future__ import annotations

import polars as pl

from traces.manifest import Laps
from traces.units import US_PER_S


def lap_length_us(last_arrival_us: int, rows: int, window_us: int | None) -> int:
    """Return how long a lap takes: the window that was cut from the trace, or else its span and one mean gap more.

    >>> lap_length_us(9_000_000, 10, None), lap_length_us(9_000_000, 10, 30_000_000), lap_length_us(0, 1, None)
    (10000000, 30000000, 1000000)
    """
    if window_us is not None and window_us > last_arrival_us:
        return window_us
    gap_us = last_arrival_us // (rows - 1) if rows > 1 else US_PER_S
    return last_arrival_us + max(1, gap_us)


def planned_rows(laps: Laps, arrivals_us: pl.Series) -> int | None:
    """Return how many rows are sent in all laps; `None` when there is no end."""
    if laps.until_us is None:
        return None
    whole, rest_us = divmod(laps.until_us, laps.length_us)
    return whole * laps.rows + int((arrivals_us < rest_us).sum())


def in_lap(frame: pl.DataFrame, lap: int, laps: Laps) -> pl.DataFrame:
    """Return rows of a Trace table as they are sent in lap `lap`, without those at or after the end.

    Conversations begin anew: their rows refer to each other within the lap.
    """
    shifted = frame.with_columns(
        pl.col("row_id", "parent_row") + lap * laps.stride,
        pl.col("arrival_us") + lap * laps.length_us,
        pl.concat_str("session_id", pl.lit(f"~{lap}")) if lap else pl.col("session_id"),
    )
    return shifted if laps.until_us is None else shifted.filter(pl.col("arrival_us") < laps.until_us)
