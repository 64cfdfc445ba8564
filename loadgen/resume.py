"""Going on with a run that was stopped or killed: what was under way then, and where the plan goes on."""

from __future__ import annotations

import polars as pl

from loadgen.checkpoint import Checkpoint
from loadgen.lookahead import Plan
from loadgen.native import in_thread
from loadgen.plan import PlannedRequest
from loadgen.recorder import Recorder, RequestRow
from loadgen.sender import planned_row
from traces.run import RunDir

KILLED = "killed"
"""Why a row is cancelled that was under way, or about to go, when its replay was killed: what came back is unknown."""


def record_killed(run: RunDir, plan: Plan, checkpoint: Checkpoint, recorder: Recorder, *, t0_us: int, kind: str) -> int:
    """Record the rows that were under way when the replay was killed, and return how many there were.

    They may have reached the server, so they are not sent again: they are `cancelled`, with `sent` unknown. `plan`
    begins at the first row that may lack a record; `t0_us` is that of the stretch that was killed.
    """
    found, wanted = 0, checkpoint.taken - plan.first
    for batch in plan.batches():
        piece = batch[:wanted]
        for request in in_thread(_without_row, run, piece):
            row: RequestRow = planned_row(request, t0_us, kind)
            row.outcome, row.error_kind = "cancelled", KILLED
            recorder.request(row)
            found += 1
        recorder.flush()
        wanted -= len(piece)
        if wanted <= 0:
            break
    return found


def _without_row(run: RunDir, requests: list[PlannedRequest]) -> list[PlannedRequest]:
    ids = pl.LazyFrame({"row_id": [request.row_id for request in requests]}, schema={"row_id": pl.Int64})
    known = set(
        run.scan("requests").select("row_id").join(ids, on="row_id", how="semi").collect(engine="streaming")["row_id"]
    )
    return [request for request in requests if request.row_id not in known]
