"""Transforms that change how many rows a trace has: thinning, superposition, loops and merges.

Copies of rows get identities of their own: `row_id` (and `parent_row` with it), `session_id`, and the prefix blocks
that only one conversation used. Blocks that several conversations shared stay shared, as a system prompt would.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import polars as pl

from traces.chance import uniform


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the transforms here have to know of a trace beforehand. `span_us` is the last arrival."""

    rows: int
    span_us: int
    next_row_id: int
    next_block: int
    has_sessions: bool


def facts_of(frame: pl.LazyFrame) -> Facts:
    """Return a trace's facts (one pass)."""
    found: dict[str, Any] = (
        frame.select(
            rows=pl.len(),
            span_us=pl.col("arrival_us").max().fill_null(0),
            next_row_id=pl.col("row_id").max().fill_null(-1) + 1,
            next_block=pl.col("prefix_blocks").list.max().max().fill_null(-1) + 1,
            has_sessions=pl.col("session_id").is_not_null().any(),
        )
        .collect(engine="streaming")
        .row(0, named=True)
    )
    return Facts(**found)


def thin(frame: pl.LazyFrame, share: float, seed: int, facts: Facts, purpose: str = "thin") -> pl.LazyFrame:
    """Return a random `share` of the trace: each conversation (each row outside of one) is kept or not, on its own.

    Thinning of independent rows takes the index of dispersion from I to 1 + share x (I - 1) at every scale.
    """
    return frame.filter(uniform(_unit(facts), seed, purpose) < share)


def superpose(frame: pl.LazyFrame, factor: float, jitter_us: int, seed: int, facts: Facts) -> pl.LazyFrame:
    """Return `factor` (above 1) times the traffic: the trace itself, and displaced copies of it.

    Each conversation (each row outside of one) of each copy moves by an independent time, uniform in
    ±`jitter_us` / 2, and mirrored at the trace's ends; the last copy is thinned to the factor's fraction. Well below
    the jitter copies are independent Poisson-like traffic: I becomes 1 + (I - 1) / factor. Well above it they rise and
    fall with the trace: I becomes about factor x I.
    """
    whole = math.floor(factor)
    copies = [frame]
    shared = _shared_blocks(frame, facts)
    for number in range(1, whole + (factor > whole)):
        copy = frame
        if number == whole:
            copy = thin(copy, factor - whole, seed, facts, "superpose-thin")
        moved = _displaced(copy, jitter_us, seed, facts, number)
        copies.append(_own_identity(moved, number, facts, shared))
    return pl.concat(copies).sort("arrival_us", maintain_order=True)


def loop(frame: pl.LazyFrame, times: int, facts: Facts) -> pl.LazyFrame:
    """Return the trace `times` times in a row; the seam between two rounds is the trace's mean gap.

    Within a round nothing changes; windows longer than a round see the same count again and again.
    """
    period_us = loop_period_us(facts)
    shared = _shared_blocks(frame, facts)
    rounds = [
        _own_identity(frame.with_columns(pl.col("arrival_us") + number * period_us), number, facts, shared)
        for number in range(times)
    ]
    return pl.concat(rounds)


def loop_period_us(facts: Facts) -> int:
    """Return how long one round of a loop lasts: to the last arrival, and a mean gap."""
    return facts.span_us + round(facts.span_us / max(1, facts.rows - 1))


def merge(frame: pl.LazyFrame, other: pl.LazyFrame, facts: Facts, number: int = 1, offset_us: int = 0) -> pl.LazyFrame:
    """Return both traces together, `other` begun `offset_us` after `frame` (before it, if negative).

    Nothing of `other` is taken for a part of `frame`. Arrivals count from the earlier start.

    The index of dispersion of independent traffic is the mean of the two, weighted by their rates.
    """
    apart = other.with_columns(
        _offset("arrival_us", max(offset_us, 0)),
        _offset("row_id", facts.next_row_id),
        _offset("parent_row", facts.next_row_id),
        pl.format("{}/{}", pl.col("session_id"), pl.lit(f"merged{number}")).alias("session_id"),
        pl.col("prefix_blocks").list.eval(pl.element() + facts.next_block),
    )
    return frame.with_columns(_offset("arrival_us", max(-offset_us, 0))).merge_sorted(apart, "arrival_us")


def _unit(facts: Facts) -> pl.Expr:
    """Return what is kept, moved and copied as one: the conversation's first row, or the row itself."""
    row = pl.col("row_id")
    if not facts.has_sessions:
        return row
    return pl.when(pl.col("session_id").is_null()).then(row).otherwise(row.min().over("session_id"))


def _displaced(frame: pl.LazyFrame, jitter_us: int, seed: int, facts: Facts, number: int) -> pl.LazyFrame:
    by = (uniform(pl.col("_unit"), seed, f"superpose-{number}") - 0.5) * jitter_us
    start = pl.col("arrival_us").min().over("_unit") if facts.has_sessions else pl.col("arrival_us")
    outside = (start + by < 0) | (start + by > facts.span_us)
    moved = (pl.col("arrival_us") + pl.when(outside).then(-by).otherwise(by)).round().cast(pl.Int64)
    # A trace shorter than the jitter can be left on both sides; its rows stay at the edge.
    return frame.with_columns(_unit(facts).alias("_unit")).with_columns(moved.clip(0).alias("arrival_us")).drop("_unit")


def _own_identity(frame: pl.LazyFrame, number: int, facts: Facts, shared: pl.Series | None) -> pl.LazyFrame:
    if number == 0:
        return frame
    frame = frame.with_columns(
        _offset("row_id", number * facts.next_row_id),
        _offset("parent_row", number * facts.next_row_id),
        pl.format("{}/{}", pl.col("session_id"), pl.lit(str(number))).alias("session_id"),
    )
    if shared is None:
        return frame
    block = pl.element()
    own = pl.when(block.is_in(shared.implode())).then(block).otherwise(block + number * facts.next_block)
    return frame.with_columns(pl.col("prefix_blocks").list.eval(own))


def _shared_blocks(frame: pl.LazyFrame, facts: Facts) -> pl.Series | None:
    """Return the ids of the blocks that more than one conversation uses; None for a trace without blocks."""
    if facts.next_block == 0:
        return None
    used = frame.select(_unit(facts).alias("unit"), pl.col("prefix_blocks").alias("block")).explode("block").unique()
    counted = used.group_by("block").len().filter((pl.col("len") > 1) & pl.col("block").is_not_null())
    return counted.select("block").collect()["block"]


def _offset(column: str, by: int) -> pl.Expr:
    return pl.col(column) + by
