"""Putting nearly ordered rows in order, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

_LEAST_ROWS: Final = 50_000


def in_order(frames: Iterator[pl.DataFrame], lateness_us: int) -> Iterator[pl.DataFrame]:
    """Yield the rows in order of `arrival_us`, ties in the order in which they come.

    `lateness_us` is how far a row arrives before the latest row above it, at most: 0 for rows in order, which pass as
    they are. Rows are held back for that long; work is linear in rows, because what is held is looked at only when it
    has doubled.
    """
    if lateness_us == 0:
        yield from frames
        return
    held: list[pl.DataFrame] = []
    rows, look_at, latest_us = 0, _LEAST_ROWS, 0
    for frame in frames:
        if frame.is_empty():
            continue
        held.append(frame)
        rows += frame.height
        latest_us = max(latest_us, int(frame["arrival_us"].max()))  # type: ignore[arg-type]
        if rows < look_at:
            continue
        all_held = pl.concat(held)
        settled = pl.col("arrival_us") <= latest_us - lateness_us
        ready, left = all_held.filter(settled), all_held.filter(~settled)
        if ready.height:
            yield ready.sort("arrival_us", maintain_order=True)
        held, rows = [left], left.height
        look_at = max(_LEAST_ROWS, 2 * rows)
    if held:
        yield pl.concat(held).sort("arrival_us", maintain_order=True)
