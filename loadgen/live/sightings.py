"""Reads what the collector writes, while it writes it: each shard once, brought to the run's time axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import polars as pl

from traces.clock import EndpointClock
from traces.run import RunDir, is_complete
from traces.schema import Observation

_FIRST_READING = "describe-endpoint-first"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One observation (see `traces.schema.Observation`), `lo_us` and `hi_us` on the run's time axis."""

    source: str
    native_id: str
    anchor: str | None
    scaling_id: str | None
    unit_id: str | None
    lo_us: int | None
    hi_us: int | None
    duration_us: int | None
    detail: dict[str, Any]

    def number(self, *keys: str) -> int | None:
        """Return the first whole number among these keys of the detail."""
        for key in keys:
            value = self.detail.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        return None


class SightingReader:
    """Follows a run's `observations`; `t0_us` (client time) is where the axis begins.

    A mutable record (an activity) comes again under its id: what was received last holds. Reading a shard twice, as
    after a compaction, changes nothing.
    """

    def __init__(self, run: RunDir, clock: EndpointClock, t0_us: int) -> None:
        self._run = run
        self._clock = clock
        self._zero_us = clock.to_endpoint_us(t0_us)
        self._read: set[str] = set()
        self._rows: dict[tuple[str, str], tuple[int, Seen]] = {}
        self.units_at_start: int | None = None
        self.version = 0

    def poll(self) -> bool:
        """Read what is new; tells whether anything was. Blocks: call it outside the gevent hub."""
        fresh = [path for path in self._run.shards("observations") if path.name not in self._read]
        before = self.version
        if self.units_at_start is None:
            self.units_at_start = _units(self._run.snapshots().get(_FIRST_READING))
            self.version += self.units_at_start is not None
        for path in fresh:
            if not is_complete(path):
                continue
            try:
                lazy = pl.scan_parquet(
                    path, schema=pl.Schema(Observation), missing_columns="insert", extra_columns="ignore"
                )
                rows = lazy.with_columns(pl.col("lo", "hi", "response_received").dt.epoch("us")).collect()
            except (pl.exceptions.PolarsError, OSError):
                continue  # merged away meanwhile: the merged shard is read next time
            self._read.add(path.name)
            for row in rows.iter_rows(named=True):
                self._take(row)
        return self.version != before

    def seen(self) -> list[Seen]:
        """Return everything seen so far that dates something, or says how many units there are."""
        return [seen for _, seen in list(self._rows.values())]

    def _take(self, row: dict[str, Any]) -> None:
        key, received = (row["source"], row["native_id"]), row["response_received"]
        if key in self._rows and self._rows[key][0] > received:
            return
        found = Seen(
            source=row["source"],
            native_id=row["native_id"],
            anchor=row["anchor"],
            scaling_id=row["scaling_id"],
            unit_id=row["unit_id"],
            lo_us=self._on_axis(row["lo"], row["clock"]),
            hi_us=self._on_axis(row["hi"], row["clock"]),
            duration_us=row["duration_us"],
            detail=_decoded(row["detail"]),
        )
        if found.anchor is not None or found.number("to") is not None:
            self._rows[key] = (received, found)
            self.version += 1

    def _on_axis(self, us: int | None, clock: str) -> int | None:
        if us is None:
            return None
        to_endpoint: Callable[[int], int] = self._clock.to_endpoint_us
        return (to_endpoint(us) if clock == "client" else us) - self._zero_us


def _decoded(text: str | None) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _units(described: Any) -> int | None:
    variants = described.get("ProductionVariants") if isinstance(described, dict) else None
    first = variants[0] if isinstance(variants, list) and variants else None
    count = first.get("CurrentInstanceCount") if isinstance(first, dict) else None
    return count if isinstance(count, int) else None
