"""The next requests of a plan, prepared ahead of time and outside the hub, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import gevent
import gevent.event
import polars as pl

from loadgen.endpoints.base import Endpoint
from loadgen.laps import in_lap
from loadgen.native import in_thread
from loadgen.plan import PlannedRequest, plan_rows
from loadgen.scenario import ReplaySection
from traces.run import Laps

HORIZON_US = 5_000_000
"""How far ahead of its due instant a request may be prepared: signatures must not grow old."""

_MAX_BYTES = 64 * 1024 * 1024
_BATCH_ROWS = 4096
_SLICE_ROWS = 32
_CHECK_S = 0.05


class Prepared(NamedTuple):
    """A planned request with its bytes."""

    request: PlannedRequest
    wire: bytes


class Plan:
    """The planned requests of a run's `trace.parquet`, read piece by piece, in as many laps as `laps` says.

    `first` is the place in the plan that this one begins at.
    """

    def __init__(
        self, trace: Path, replay: ReplaySection, time_scale: float, *, laps: Laps | None = None, first: int = 0
    ) -> None:
        self._trace = trace
        self._replay = replay
        self._time_scale = time_scale
        self._laps = laps
        self.first = first

    def batches(self, start: int = 0) -> Iterator[list[PlannedRequest]]:
        """Yield planned requests, without the first `start`. Reads in the hub's native thread pool."""
        while batch := in_thread(self._read, start):
            yield batch
            start += len(batch)

    def _read(self, start: int) -> list[PlannedRequest]:
        position = self.first + start
        lap, row = divmod(position, self._laps.rows) if self._laps else (0, position)
        frame = pl.scan_parquet(self._trace).slice(row, _BATCH_ROWS).collect()
        if self._laps:
            frame = in_lap(frame, lap, self._laps)
        return plan_rows(frame, self._replay, self._time_scale)


class LookAhead:
    """A bounded queue of prepared requests, filled by a greenlet that works in the hub's native thread pool.

    Requests are prepared in slices of a few rows: a native thread that computes holds the interpreter's lock, and the
    hub has to get it back between two slices. `on_take` is told the row id of each request before it may be sent.
    """

    def __init__(self, plan: Plan, endpoint: Endpoint, elapsed_us: Callable[[], int]) -> None:
        self._plan = plan
        self._endpoint = endpoint
        self._elapsed_us = elapsed_us
        self._queue: deque[Prepared] = deque()
        self._bytes = 0
        self._changed = gevent.event.Event()
        self._filler = gevent.Greenlet(self._fill)
        self.on_take: Callable[[int], None] | None = None
        self.taken = 0

    def start(self) -> None:
        """Begin to prepare."""
        self._filler.start()

    def stop(self) -> None:
        """Stop preparing."""
        self._filler.kill()

    def take(self) -> Prepared | None:
        """Return the next prepared request, waiting for it if need be; `None` at the plan's end.

        Raises what preparing raised.
        """
        while not self._queue:
            if self._filler.ready():
                self._filler.get()
                if not self._queue:
                    return None
                break
            self._changed.clear()
            self._changed.wait(_CHECK_S)
        item = self._queue.popleft()
        self._bytes -= len(item.wire)
        self.taken += 1
        if self.on_take is not None:
            self.on_take(item.request.row_id)
        return item

    def due_before(self, offset_us: int, limit: int) -> int:
        """Return how many prepared requests are due before an offset, counting no further than `limit`."""
        count = 0
        for item in self._queue:
            if count >= limit or item.request.due_us >= offset_us:
                break
            count += 1
        return count

    def _fill(self) -> None:
        for batch in self._plan.batches():
            self._endpoint.refresh()
            for start in range(0, len(batch), _SLICE_ROWS):
                piece = batch[start : start + _SLICE_ROWS]
                while self._bytes > _MAX_BYTES or piece[0].due_us > self._elapsed_us() + HORIZON_US:
                    gevent.sleep(_CHECK_S)
                prepared = in_thread(_prepare, self._endpoint, piece)
                self._queue.extend(prepared)
                self._bytes += sum(len(item.wire) for item in prepared)
                self._changed.set()


def _prepare(endpoint: Endpoint, piece: list[PlannedRequest]) -> list[Prepared]:
    return [Prepared(request, endpoint.prepare(request)) for request in piece]
