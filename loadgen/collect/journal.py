"""The collector's side of a run directory: drops what it already has, buffers the rest, writes it in small shards."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from loadgen.collect.base import Reading, Row
from loadgen.collect.redaction import kept
from loadgen.collect.rows import gap
from traces.clock import to_us
from traces.run import RunDir, ShardWriter, columns_of
from traces.schema import TABLES, Observation

WRITER = "collector"
TABLES_WRITTEN = ("observations", "samples", "gaps")

MERGE_EVERY = 256
"""After so many flushes the shards that they wrote are merged."""
KEPT_AT_MOST = 100_000
"""How many rows of one table wait for space on a full disk (a row is about a kilobyte); the oldest go first."""
_REREAD_US = 4 * 3_600_000_000
"""No reading of CloudWatch goes back further than the three hours for which it keeps its finest data."""
_FORGET_AT = 4_096
_TAKEN_AT = {"observations": "response_received", "samples": "received"}
_NOT_CONTENT = {"request_sent", "response_received"}
_CONTENT = [name for name in pl.Schema(Observation) if name not in _NOT_CONTENT]
_PLATFORM_SAMPLES = ("cloudwatch", "promql")


class Lost(NamedTuple):
    """Rows that no memory could keep until there was space again: how many, and when they were taken (client µs)."""

    rows: int
    start_us: int
    end_us: int


class Batch(NamedTuple):
    """What is to be written at one flush: rows by table, snapshots by name, and what was lost before."""

    rows: dict[str, list[Row]]
    snapshots: dict[str, Any]
    lost: list[Lost]


class Journal:
    """Takes rows in the event loop, as do `cut` and `restore`; `write` may run in a thread beside it.

    An observation is new when its (source, native_id) is, or when what it says changed; then the later row holds. A
    datapoint is new when its value is. Of what a platform's documents say, a snapshot holds what `redaction.kept` lets
    through.
    """

    def __init__(self, run: RunDir, kept_at_most: int = KEPT_AT_MOST) -> None:
        self._run = run
        self._kept_at_most = kept_at_most
        self._writers = {table: ShardWriter(run, table, WRITER) for table in TABLES_WRITTEN}
        self._rows = _empty()
        self._snapshots: dict[str, Any] = {}
        self._lost: list[Lost] = []
        self._observed: dict[tuple[str, str], int] = {}
        self._sampled: dict[tuple[Any, ...], float] = {}
        self._forget_at = _FORGET_AT
        self.written = dict.fromkeys(TABLES_WRITTEN, 0)
        self._flushes = 0
        self._recall()

    def take(self, reading: Reading, platform: str) -> None:
        """Take what is new in a reading of a platform."""
        for told in reading.observations:
            row = {"platform": platform, **told}
            key, content = (row["source"], row["native_id"]), _content(row)
            if self._observed.get(key) != content:
                self._observed[key] = content
                self._rows["observations"].append(row)
        for row in reading.samples:
            point = _point(row)
            if self._sampled.get(point) != row["value"]:
                self._sampled[point] = row["value"]
                self._rows["samples"].append(row)
        if len(self._sampled) > self._forget_at:
            self._forget()
        self._snapshots |= {name: kept(document) for name, document in reading.snapshots.items()}

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._run.path

    @property
    def waiting(self) -> int:
        """How many rows wait to be written."""
        return sum(map(len, self._rows.values()))

    @property
    def lost(self) -> int:
        """How many rows were lost since the last write."""
        return sum(lost.rows for lost in self._lost)

    def pending(self) -> tuple[int, int]:
        """Return how many observations and samples wait to be written."""
        return len(self._rows["observations"]), len(self._rows["samples"])

    def note(self, name: str, document: Any) -> None:
        """Take a snapshot of our own measurements as it is."""
        self._snapshots[name] = document

    def add(self, table: str, row: Row) -> None:
        """Take one row as it is."""
        self._rows[table].append(row)

    def cut(self) -> Batch:
        """Take out all that is pending."""
        batch = Batch(self._rows, self._snapshots, self._lost)
        self._rows, self._snapshots, self._lost = _empty(), {}, []
        return batch

    def write(self, batch: Batch) -> None:
        """Write a batch and empty it as it goes; on an `OSError` it holds what is still to be written."""
        for table in TABLES_WRITTEN:
            rows = batch.rows[table]
            if table == "gaps" and batch.lost:
                rows = batch.rows[table] = rows + [_gap_of(lost) for lost in batch.lost]
                batch.lost.clear()
            self._writers[table].write(columns_of(rows, TABLES[table]))
            self.written[table] += len(rows)
            batch.rows[table] = []
        for name in list(batch.snapshots):
            self._run.write_snapshot(name, batch.snapshots[name])
            del batch.snapshots[name]
        self._flushes += 1
        if self._flushes % MERGE_EVERY == 0:
            self._merge()

    def _merge(self) -> None:
        """Merge the small shards: a day of one each second is more than anyone can open."""
        for table in TABLES_WRITTEN:
            with contextlib.suppress(OSError):  # there is no room for that; the small ones are as good
                self._run.compact(table, writer=WRITER, at_least=MERGE_EVERY // 2)

    def restore(self, batch: Batch) -> None:
        """Put back what could not be written; of more rows than memory shall hold the oldest are lost, and say so."""
        self._rows = {table: batch.rows[table] + self._rows[table] for table in TABLES_WRITTEN}
        self._snapshots = batch.snapshots | self._snapshots
        self._lost = batch.lost + self._lost
        for table in _TAKEN_AT:
            too_many = len(self._rows[table]) - self._kept_at_most
            if too_many > 0:
                self._lose(table, self._rows[table][:too_many])
                del self._rows[table][:too_many]

    def _lose(self, table: str, rows: list[Row]) -> None:
        """Forget rows, also that they were taken: what the platform still tells is taken again."""
        for row in rows:
            if table == "observations":
                self._observed.pop((row["source"], row["native_id"]), None)
            else:
                self._sampled.pop(_point(row), None)
        taken = [to_us(row[_TAKEN_AT[table]]) for row in rows]
        stretches = [*self._lost, Lost(len(rows), min(taken), max(taken))]
        whole = Lost(
            sum(lost.rows for lost in stretches),
            min(lost.start_us for lost in stretches),
            max(lost.end_us for lost in stretches),
        )
        self._lost = [whole]

    def _forget(self) -> None:
        """Forget the datapoints that no reading returns again, so that memory stays flat."""
        newest_us = to_us(max(point[-1] for point in self._sampled))
        self._sampled = {
            point: value
            for point, value in self._sampled.items()
            if point[0] != "cloudwatch" or newest_us - to_us(point[-1]) < _REREAD_US
        }
        self._forget_at = max(_FORGET_AT, 2 * len(self._sampled))

    def _recall(self) -> None:
        """Learn what an earlier collector of the same run wrote."""
        for row in self._run.scan("observations").sort("response_received").collect().iter_rows(named=True):
            self._observed[row["source"], row["native_id"]] = _content(row)
        samples = self._run.scan("samples").filter(pl.col("source").is_in(_PLATFORM_SAMPLES)).sort("received").collect()
        for row in samples.iter_rows(named=True):
            self._sampled[_point(row)] = row["value"]


def _empty() -> dict[str, list[Row]]:
    return {table: [] for table in TABLES_WRITTEN}


def _gap_of(lost: Lost) -> Row:
    return gap("collector", "disk", lost.start_us, lost.end_us, f"{lost.rows} rows were lost: nothing could be written")


def _content(row: Mapping[str, Any]) -> int:
    return hash(tuple(row[name] for name in _CONTENT))


def _point(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("source", "metric", "resource", "unit_id", "statistic", "period_us", "start"))
