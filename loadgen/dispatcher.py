"""The open loop: one greenlet walks absolute deadlines, one greenlet per request.

Nothing that a server does can delay a send: there is no pool of users and no cap unless the user sets one, and then
waiting for it counts as lag. A late start is recovered (rows that are overdue go out at once) and stays recorded.
"""

from __future__ import annotations

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

_YIELD_EVERY = 128  # a turn of a busy loop takes long: yielding often would throttle the catching up after a stall
_WARM_US = 500_000
_WARM_EVERY_S = 0.05
_WARM_LIMIT = 2000
_PROBE_S = 0.005


class Dispatcher:
    """Starts each prepared request at its due instant.

    `send` handles one request to its end in its own greenlet. `ensure` is told how many requests fall due within the
    next half second, so that connections can be opened before they are needed.
    """

    def __init__(
        self,
        lookahead: LookAhead,
        *,
        elapsed_us: Callable[[], int],
        send: Callable[[Prepared], None],
        ensure: Callable[[int], None],
        max_in_flight: int = 0,
        give_up_us: int | None = None,
    ) -> None:
        self._lookahead = lookahead
        self._elapsed_us = elapsed_us
        self._send = send
        self._ensure = ensure
        self._slots = gevent.lock.Semaphore(max_in_flight) if max_in_flight else None
        self._give_up_us = give_up_us
        self._stopped = gevent.event.Event()
        self._timer = make_timer()
        self.group = gevent.pool.Group()
        self.started = 0
        self.stop_reason: str | None = None

    def run(self) -> None:
        """Walk the plan to its end, or until `stop`."""
        self._lookahead.start()
        warmer = gevent.spawn(self._warm)
        try:
            while not self._stopped.is_set():
                item = self._lookahead.take()
                if item is None:
                    break
                if not self._wait_until(item.request.due_us) or not self._wait_for_slot():
                    self._lookahead.taken -= 1
                    break
                self.group.spawn(self._send_and_free, item)
                self.started += 1
                if self.started % _YIELD_EVERY == 0:
                    gevent.sleep(0)
        finally:
            warmer.kill()
            self._lookahead.stop()
            self._timer.close()

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

    def _send_and_free(self, item: Prepared) -> None:
        try:
            self._send(item)
        finally:
            if self._slots is not None:
                self._slots.release()

    def _wait_until(self, due_us: int) -> bool:
        """Wait for a due instant; tells whether to go on. Timers may fire early by a fraction, hence the loop."""
        while (left_us := due_us - self._elapsed_us()) > 0:
            if self._stopped.is_set():
                return False
            self._timer.wait(left_us)
        return not self._stopped.is_set()

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
