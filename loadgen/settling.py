"""What a lost worker leaves: rows that were under way, and rows that were never sent, where its files can be seen."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from loadgen.checkpoint import Checkpoint
from loadgen.lookahead import Plan
from loadgen.native import in_thread
from loadgen.parts import LOST
from loadgen.recorder import Recorder, UnsentWriter
from loadgen.resume import record_killed
from loadgen.scenario import Scenario
from loadgen.sender import planned_row
from loadgen.sharding import shard_laps
from loadgen.share import checkpoint_name, plan_file
from traces.errors import BadInputError
from traces.manifest import Manifest
from traces.run import RunDir


def settle_lost(run: RunDir, manifest: Manifest, scenario: Scenario, shard: int, kind: str) -> bool:
    """Record the rest of a lost worker's rows, as under way when it ended or as not sent. True when that was possible.

    It is not when its files are elsewhere, or when the worker still runs and holds them.
    """
    path = plan_file(run.path, shard)
    if not path.is_file() or not manifest.stretches:
        return False
    try:
        checkpoint = Checkpoint(run.path, checkpoint_name(shard))
    except BadInputError:
        return False  # cut off and still sending: it stops by itself, and its rows are its own
    t0_us, rest = manifest.stretches[-1].t0_us, 0
    recorder = Recorder(run, flush_s=1.0, on_written=lambda _: None, shard=shard)
    try:
        laps = shard_laps(manifest.laps, _rows(path))
        plan = Plan(path, scenario.replay, manifest.time_scale, laps=laps, first=checkpoint.settled)
        record_killed(run, plan, checkpoint, recorder, t0_us=t0_us, kind=kind)
        rest = checkpoint.taken - checkpoint.settled
    finally:
        recorder.close()
        checkpoint.close()
    if laps is None:
        writer = UnsentWriter(run, shard)
        for batch in plan.batches(rest):
            writer.write([planned_row(request, t0_us, kind) for request in batch], LOST)
    return True


def clear(run: RunDir, shard: int) -> None:
    """Take away what a worker needed only while it was sending."""
    for path in (plan_file(run.path, shard), run.path / f"{checkpoint_name(shard)}.bin"):
        path.unlink(missing_ok=True)


def _rows(path: Path) -> int:
    return int(in_thread(lambda: pl.scan_parquet(path).select(pl.len()).collect().item()))
