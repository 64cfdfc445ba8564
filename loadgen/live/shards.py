"""Feeds a meter from the requests that other processes record: each of their shards once, as it appears."""

from __future__ import annotations

import polars as pl

from loadgen.live.meter import Meter
from loadgen.recorder import RequestRow
from traces.run import RunDir, is_complete
from traces.schema import Request

_COLUMNS = ("row_id", "due", "sent", "first_token", "done", "outcome", "error_kind", "endpoint")
_INSTANTS = ("due", "sent", "first_token", "done")


class RequestReader:
    """Follows a run's `requests`. A request is counted when its row is there, at the instants that the row states."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._read: set[str] = set()

    def feed(self, meter: Meter) -> None:
        """Count what is new. Blocks: call it outside the gevent hub."""
        for path in self._run.shards("requests"):
            if path.name in self._read or not is_complete(path):
                continue
            try:
                replaced = set(pl.read_parquet_metadata(path).get("ramptrace.replaces", "").split(","))
                lazy = pl.scan_parquet(
                    path, schema=pl.Schema(Request), missing_columns="insert", extra_columns="ignore"
                )
                rows = lazy.select(_COLUMNS).with_columns(pl.col(_INSTANTS).dt.epoch("us")).collect()
            except (pl.exceptions.PolarsError, OSError):
                continue  # merged away meanwhile
            self._read.add(path.name)
            if replaced & self._read:
                continue  # a merger of what was counted already
            for row in rows.iter_rows(named=True):
                if row["outcome"] == "not_sent":
                    continue
                meter.due(row["due"])
                if row["sent"] is not None:
                    meter.sent(row["due"], row["sent"])
                meter.ended(RequestRow(**row))
