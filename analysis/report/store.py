"""Writes a run's results into its directory: `analysis/*.parquet` and `analysis/summary.json`."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl

from analysis.analyse import RunAnalysis
from analysis.entry import SCHEMA, run_entry
from analysis.records import AnchorValue, PhaseRow, ScaleOutResult
from traces.clock import to_datetime
from traces.errors import BadInputError
from traces.run import write_atomically, write_parquet
from traces.schema import Anchor, Phase, ScaleOut


def write_results(analysis: RunAnalysis) -> None:
    """Write the tables `anchors`, `phases`, `scale_outs`, `load` and the summary, each atomically."""
    folder = analysis.path / "analysis"
    try:
        folder.mkdir(exist_ok=True)
        for name, frame in tables(analysis).items():
            write_parquet(folder / f"{name}.parquet", frame)
        summary = msgspec.json.encode({"schema": SCHEMA, "runs": [run_entry(analysis)]})
        write_atomically(folder / "summary.json", msgspec.json.format(summary, indent=2))
    except OSError as error:
        raise BadInputError(
            f"{folder}: results cannot be written there ({error.strerror}); free space or fix permissions"
        ) from error


def tables(analysis: RunAnalysis) -> dict[str, pl.DataFrame]:
    """Return the result tables; the first three validate against `traces.schema`."""
    run_id = analysis.manifest.run_id
    anchors = [_anchor(run_id, s.index, a) for s in analysis.scale_outs for a in s.anchors]
    phases = [_phase(run_id, s.index, p) for s in analysis.scale_outs for p in s.phases]
    scale_outs = [_scale_out(analysis, s) for s in analysis.scale_outs]
    load = analysis.load.with_columns(pl.from_epoch("start_us", "us").dt.replace_time_zone("UTC").alias("start")).drop(
        "start_us"
    )
    return {
        "anchors": Anchor.validate(pl.DataFrame(anchors, schema=pl.Schema(Anchor))),
        "phases": Phase.validate(pl.DataFrame(phases, schema=pl.Schema(Phase))),
        "scale_outs": ScaleOut.validate(pl.DataFrame(scale_outs, schema=pl.Schema(ScaleOut))),
        "load": load,
    }


def _instant(us: int | None) -> Any:
    return None if us is None else to_datetime(us)


def _anchor(run_id: str, index: int, a: AnchorValue) -> dict[str, Any]:
    return {
        "run_id": run_id, "scale_out": index, "unit_id": a.unit_id, "anchor": a.anchor, "lo": _instant(a.lo_us),
        "point": _instant(a.at_us), "hi": _instant(a.hi_us), "method": a.method, "sources": ",".join(a.sources),
    }  # fmt: skip


def _phase(run_id: str, index: int, p: PhaseRow) -> dict[str, Any]:
    return {
        "run_id": run_id, "scale_out": index, "unit_id": p.unit_id, "phase": p.phase, "parent": p.parent,
        "headline": p.headline, "start": _instant(p.start_us), "end": _instant(p.end_us),
        "critical_us": p.critical_us, "critical_lo_us": p.critical_lo_us, "critical_hi_us": p.critical_hi_us,
        "duration_us": p.duration_us, "lo_us": p.lo_us, "hi_us": p.hi_us, "method": p.method,
    }  # fmt: skip


def _scale_out(analysis: RunAnalysis, s: ScaleOutResult) -> dict[str, Any]:
    onset = s.onset
    return {
        "run_id": analysis.manifest.run_id, "condition": analysis.manifest.condition,
        "emulated": analysis.manifest.emulated, "scale_out": s.index, "scaling_id": s.scaling_id,
        "units_before": s.units_before, "units_desired": s.units_desired, "marginal_unit": s.marginal_unit,
        "onset_lo": None if onset is None else _instant(onset.lo_us),
        "onset": None if onset is None else _instant(onset.at_us),
        "onset_hi": None if onset is None else _instant(onset.hi_us),
        "decision": _instant(s.decision.at_us),
        "in_service": None if s.in_service is None else _instant(s.in_service.at_us),
        "time_to_capacity_us": s.time_to_capacity_us, "startup_us": s.startup_us,
        "unattributed_us": s.unattributed_us, "censored": s.censored,
    }  # fmt: skip
