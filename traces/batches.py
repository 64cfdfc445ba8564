"""Passing over a long trace in bounded memory: batch by batch, in order, each row with the gap before it."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl


def in_batches(frame: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Yield the frame's rows in order, with `gap_us`: the time since the row before, null for the first row of all."""
    previous_us: int | None = None
    for batch in frame.collect_batches(maintain_order=True, engine="streaming"):
        if batch.is_empty():
            continue
        before = pl.col("arrival_us").shift(1, fill_value=pl.lit(previous_us, dtype=pl.Int64))
        yield batch.with_columns((pl.col("arrival_us") - before).alias("gap_us"))
        previous_us = batch["arrival_us"][-1]
