"""Opens a run directory, whole or damaged, and brings everything in it to endpoint time. The only module that scans."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from analysis.records import Finding, Sighting
from traces.clock import CLOCK_SNAPSHOT, EndpointClock, corrected
from traces.errors import BadInputError
from traces.manifest import Manifest
from traces.run import RunDir
from traces.schema import TABLES, Trace

_CLIENT_INSTANTS: Final = ("due", "sent", "first_token", "done")
_CLIENT_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "observations": ("request_sent", "response_received"),
    "samples": ("received",),
    "gaps": ("start", "end"),
}
"""Columns in client time; `lo` and `hi` of observations are too where their `clock` says so."""


REQUEST_COLUMNS: Final = (
    "row_id", "due", "sent", "first_token", "done", "outcome", "http_status", "error_kind", "error_text",
    "planned_output_tokens", "output_tokens", "unit_id", "shard",
)  # fmt: skip
TRACE_COLUMNS: Final = ("row_id", "arrival_us", "input_tokens", "output_tokens")
"""Columns that are read at all of the tables that may be large."""
HELD_IN_MEMORY: Final = 1_000_000
"""Requests (or trace rows) up to which a table is read once and held; a longer one is scanned for each figure."""


class RunInputs(msgspec.Struct, frozen=True, kw_only=True):
    """A run in endpoint time. Frames have columns of `traces.schema`: requests and trace those that are used.

    `requests` and `trace` may be longer than memory: they are lazy, in no particular order.
    """

    path: Path
    manifest: Manifest
    trace: pl.LazyFrame
    trace_rows: int
    requests: pl.LazyFrame
    request_rows: int
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


def open_run(path: str | Path, *, checked: bool = False) -> RunInputs:
    """Return everything that can be read in a run directory; what cannot is a finding. Not a run: BadInputError.

    Requests beyond `HELD_IN_MEMORY` are scanned later, and damage inside a whole file shows only then, as a
    `PolarsError`; `checked` decodes every file here, and leaves the damaged ones out.
    """
    run = RunDir.open(path)
    manifest = run.manifest()
    manifest.clock = corrected(manifest.clock, run.snapshots().get(CLOCK_SNAPSHOT))
    findings: list[Finding] = []
    tables = {name: _read(run, name, findings) for name in TABLES if name != "requests"}
    requests, request_rows = _scan_requests(run, findings, checked=checked)
    trace, trace_rows = _scan_trace(run, findings, checked=checked)
    for name, columns in _CLIENT_COLUMNS.items():
        tables[name] = tables[name].with_columns(manifest.clock.endpoint_expr(column) for column in columns)
    observed = tables["observations"]
    on_client = pl.col("clock") == "client"
    observed = observed.with_columns(
        pl.when(on_client).then(manifest.clock.endpoint_expr(side)).otherwise(pl.col(side)).alias(side)
        for side in ("lo", "hi")
    )
    return RunInputs(
        path=run.path,
        manifest=manifest,
        trace=trace,
        trace_rows=trace_rows,
        requests=requests.with_columns(manifest.clock.endpoint_expr(column) for column in _CLIENT_INSTANTS),
        request_rows=request_rows,
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


def _scan_requests(run: RunDir, findings: list[Finding], *, checked: bool) -> tuple[pl.LazyFrame, int]:
    """Return the requests' whole shards and their number of rows, held in memory where they are few."""
    if checked:
        # A file may be whole and yet damaged inside: only decoding it shows that.
        bad = [path for path in run.shards("requests") if not _decodes(path)]
        good = [path for path in run.shards("requests") if path not in bad]
        schema = pl.Schema(TABLES["requests"])
        lazy = pl.scan_parquet(good, schema=schema, missing_columns="insert", extra_columns="ignore")
        lazy = lazy if good else pl.LazyFrame(schema=schema)
    else:
        bad, lazy = run.unreadable("requests"), run.scan("requests")
    _tell_damaged("requests", [path.name for path in bad], findings)
    lazy = lazy.select(REQUEST_COLUMNS)
    rows = int(lazy.select(pl.len()).collect().item())
    return (lazy.collect().lazy() if rows <= HELD_IN_MEMORY else lazy), rows


def _decodes(path: Path) -> bool:
    try:
        pl.scan_parquet(path).select(pl.all().count()).collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError):
        return False
    return True


def _tell_damaged(table: str, bad: list[str], findings: list[Finding]) -> None:
    if not bad:
        return
    shown = ", ".join(sorted(set(bad))[:3]) + (" and more" if len(set(bad)) > 3 else "")
    text = f"{len(set(bad))} file(s) of {table} could not be read and are left out: {shown}"
    findings.append(Finding(code="damaged-files", severity="warning", text=text))


def _read(run: RunDir, table: str, findings: list[Finding]) -> pl.DataFrame:
    """Return a table's whole shards; torn or damaged ones are left out and named in a finding."""
    bad = [path.name for path in run.unreadable(table)]
    try:
        frame = run.scan(table).collect()
    except (pl.exceptions.PolarsError, OSError):
        frame = _read_piecewise(run, table, bad)
    _tell_damaged(table, bad, findings)
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
    return pl.concat(frames)


def _scan_trace(run: RunDir, findings: list[Finding], *, checked: bool) -> tuple[pl.LazyFrame, int]:
    schema = pl.Schema(Trace)
    file = run.path / "trace.parquet"
    empty = pl.LazyFrame(schema=schema).select(TRACE_COLUMNS)
    if not file.is_file():
        return empty, 0
    try:
        lazy = pl.scan_parquet(file, schema=schema, missing_columns="insert", extra_columns="ignore")
        lazy = lazy.select(TRACE_COLUMNS)
        rows = int(lazy.select(pl.len()).collect().item())
        if rows <= HELD_IN_MEMORY:
            return lazy.collect().lazy(), rows
        if checked and not _decodes(file):
            raise pl.exceptions.ComputeError("damaged inside")
        return lazy, rows
    except (pl.exceptions.PolarsError, OSError) as error:
        text = f"trace.parquet could not be read ({type(error).__name__}); what was never sent cannot be counted"
        findings.append(Finding(code="damaged-files", severity="warning", text=text))
        return empty, 0


__all__ = ["BadInputError", "RunInputs", "latest_rows", "open_run", "sightings"]
