"""Adding to a run what a worker recorded in a directory of its own, and judging the run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loadgen.closing import conclude
from loadgen.gathering import copy_shards
from loadgen.parts import recorded_per_shard, unaccounted, worst
from loadgen.scenario_file import build_scenario
from traces.errors import BadInputError
from traces.manifest import Manifest, WorkerPart
from traces.run import RunDir


def merge_parts(path: Path, parts: list[Path]) -> dict[str, Any]:
    """Copy the parts' rows into the run, and return its new summary. Raises `BadInputError` before anything is copied.

    A worker whose rows are all in the run then counts as one that did its share: its rows say what it sent.
    """
    run = RunDir.open(path)
    manifest = run.manifest()
    if not manifest.workers or manifest.part is not None:
        raise BadInputError(f"{path}: not a run of several workers; name the master's run first, then the parts")
    recorded = recorded_per_shard(run)
    found = [(RunDir.open(part), _worker_of(manifest, part, recorded)) for part in parts]
    for part, worker in found:
        copy_shards(part, run)
        worker.state, worker.detail = "merged", None
    scenario = build_scenario(manifest.scenario, origin=f"{path}/run.json")
    known = manifest.verdict or {}
    summary = conclude(
        run,
        manifest,
        scenario,
        client=worst(manifest.workers),
        never_taken=unaccounted(manifest.workers, recorded_per_shard(run), None),
        aborted=known.get("aborted"),
        estimate=None,
    )
    if manifest.state == "running":
        manifest.state = "interrupted"  # its master was killed
    run.write_manifest(manifest)
    return summary | {"collector": manifest.collector, "time_scale": manifest.time_scale}


def _worker_of(manifest: Manifest, path: Path, recorded: dict[int, int]) -> WorkerPart:
    part = RunDir.open(path).manifest()
    worker = next((one for one in manifest.workers if one.shard == part.part), None)
    if worker is None or part.run_id != manifest.run_id:
        raise BadInputError(f"{path}: not a worker's directory of run {manifest.run_id}")
    if recorded.get(worker.shard):
        raise BadInputError(f"{path}: the rows of worker {worker.shard} are in the run already")
    return worker
