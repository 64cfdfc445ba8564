"""The plan: when each row of a trace is due, and what to ask for."""

from __future__ import annotations

import msgspec
import polars as pl

from loadgen.scenario import ReplaySection


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request to be sent. `due_us` is its offset from t0; it and the other lengths are on the client's clock."""

    row_id: int
    due_us: int
    input_tokens: int
    output_tokens: int
    model: str | None = None
    prefix_blocks: tuple[int, ...] = ()
    block_tokens: int | None = None
    images: int = 0
    payload_ref: str | None = None
    session_id: str | None = None
    turn: int | None = None
    parent_row: int | None = None
    think_us: int = 0
    cancel_after_tokens: int | None = None
    cancel_after_us: int | None = None


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole trace has, as far as it matters before the first row: `longest_think_us` is endpoint time."""

    has_turns: bool = False
    longest_think_us: int = 0


def due_offset_us(arrival_us: int, time_scale: float) -> int:
    """Return when an arrival (endpoint time, µs from the trace's start) is due, in client µs from t0.

    >>> due_offset_us(60_000_000, 20.0)
    3000000
    """
    return round(arrival_us / time_scale)


def traits(frame: pl.LazyFrame) -> Traits:
    """Return what a Trace table has, in one pass and bounded memory."""
    found = frame.select(
        (pl.col("parent_row").is_not_null() | pl.col("session_id").is_not_null()).any().alias("has_turns"),
        pl.col("think_us").max().fill_null(0).alias("longest_think_us"),
    ).collect(engine="streaming")
    return Traits(**found.row(0, named=True))


def plan_rows(frame: pl.DataFrame, replay: ReplaySection, time_scale: float) -> list[PlannedRequest]:
    """Return the planned requests of a piece of a Trace table, in its order.

    A length that the recording does not state becomes the scenario's default. Zero becomes one: a request without a
    prompt or without an answer cannot be asked of a model. A think time that is not stated is none.
    """
    scaled = (pl.col("arrival_us", "think_us", "cancel_after_us") / time_scale).round().cast(pl.Int64)
    columns = frame.select(
        pl.col("row_id"),
        scaled.name.keep(),
        pl.col("input_tokens").fill_null(replay.default_input_tokens).clip(1),
        pl.col("output_tokens").fill_null(replay.default_output_tokens).clip(1),
        pl.col("images").fill_null(0),
        pl.col("model", "prefix_blocks", "block_tokens", "payload_ref"),
        pl.col("session_id", "turn", "parent_row", "cancel_after_tokens"),
    ).rename({"arrival_us": "due_us"})
    rows = columns.with_columns(pl.col("think_us").fill_null(0)).iter_rows(named=True)
    return [PlannedRequest(**row | {"prefix_blocks": tuple(row["prefix_blocks"] or ())}) for row in rows]
