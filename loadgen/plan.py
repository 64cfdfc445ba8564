"""The plan: when each row of a trace is due, and what to ask for."""

from __future__ import annotations

import msgspec
import polars as pl

from loadgen.scenario import ReplaySection


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to be sent. `due_us` is its offset from t0 on the client's clock."""

    row_id: int
    due_us: int
    input_tokens: int
    output_tokens: int
    model: str | None = None
    prefix_blocks: tuple[int, ...] = ()
    block_tokens: int | None = None


def due_offset_us(arrival_us: int, time_scale: float) -> int:
    """Return when an arrival (endpoint time, µs from the trace's start) is due, in client µs from t0.

    >>> due_offset_us(60_000_000, 20.0)
    3000000
    """
    return round(arrival_us / time_scale)


def plan_rows(frame: pl.DataFrame, replay: ReplaySection, time_scale: float) -> list[PlannedRequest]:
    """Return the planned requests of a piece of a Trace table, in its order.

    A length that the recording does not state becomes the scenario's default. Zero becomes one: a request without a
    prompt or without an answer cannot be asked of a model.
    """
    columns = (
        frame["row_id"],
        frame["arrival_us"],
        frame["input_tokens"].fill_null(replay.default_input_tokens),
        frame["output_tokens"].fill_null(replay.default_output_tokens),
        frame["model"],
        frame["prefix_blocks"].to_list(),
        frame["block_tokens"],
    )
    return [
        PlannedRequest(
            row_id=row_id,
            due_us=due_offset_us(arrival_us, time_scale),
            input_tokens=max(1, input_tokens),
            output_tokens=max(1, output_tokens),
            model=model,
            prefix_blocks=tuple(blocks or ()),
            block_tokens=block_tokens,
        )
        for row_id, arrival_us, input_tokens, output_tokens, model, blocks, block_tokens in zip(*columns, strict=True)
    ]
