"""Writes what was sent and what came back, in small shards, outside the gevent hub.

A Parquet write inside the hub stalls every greenlet (measured: 100 ms for a large shard), so rows are gathered in
memory and given to the hub's native thread pool once per flush interval.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gevent
import gevent.lock
import msgspec

from loadgen.native import in_thread
from traces.run import RunDir, ShardWriter


class Writers(msgspec.Struct, frozen=True):
    """Who writes a shard, for one process that sends.

    `unsent` shards hold rows that a stop left: a resumed run sends them, and the shards go.
    """

    requests: str
    samples: str
    unsent: str


def writers_of(shard: int) -> Writers:
    """Return the writers' names of one process: no two processes share one.

    >>> writers_of(1)
    Writers(requests='worker1', samples='replay1', unsent='unsent1')
    """
    return Writers(f"worker{shard}", f"replay{shard}", f"unsent{shard}")


_FINAL_ATTEMPTS = 3
_MERGE_EVERY = 256

AS_RECORDED = "as_recorded"
"""`error_kind` of a request cancelled because its recorded client left: it was to be replayed, and is no failure."""

KILLED = "killed"
"""`error_kind` of a row cancelled because its replay was killed while it was under way or about to go."""


# Thousands of rows wait for a flush and hold nothing but numbers and text: no work for the garbage collector.
class RequestRow(msgspec.Struct, kw_only=True, gc=False):
    """One row of the `requests` table, instants in client µs since 1970; see `traces.schema.Request`."""

    row_id: int
    due: int
    outcome: str
    endpoint: str
    shard: int = 0
    sent: int | None = None
    headers: int | None = None
    first_token: int | None = None
    first_visible_token: int | None = None
    last_token: int | None = None
    done: int | None = None
    http_status: int | None = None
    error_kind: str | None = None
    error_text: str | None = None
    planned_input_tokens: int | None = None
    planned_output_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    chunks: int | None = None
    chunk_us: list[int] | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None
    max_gap_us: int | None = None
    predecessor_late_us: int | None = None
    unit_id: str | None = None


class SampleRow(msgspec.Struct, kw_only=True, gc=False):
    """One row of the `samples` table: `start` in endpoint time, `received` in client time, µs since 1970."""

    metric: str
    start: int
    period_us: int
    statistic: str
    value: float
    received: int
    source: str = "replay"
    resource: str = "replay"
    unit_id: str | None = None


class Recorder:
    """Takes finished rows from any greenlet, and keeps at most one flush interval of them in memory."""

    def __init__(
        self, run: RunDir, *, flush_s: float, on_written: Callable[[list[RequestRow]], None], shard: int = 0
    ) -> None:
        self._run_dir = run
        self._on_written = on_written
        self._flushes = 0
        self._requests: list[RequestRow] = []
        self._samples: list[SampleRow] = []
        self._shard = shard
        self._writers = writers_of(shard)
        self._request_writer = ShardWriter(run, "requests", self._writers.requests)
        self._sample_writer = ShardWriter(run, "samples", self._writers.samples)
        self._flush_s = flush_s
        self._one_at_a_time = gevent.lock.BoundedSemaphore()
        self._loop: gevent.Greenlet | None = None
        self.failure: str | None = None

    def request(self, row: RequestRow) -> None:
        """Take a finished request."""
        row.shard = self._shard
        self._requests.append(row)

    def sample(self, row: SampleRow) -> None:
        """Take a sample."""
        row.resource = self._writers.requests
        self._samples.append(row)

    def start(self) -> None:
        """Begin to write once per flush interval."""
        self._loop = gevent.spawn(self._run)

    def flush(self) -> None:
        """Write what is held. What cannot be written is kept for the next time, and `failure` says why."""
        with self._one_at_a_time:
            requests, self._requests = self._requests, []
            samples, self._samples = self._samples, []
            written, requests = requests, self._write(self._request_writer, requests, RequestRow)
            if written and not requests:
                self._on_written(written)
            samples = self._write(self._sample_writer, samples, SampleRow)
            self._requests[:0] = requests
            self._samples[:0] = samples

    def close(self) -> None:
        """Write the rest and stop. Raises `OSError` when rows could not be written at last."""
        if self._loop is not None:
            self._loop.kill()
        for _ in range(_FINAL_ATTEMPTS):
            self.flush()
            if not self._requests and not self._samples:
                return
            gevent.sleep(self._flush_s)
        raise OSError(f"{len(self._requests)} finished requests could not be written: {self.failure}")

    def _run(self) -> None:
        while True:
            gevent.sleep(self._flush_s)
            # In a greenlet of its own, so that closing the loop cannot kill a write half way and lose its rows.
            gevent.spawn(self.flush).join()
            self._flushes += 1
            if self._flushes % _MERGE_EVERY == 0:
                gevent.spawn(self.merge, at_least=_MERGE_EVERY // 2).join()

    def merge(self, at_least: int = 2) -> None:
        """Merge the small shards that were written: a week of them, one per second, is more than one can open."""
        with self._one_at_a_time:
            for table, writer in (("requests", self._writers.requests), ("samples", self._writers.samples)):
                in_thread(partial(self._run_dir.compact, table, writer=writer, at_least=at_least))

    def _write(self, writer: ShardWriter, rows: list[Any], kind: type[msgspec.Struct]) -> list[Any]:
        """Write rows and return those that are left, which is none of them or all."""
        if not rows:
            return []
        try:
            in_thread(_write_shard, writer, rows, kind)
        except OSError as error:
            self.failure = error.strerror or type(error).__name__
            return rows
        return []


class UnsentWriter:
    """Writes the rows that a stop left unsent, in shards that a resumed run can take away again."""

    def __init__(self, run: RunDir, shard: int = 0) -> None:
        self._shard = shard
        self._writer = ShardWriter(run, "requests", writers_of(shard).unsent)

    def write(self, rows: list[RequestRow], reason: str) -> None:
        """Write rows at once, as not sent for this reason. Raises `OSError`."""
        for row in rows:
            row.outcome, row.error_kind, row.shard = "not_sent", reason, self._shard
        if rows:
            in_thread(_write_shard, self._writer, rows, RequestRow)


def forget_unsent(run: RunDir) -> None:
    """Take away the rows that a stop had left unsent: they are going to be sent."""
    for path in unsent_shards(run):
        path.unlink()


def unsent_shards(run: RunDir) -> list[Path]:
    """Return the shards of the rows that a stop had left unsent."""
    return [path for path in run.shards("requests") if path.name.startswith("unsent")]


def _write_shard(writer: ShardWriter, rows: list[Any], kind: type[msgspec.Struct]) -> None:
    writer.write({name: [getattr(row, name) for row in rows] for name in kind.__struct_fields__})
