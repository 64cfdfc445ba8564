"""Opens a run directory, whole or damaged, and brings everything in it to endpoint time. The only module that scans."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from analysis.records import Finding, Sighting
from traces.clock import EndpointClock
from traces.errors import BadInputError
from traces.run import Manifest, RunDir
from traces.schema import TABLES, Trace

_CLIENT_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "requests": ("due", "sent", "headers", "first_token", "first_visible_token", "last_token", "done"),
    "observations": ("request_sent", "response_received"),
    "samples": ("received",),
    "gaps": ("start", "end"),
}
"""Columns in client time; `lo` and `hi` of observations are too where their `clock` says so."""


_KEPT: Final = {
    "requests": (
        "row_id", "due", "sent", "first_token", "done", "outcome", "http_status", "error_kind", "error_text",
        "planned_output_tokens", "output_tokens", "unit_id", "shard",
    )
}  # fmt: skip
"""Columns that are read at all, where a table may be large."""


class RunInputs(msgspec.Struct, frozen=True, kw_only=True):
    """A run in endpoint time. Frames have columns of `traces.schema`: requests and trace those that are used."""

    path: Path
    manifest: Manifest
    trace: pl.DataFrame
    requests: pl.DataFrame
    observations: pl.DataFrame
    samples: pl.DataFrame
    gaps: pl.DataFrame
    snapshots: dict[str, Any]
    findings: tuple[Finding, ...]

    @property
    def clock(self) -> EndpointClock:
        """The map from client to endpoint time."""
        return self.manifest.clock

    @property
    def load_start_us(self) -> int | None:
        """The start of the replay, endpoint time."""
        return None if self.manifest.t0_us is None else self.clock.to_endpoint_us(self.manifest.t0_us)


def open_run(path: str | Path) -> RunInputs:
    """Return everything that can be read in a run directory; what cannot is a finding. Not a run: BadInputError."""
    run = RunDir.open(path)
    manifest = run.manifest()
    findings: list[Finding] = []
    tables = {name: _read(run, name, findings) for name in TABLES}
    for name, columns in _CLIENT_COLUMNS.items():
        kept = [column for column in columns if column in tables[name].columns]
        tables[name] = tables[name].with_columns(manifest.clock.endpoint_expr(column) for column in kept)
    observed = tables["observations"]
    on_client = pl.col("clock") == "client"
    observed = observed.with_columns(
        pl.when(on_client).then(manifest.clock.endpoint_expr(side)).otherwise(pl.col(side)).alias(side)
        for side in ("lo", "hi")
    )
    return RunInputs(
        path=run.path,
        manifest=manifest,
        trace=_read_trace(run, findings),
        requests=tables["requests"].sort("due", "row_id"),
        observations=latest_rows(observed),
        samples=tables["samples"].sort("start", "metric", "resource"),
        gaps=tables["gaps"].sort("start", "source"),
        snapshots=run.snapshots(),
        findings=tuple(findings),
    )


def latest_rows(observations: pl.DataFrame) -> pl.DataFrame:
    """Return the observations with, of each (source, native_id), only the row received last; in a fixed order."""
    fixed = [column for column in observations.columns if column != "response_received"]
    return (
        observations.sort("response_received", *fixed)
        .unique(["source", "native_id"], keep="last", maintain_order=True)
        .sort("hi", "lo", "source", "native_id")
    )


def sightings(observations: pl.DataFrame) -> list[Sighting]:
    """Return observations as records with instants in µs; a `detail` that is not JSON reads as empty."""
    rows = observations.with_columns(pl.col("lo", "hi").dt.epoch("us")).iter_rows(named=True)
    return [
        Sighting(
            platform=row["platform"],
            resource=row["resource"],
            source=row["source"],
            native_id=row["native_id"],
            method=row["method"],
            clock=row["clock"],
            anchor=row["anchor"],
            scaling_id=row["scaling_id"],
            unit_id=row["unit_id"],
            lo_us=row["lo"],
            hi_us=row["hi"],
            duration_us=row["duration_us"],
            resolution_us=row["resolution_us"],
            detail=_decoded(row["detail"]),
        )
        for row in rows
    ]


def _decoded(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _read(run: RunDir, table: str, findings: list[Finding]) -> pl.DataFrame:
    """Return a table's whole shards; torn or damaged ones are left out and named in a finding."""
    bad = [path.name for path in run.unreadable(table)]
    try:
        frame = run.scan(table).select(_KEPT.get(table, pl.all())).collect()
    except (pl.exceptions.PolarsError, OSError):
        frame = _read_piecewise(run, table, bad)
    if bad:
        shown = ", ".join(sorted(set(bad))[:3]) + (" and more" if len(set(bad)) > 3 else "")
        text = f"{len(set(bad))} file(s) of {table} could not be read and are left out: {shown}"
        findings.append(Finding(code="damaged-files", severity="warning", text=text))
    return frame


def _read_piecewise(run: RunDir, table: str, bad: list[str]) -> pl.DataFrame:
    schema = pl.Schema(TABLES[table])
    frames = [pl.DataFrame(schema=schema)]
    for path in run.shards(table):
        if path.name in bad:
            continue
        try:
            lazy = pl.scan_parquet(path, schema=schema, missing_columns="insert", extra_columns="ignore")
            frames.append(lazy.collect())
        except (pl.exceptions.PolarsError, OSError):
            bad.append(path.name)
    return pl.concat(frames).select(_KEPT.get(table, pl.all()))


def _read_trace(run: RunDir, findings: list[Finding]) -> pl.DataFrame:
    schema = pl.Schema(Trace)
    file = run.path / "trace.parquet"
    wanted = ["row_id", "arrival_us", "input_tokens", "output_tokens", "parent_row"]
    empty = pl.DataFrame(schema=schema).select(wanted)
    if not file.is_file():
        return empty
    try:
        lazy = pl.scan_parquet(file, schema=schema, missing_columns="insert", extra_columns="ignore")
        return lazy.select(wanted).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        text = f"trace.parquet could not be read ({type(error).__name__}); what was never sent cannot be counted"
        findings.append(Finding(code="damaged-files", severity="warning", text=text))
        return empty


__all__ = ["BadInputError", "RunInputs", "latest_rows", "open_run", "sightings"]
