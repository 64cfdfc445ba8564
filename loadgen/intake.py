"""A scenario's trace, checked, cut to its window, and written into the run directory as what is to be sent."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl

from loadgen.scenario import Scenario
from traces.errors import BadInputError
from traces.run import TraceUsed


def cut_trace(scenario: Scenario) -> tuple[pl.LazyFrame, TraceUsed]:
    """Return the rows in the scenario's window, lazily, and what the manifest says of them.

    Raises `BadInputError` for a trace that cannot be read, and for a window without an arrival.
    """
    from traces.lineage import steps_of
    from traces.readers import open_trace
    from traces.transform import no_rows_message, window

    section = scenario.trace
    loaded = open_trace(section.path, section.format)
    account = loaded.account()
    start_us, end_us = section.window_us
    frame = window(loaded.scan(), start_us, end_us)
    rows = frame.select(pl.len()).collect().item()
    if not rows:
        raise BadInputError(no_rows_message(section.path, start_us, end_us, account.span_us, account.rows_kept))
    used = TraceUsed(
        source=section.path,
        format=account.format,
        sha256=account.sha256,
        window=section.window,
        rows=rows,
        transforms=steps_of(loaded.path),
    )
    return frame, used


def write_trace(frame: pl.LazyFrame, folder: Path) -> int:
    """Write what is to be sent as `trace.parquet`, streaming, and return the last arrival (µs).

    A disk that is full, or a folder that went away, is a `BadInputError`.
    """
    temporary, final = folder / ".part-trace.parquet", folder / "trace.parquet"
    try:
        frame.sink_parquet(temporary, compression="zstd", row_group_size=1 << 16)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.rename(final)
    except (OSError, pl.exceptions.ComputeError) as error:
        cause = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise BadInputError(f"{final}: cannot be written ({cause}); free space or choose another --run-dir") from error
    return int(pl.scan_parquet(final).select(pl.col("arrival_us").max()).collect().item())
