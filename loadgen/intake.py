"""A scenario's trace, checked, cut to its window, and written into the run directory as what is to be sent."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec
import polars as pl

from loadgen.laps import lap_length_us, planned_rows
from loadgen.scenario import Scenario
from traces.errors import BadInputError
from traces.manifest import Laps, Manifest, TraceUsed

logger = logging.getLogger("ramptrace")


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """The rows to send, lazily, what the manifest says of them, and how they repeat; `planned` `None` is no end."""

    frame: pl.LazyFrame
    used: TraceUsed
    laps: Laps | None
    planned: int | None


def cut_trace(scenario: Scenario) -> Cut:
    """Return what is to be sent: the rows in the scenario's window, up to its duration, and repeated if it says so.

    Raises `BadInputError` for a trace that cannot be read, and for a window without an arrival.
    """
    from traces.lineage import steps_of
    from traces.readers import open_trace
    from traces.transform import no_rows_message, window

    section, replay = scenario.trace, scenario.replay
    loaded = open_trace(section.path, section.format)
    account = loaded.account()
    start_us, end_us = section.window_us
    frame = window(loaded.scan(), start_us, end_us)
    laps = _laps(frame, None if end_us is None else end_us - start_us, replay.duration_us) if replay.loop else None
    if replay.duration_us is not None:
        frame = frame.filter(pl.col("arrival_us") < replay.duration_us)
    rows = frame.select(pl.len()).collect().item()
    if not rows:
        raise BadInputError(no_rows_message(section.path, start_us, end_us, account.span_us, account.rows_kept))
    if account.sampling_percent is not None and account.sampling_percent < 100:
        logger.warning(
            "%s is a sample of %g %% of the real requests, replayed as recorded; `ramptrace trace transform "
            "--rate-scale sampling` brings it to the real rate",
            section.path,
            account.sampling_percent,
        )
    used = TraceUsed(
        source=section.path,
        format=account.format,
        sha256=account.sha256,
        window=section.window,
        rows=rows,
        transforms=steps_of(loaded.path),
        sampling_percent=account.sampling_percent,
    )
    planned = rows if laps is None else planned_rows(laps, frame.select("arrival_us").collect().to_series())
    return Cut(frame=frame, used=used, laps=laps, planned=planned)


def _laps(frame: pl.LazyFrame, window_us: int | None, until_us: int | None) -> Laps | None:
    """Return how the rows repeat; `None` when the duration ends within the first lap, or there is no row."""
    rows, last_us, last_id = (
        frame.select(pl.len(), pl.col("arrival_us").max().alias("last"), pl.col("row_id").max()).collect().row(0)
    )
    if not rows:
        return None
    length_us = lap_length_us(last_us, rows, window_us)
    if until_us is not None and until_us <= length_us:
        return None
    return Laps(rows=rows, length_us=length_us, stride=last_id + 1, until_us=until_us)


def recut(manifest: Manifest, folder: Path) -> Cut:
    """Return what a run that was begun is to send, from its own `trace.parquet`."""
    used, laps = manifest.trace, manifest.laps
    assert used is not None
    frame = pl.scan_parquet(folder / "trace.parquet")
    planned = used.rows if laps is None else planned_rows(laps, frame.select("arrival_us").collect().to_series())
    return Cut(frame=frame, used=used, laps=laps, planned=planned)


def write_trace(frame: pl.LazyFrame, folder: Path) -> int:
    """Write what is to be sent as `trace.parquet`, and return the last arrival (µs)."""
    write_plan(frame, folder / "trace.parquet")
    return last_arrival_us(folder)


def write_plan(frame: pl.LazyFrame, final: Path) -> None:
    """Write rows of a Trace table, streaming.

    A disk that is full, or a folder that went away, is a `BadInputError`.
    """
    temporary = final.with_name(f".part-{final.name}")
    try:
        frame.sink_parquet(temporary, compression="zstd", row_group_size=1 << 16)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.rename(final)
    except (OSError, pl.exceptions.ComputeError) as error:
        cause = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise BadInputError(f"{final}: cannot be written ({cause}); free space or choose another --run-dir") from error


def last_arrival_us(folder: Path) -> int:
    """Return the last arrival (µs) in a run directory's trace."""
    return int(pl.scan_parquet(folder / "trace.parquet").select(pl.col("arrival_us").max()).collect().item())
