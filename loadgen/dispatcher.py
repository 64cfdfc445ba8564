"""The open loop: one greenlet walks absolute deadlines, one greenlet per request.

Nothing that a server does can delay a send: there is no pool of users and no cap unless the user sets one, and then
waiting for it counts as lag. A late start is recovered (rows that are overdue go out at once) and stays recorded.
The one exception is a conversation: its next turn cannot be asked before the last answer is there (`loadgen.turns`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from pathlib import Path

import gevent
import gevent.event
import gevent.lock
import gevent.pool

from loadgen.histogram import Histogram
from loadgen.lookahead import LookAhead, Prepared
from loadgen.sender import CancelledError
from loadgen.timer import make_timer
from loadgen.turns import Turns
from loadgen.windows import PREDECESSOR_UNFINISHED

_YIELD_EVERY = 128  # a turn of a busy loop takes long: yielding often would throttle the catching up after a stall
_WARM_US = 500_000
_WARM_EVERY_S = 0.05
_WARM_LIMIT = 2000
_PROBE_S = 0.005
_CHECK_US = 50_000
_FRESH_US = 60_000_000  # signatures are taken for five minutes
_WAITING_BYTES = 64 * 1024 * 1024


class Dispatcher:
    """Starts each prepared request at its due instant, and a later turn when the turn before it has ended.

    `send` handles one request to its end in its own greenlet. `ensure` is told how many requests fall due within the
    next half second, so that connections can be opened before they are needed. `turns` is `None` for a trace without
    conversations. After `run`, `left` holds what was taken from the look-ahead and not sent.
    """

    def __init__(
        self,
        lookahead: LookAhead,
        *,
        elapsed_us: Callable[[], int],
        send: Callable[[Prepared], None],
        ensure: Callable[[int], None],
        turns: Turns[Prepared] | None = None,
        max_in_flight: int = 0,
        give_up_us: int | None = None,
    ) -> None:
        self._lookahead = lookahead
        self._elapsed_us = elapsed_us
        self._send = send
        self._ensure = ensure
        self._waiting = WaitingTurns(turns) if turns is not None else None
        self._slots = gevent.lock.Semaphore(max_in_flight) if max_in_flight else None
        self._give_up_us = give_up_us
        self._stopped = gevent.event.Event()
        self._timer = make_timer()
        self.group = gevent.pool.Group()
        self.left: list[Prepared] = []
        self.started = 0
        self.stop_reason: str | None = None
        self._failure: Exception | None = None

    def run(self) -> None:
        """Walk the plan to its end, or until `stop`. Raises what preparing a request raised."""
        self._lookahead.filled = self._timer.nudge
        self._lookahead.start()
        warmer = gevent.spawn(self._warm)
        try:
            while (item := self._next()) is not None:
                if not self._wait_for_slot():
                    self.left.append(item)
                    break
                self.group.spawn(self._send_and_free, item)
                self.started += 1
                if self.started % _YIELD_EVERY == 0:
                    gevent.sleep(0)
        finally:
            warmer.kill()
            self._lookahead.stop()
            self._timer.close()
            if self._waiting is not None:
                self.left += self._waiting.close()
        if self._failure is not None:
            raise self._failure

    def stop(self, reason: str) -> None:
        """Send no more requests; those in flight go on. The first reason holds."""
        if self.stop_reason is None:
            self.stop_reason = reason
        self._stopped.set()
        self._timer.wake()

    def drain(self, timeout_s: float, cut_short: gevent.event.Event) -> None:
        """Wait for the requests in flight, at most so long, or until `cut_short` is set."""
        joiner = gevent.spawn(self.group.join)
        gevent.wait([joiner, cut_short], timeout=timeout_s, count=1)
        joiner.kill()

    def cancel(self, reason: str) -> None:
        """End the requests in flight; each records itself as cancelled for this reason."""
        gevent.sleep(0)  # one that was spawned a moment ago must have begun, or it would vanish without a row
        self.group.kill(CancelledError(reason))

    def _next(self) -> Prepared | None:
        """Return the request that is due, waiting for it; `None` at the end or after a stop."""
        while not self._stopped.is_set():
            arrival = self._lookahead.peek()
            turn = self._waiting.peek() if self._waiting is not None else None
            first = arrival if turn is None or (arrival is not None and arrival.due_us <= turn.due_us) else turn
            if arrival is None and self._is_over():
                return None
            if first is None:
                self._timer.wait(_CHECK_US)
            elif (left_us := first.due_us - self._elapsed_us()) > 0:
                # May end early, by a fraction or because something came in.
                self._timer.wait(left_us if arrival is not None else min(left_us, _CHECK_US))
            elif first is turn:
                return self._waiting.take()  # type: ignore[union-attr] # it had a turn
            else:
                item = self._lookahead.take()
                ready = item if self._waiting is None else self._waiting.arrive(item)
                if ready is not None:
                    return ready
        return None

    def _is_over(self) -> bool:
        if not self._lookahead.finished:
            return False
        if self._waiting is None or not self._waiting.any_left:
            return True
        if self._give_up_us is not None and self._elapsed_us() > self._give_up_us:
            self.stop(PREDECESSOR_UNFINISHED)
        return bool(self._stopped.is_set())

    def _fresh(self, item: Prepared) -> Prepared | None:
        """Return a request as it can be sent, `None` when it cannot be. Preparing it again counts as lag."""
        if item.wire and self._elapsed_us() - item.prepared_us <= _FRESH_US:
            return item
        try:
            return self._lookahead.again(item)
        except CancelledError:
            self.left.append(item)
        except Exception as error:
            self.left.append(item)
            self._failure = self._failure or error
            self.stop("internal_error")
        return None

    def _send_and_free(self, item: Prepared) -> None:
        try:
            fresh = self._fresh(item)
            if fresh is not None:
                self._send(fresh)
        finally:
            if self._slots is not None:
                self._slots.release()
            if self._waiting is not None and self._waiting.ended(item.request.row_id, self._elapsed_us()):
                self._timer.nudge()

    def _wait_for_slot(self) -> bool:
        if self._slots is None:
            return True
        while not self._slots.acquire(timeout=0.1):
            if self._give_up_us is not None and self._elapsed_us() > self._give_up_us:
                self.stop("max_in_flight")
            if self._stopped.is_set():
                return False
        return True

    def _warm(self) -> None:
        while True:
            # Overdue rows count too: those at the head of the queue are the next to need a connection.
            self._ensure(self._lookahead.due_before(self._elapsed_us() + _WARM_US, _WARM_LIMIT))
            gevent.sleep(_WARM_EVERY_S)


class WaitingTurns:
    """The requests that wait for the turn before them, and those that are due later because of it.

    Their bytes are kept up to a limit and given up beyond it: a server that hangs must not fill the memory.
    """

    def __init__(self, turns: Turns[Prepared]) -> None:
        self._turns = turns
        self._later: list[tuple[int, int, Prepared]] = []
        self._bytes = 0

    @property
    def any_left(self) -> bool:
        """Whether a request waits or is due later."""
        return bool(self._later) or self._turns.is_waiting

    def arrive(self, item: Prepared) -> Prepared | None:
        """Take a request at its arrival; returns it when it is due now."""
        kept = item if self._bytes + len(item.wire) <= _WAITING_BYTES else item._replace(wire=b"")
        start = self._turns.arrive(item.request, kept)
        if start is None:
            self._bytes += len(kept.wire)
            return None
        timed = item._replace(due_us=start.due_us, predecessor_late_us=start.late_us)
        if timed.due_us <= item.due_us:
            return timed
        self._bytes += len(kept.wire)
        self._push(kept._replace(due_us=start.due_us, predecessor_late_us=start.late_us))
        return None

    def ended(self, row_id: int, now_us: int) -> bool:
        """Note a request's end; tells whether others are due because of it."""
        followers = self._turns.ended(row_id, now_us)
        for item, start in followers:
            self._push(item._replace(due_us=start.due_us, predecessor_late_us=start.late_us))
        return bool(followers)

    def peek(self) -> Prepared | None:
        """Return the request that is due next."""
        return self._later[0][2] if self._later else None

    def take(self) -> Prepared:
        """Take the request that is due next."""
        item = heapq.heappop(self._later)[2]
        self._bytes -= len(item.wire)
        return item

    def close(self) -> list[Prepared]:
        """Return all requests that were not sent."""
        return [item for _, _, item in self._later] + self._turns.waiting()

    def _push(self, item: Prepared) -> None:
        heapq.heappush(self._later, (item.due_us, item.request.row_id, item))


class HubProbe:
    """Measures how late the hub wakes a greenlet that sleeps 5 ms: the client's own stalls, whatever their cause.

    Where the system tells (Linux), also the share of time in which the hub's thread ran, and in which it could have
    run but other work had the processor.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.all = Histogram()
        self._worst_us = 0
        self._greenlet: gevent.Greenlet | None = None
        self._began: tuple[int, int | None, int | None] | None = None
        self._looked: tuple[int, int | None, int | None] | None = None
        self.cpu_share: float | None = None
        self.cpu_wait_share: float | None = None

    def start(self) -> None:
        """Begin to measure."""
        self._began = (self._now_us(), *_thread_times_ns())
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Stop measuring."""
        if self._greenlet is None or self._began is None:
            return
        self._greenlet.kill()
        began_us, ran_ns, waited_ns = self._began
        length_ns = max(1, self._now_us() - began_us) * 1000
        now_ran_ns, now_waited_ns = _thread_times_ns()
        if ran_ns is not None and now_ran_ns is not None:
            self.cpu_share = round((now_ran_ns - ran_ns) / length_ns, 4)
        if waited_ns is not None and now_waited_ns is not None:
            self.cpu_wait_share = round((now_waited_ns - waited_ns) / length_ns, 4)

    def take_cpu_shares(self) -> tuple[float | None, float | None]:
        """Return the shares of time since the last call (or the start) in which the thread ran, and waited to run."""
        if self._began is None:
            return None, None
        then, now = self._looked or self._began, (self._now_us(), *_thread_times_ns())
        self._looked = now
        length_ns = max(1, now[0] - then[0]) * 1000
        ran, waited = (
            None if a is None or b is None else (b - a) / length_ns for a, b in zip(then[1:], now[1:], strict=True)
        )
        return ran, waited

    def take_worst_us(self) -> int:
        """Return the worst latency (µs) since the last call."""
        worst, self._worst_us = self._worst_us, 0
        return worst

    def _run(self) -> None:
        while True:
            before = self._now_us()
            gevent.sleep(_PROBE_S)
            late_us = max(0, self._now_us() - before - round(_PROBE_S * 1e6))
            self.all.add(late_us)
            self._worst_us = max(self._worst_us, late_us)


def _thread_times_ns() -> tuple[int | None, int | None]:
    """Return how long this thread has run, and waited for a processor (Linux's schedstat), in ns."""
    try:
        ran, waited, _ = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None, None
    return int(ran), int(waited)
