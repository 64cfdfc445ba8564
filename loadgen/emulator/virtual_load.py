"""What arrives, as columns: a Trace table made ready for the virtual queue, and what became of each row. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import polars as pl

from loadgen.laps import in_lap
from loadgen.scenario import ReplaySection
from traces.errors import BadInputError
from traces.manifest import Laps

WAITING, OK, TIMED_OUT, CANCELLED = range(4)
"""What became of a request; a waiting one is queued or being served."""

NEVER = -1


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in order of arrival (µs from the load's start).

    `tokens` is how many output tokens are given before the end or before the client leaves; `leaves` tells which
    clients do. `patience_us` is how long after sending a client goes away. `before` is the position of the turn before,
    which has to end, and `think_us` to pass, first. Optional columns are empty when no row has a value.
    """

    row_id: Sequence[int]
    arrival_us: Sequence[int]
    input_tokens: Sequence[int]
    output_tokens: Sequence[int]
    tokens: Sequence[int]
    leaves: Sequence[bool] = ()
    patience_us: Sequence[int | None] = ()
    before: Sequence[int | None] = ()
    think_us: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.row_id)

    @property
    def last_us(self) -> int:
        """The last arrival."""
        return self.arrival_us[-1] if len(self) else 0


class Served:
    """What became of each request of a load: instants in µs since 1970 (`NEVER`: not yet), the unit's number."""

    def __init__(self, size: int) -> None:
        blank = array("q", [NEVER]) * size
        self.due_us, self.admitted_us, self.first_us, self.done_us = blank[:], blank[:], blank[:], blank[:]
        self.unit = array("l", [NEVER]) * size
        self.outcome = array("b", [WAITING]) * size


def load_of(trace: pl.DataFrame, replay: ReplaySection, laps: Laps | None = None) -> Load:
    """Return a Trace table's rows as `replay` would send them; lengths that are not stated get the scenario's."""
    frame = _all_laps(trace, laps).sort("arrival_us", maintain_order=True)
    columns = frame.select(
        "row_id",
        "arrival_us",
        pl.col("input_tokens").fill_null(replay.default_input_tokens).clip(1),
        pl.col("output_tokens").fill_null(replay.default_output_tokens).clip(1),
        pl.col("think_us").fill_null(0),
        "cancel_after_tokens",
        "cancel_after_us",
    )
    output, after = columns["output_tokens"], columns["cancel_after_tokens"]
    given = columns.select(pl.min_horizontal("output_tokens", "cancel_after_tokens"))["output_tokens"]
    before = _turns_before(frame) if _has_turns(frame) else ()
    return Load(
        row_id=columns["row_id"].to_list(),
        arrival_us=columns["arrival_us"].to_list(),
        input_tokens=columns["input_tokens"].to_list(),
        output_tokens=output.to_list(),
        tokens=given.to_list(),
        leaves=() if after.is_null().all() else (after <= output).fill_null(value=False).to_list(),
        patience_us=() if columns["cancel_after_us"].is_null().all() else columns["cancel_after_us"].to_list(),
        before=before,
        think_us=columns["think_us"].to_list() if before else (),
    )


def _all_laps(trace: pl.DataFrame, laps: Laps | None) -> pl.DataFrame:
    if laps is None:
        return trace
    if laps.until_us is None:
        raise BadInputError("a loop without an end cannot be simulated; give [replay] duration")
    count = -(-laps.until_us // laps.length_us)
    return pl.concat([in_lap(trace, lap, laps) for lap in range(count)])


def _has_turns(frame: pl.DataFrame) -> bool:
    return not (frame["parent_row"].is_null().all() and frame["session_id"].is_null().all())


def _turns_before(frame: pl.DataFrame) -> list[int | None]:
    """Return the position of each row's turn before, by the rules of `loadgen.turns`."""
    position = {row_id: k for k, row_id in enumerate(frame["row_id"])}
    last: dict[str, tuple[int, int | None]] = {}
    found: list[int | None] = []
    rows = frame.select("session_id", "turn", "parent_row").iter_rows()
    for k, (session, turn, parent) in enumerate(rows):
        before: int | None = None
        if parent is not None:
            at = position.get(parent)
            before = at if at is not None and at < k else None
        elif session is not None and session in last:
            previous, previous_turn = last[session]
            before = None if turn is not None and turn == previous_turn else previous
        if session is not None:
            last[session] = (k, turn)
        found.append(before)
    return found
