"""Going on with a run that was stopped or killed: what was under way then, and what was held back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import polars as pl

from loadgen.checkpoint import Checkpoint
from loadgen.lookahead import Plan
from loadgen.native import in_thread
from loadgen.plan import PlannedRequest
from loadgen.recorder import KILLED, Recorder, RequestRow, unsent_shards
from loadgen.sender import planned_row
from traces.run import RunDir

Held = dict[int, PlannedRequest]
"""Rows that a stop took back, by their place in the plan: turns that waited for the turn before them, for instance."""


def record_killed(run: RunDir, plan: Plan, checkpoint: Checkpoint, recorder: Recorder, *, t0_us: int, kind: str) -> int:
    """Record the rows that were under way when the replay was killed, and return how many there were.

    They may have reached the server, so they are not sent again: they are `cancelled`, with `sent` unknown. `plan`
    begins at the first row that may lack a record; `t0_us` is that of the stretch that was killed.
    """
    found = 0
    for piece in _pieces(plan, checkpoint):
        known = in_thread(_recorded_ids, run.scan("requests"), piece)
        for request in piece:
            if request.row_id not in known:
                row: RequestRow = planned_row(request, t0_us, kind)
                row.outcome, row.error_kind = "cancelled", KILLED
                recorder.request(row)
                found += 1
        recorder.flush()
    return found


def held_back(run: RunDir, plan: Plan, checkpoint: Checkpoint) -> Held:
    """Return the rows before the checkpoint that a stop left unsent: they are to be sent, ahead of the rest.

    `plan` begins at the first of them at the latest.
    """
    shards = unsent_shards(run)
    if not shards:
        return {}
    found: Held = {}
    position = plan.first
    for piece in _pieces(plan, checkpoint):
        unsent = in_thread(_recorded_ids, pl.scan_parquet(shards), piece)
        found |= {position + i: request for i, request in enumerate(piece) if request.row_id in unsent}
        position += len(piece)
    return found


def _pieces(plan: Plan, checkpoint: Checkpoint) -> Iterator[list[PlannedRequest]]:
    """Yield the rows of the plan up to the checkpoint."""
    wanted = checkpoint.taken - plan.first
    for batch in plan.batches() if wanted > 0 else ():
        yield list(islice(batch, wanted))
        wanted -= len(batch)
        if wanted <= 0:
            return


def _recorded_ids(table: pl.LazyFrame, requests: list[PlannedRequest]) -> set[int]:
    ids = pl.LazyFrame({"row_id": [request.row_id for request in requests]}, schema={"row_id": pl.Int64})
    return set(table.select("row_id").join(ids, on="row_id", how="semi").collect(engine="streaming")["row_id"])
