"""The next requests of a plan, prepared ahead of time and outside the hub, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import gevent
import polars as pl

from loadgen.endpoints.base import Endpoint
from loadgen.laps import in_lap
from loadgen.native import in_thread
from loadgen.plan import PlannedRequest, Traits, plan_rows, traits
from loadgen.scenario import ReplaySection
from traces.manifest import Laps

HORIZON_US = 5_000_000
"""How far ahead of its due instant a request may be prepared: signatures must not grow old."""

_MAX_BYTES = 64 * 1024 * 1024
_BATCH_ROWS = 4096
_SLICE_ROWS = 32
_CHECK_S = 0.05


class Prepared(NamedTuple):
    """A planned request with its bytes, and when it is due: its arrival, or later because of the turn before it.

    `predecessor_late_us` is that delay, `None` for a request without a turn before it. Instants are client µs from t0.
    """

    request: PlannedRequest
    wire: bytes
    prepared_us: int
    due_us: int
    predecessor_late_us: int | None = None


class Plan:
    """The planned requests of a run's `trace.parquet`, read piece by piece, in as many laps as `laps` says.

    `first` is the place in the plan that this one begins at; `held` rows, from before it, come ahead of it.
    """

    def __init__(
        self,
        trace: Path,
        replay: ReplaySection,
        time_scale: float,
        *,
        laps: Laps | None = None,
        first: int = 0,
        held: Sequence[PlannedRequest] = (),
    ) -> None:
        self._trace = trace
        self._replay = replay
        self._time_scale = time_scale
        self._laps = laps
        self.first = first
        self.held = held

    def traits(self) -> Traits:
        """Return what the whole trace has. Reads in the hub's native thread pool."""
        return in_thread(traits, pl.scan_parquet(self._trace))

    def batches(self, start: int = 0) -> Iterator[list[PlannedRequest]]:
        """Yield planned requests, without the first `start`. Reads in the hub's native thread pool."""
        while batch := in_thread(self._read, start):
            yield batch
            start += len(batch)

    def _read(self, start: int) -> list[PlannedRequest]:
        if start < len(self.held):
            return list(self.held[start : start + _BATCH_ROWS])
        position = self.first + start - len(self.held)
        lap, row = divmod(position, self._laps.rows) if self._laps else (0, position)
        frame = pl.scan_parquet(self._trace).slice(row, _BATCH_ROWS).collect()
        if self._laps:
            frame = in_lap(frame, lap, self._laps)
        return plan_rows(frame, self._replay, self._time_scale)


class LookAhead:
    """A bounded queue of prepared requests, filled by a greenlet that works in the hub's native thread pool.

    Requests are prepared in slices of a few rows: a native thread that computes holds the interpreter's lock, and the
    hub has to get it back between two slices. `filled` is called when an empty queue got something, or the plan ended.
    `on_take` is told the row id of each request before it may be sent.
    """

    def __init__(self, plan: Plan, endpoint: Endpoint, elapsed_us: Callable[[], int]) -> None:
        self._plan = plan
        self._endpoint = endpoint
        self._elapsed_us = elapsed_us
        self._queue: deque[Prepared] = deque()
        self._bytes = 0
        self._filler = gevent.Greenlet(self._fill_or_fail)
        self._failure: Exception | None = None
        self.filled: Callable[[], None] = _do_nothing
        self.on_take: Callable[[int], None] | None = None
        self.taken = 0

    def start(self) -> None:
        """Begin to prepare."""
        self._filler.link(lambda _: self.filled())
        self._filler.start()

    def stop(self) -> None:
        """Stop preparing."""
        self._filler.kill()

    def peek(self) -> Prepared | None:
        """Return the next prepared request without taking it; `None` when there is none (see `finished`)."""
        return self._queue[0] if self._queue else None

    def take(self) -> Prepared:
        """Take the next prepared request; there must be one."""
        item = self._queue.popleft()
        self._bytes -= len(item.wire)
        self.taken += 1
        if self.on_take is not None:
            self.on_take(item.request.row_id)
        return item

    @property
    def finished(self) -> bool:
        """Whether nothing is left to take. Raises what preparing raised."""
        if self._queue or not self._filler.ready():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def due_before(self, offset_us: int, limit: int) -> int:
        """Return how many prepared requests are due before an offset, counting no further than `limit`."""
        count = 0
        for item in self._queue:
            if count >= limit or item.due_us >= offset_us:
                break
            count += 1
        return count

    def again(self, item: Prepared) -> Prepared:
        """Return a request prepared anew: its signature had grown old, or its bytes were given up."""
        self._endpoint.refresh()
        (fresh,) = in_thread(_prepare, self._endpoint, [item.request], self._elapsed_us())
        return fresh._replace(due_us=item.due_us, predecessor_late_us=item.predecessor_late_us)

    def _fill_or_fail(self) -> None:
        """Fill; what goes wrong is kept for `finished`: gevent would print it as a traceback."""
        try:
            self._fill()
        except Exception as error:
            self._failure = error

    def _fill(self) -> None:
        for batch in self._plan.batches():
            start = 0
            while start < len(batch):
                while self._bytes > _MAX_BYTES or batch[start].due_us > self._elapsed_us() + HORIZON_US:
                    gevent.sleep(_CHECK_S)
                piece = _near(batch, start, self._elapsed_us() + HORIZON_US)
                start += len(piece)
                self._endpoint.refresh()
                prepared = in_thread(_prepare, self._endpoint, piece, self._elapsed_us())
                was_empty = not self._queue
                self._queue.extend(prepared)
                self._bytes += sum(len(item.wire) for item in prepared)
                if was_empty:
                    self.filled()


def _near(batch: list[PlannedRequest], start: int, horizon_us: int) -> list[PlannedRequest]:
    """Return the next slice: rows that are due before the horizon, a few at most, and one at least."""
    end = start + 1
    while end < min(len(batch), start + _SLICE_ROWS) and batch[end].due_us <= horizon_us:
        end += 1
    return batch[start:end]


def _prepare(endpoint: Endpoint, piece: list[PlannedRequest], now_us: int) -> list[Prepared]:
    return [Prepared(request, endpoint.prepare(request), now_us, request.due_us) for request in piece]


def _do_nothing() -> None:
    pass
