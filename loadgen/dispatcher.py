"""The open loop: one greenlet walks absolute deadlines, one greenlet per request.

Nothing that a server does can delay a send: there is no pool of users and no cap unless the user sets one, and then
waiting for it counts as lag. A late start is recovered (rows that are overdue go out at once) and stays recorded.
The one exception is a conversation: its next turn cannot be asked before the last answer is there (`loadgen.turns`).
"""

from __future__ import annotations

from collections.abc import Callable

import gevent
import gevent.event
import gevent.lock
import gevent.pool

from loadgen.lookahead import LookAhead, Prepared
from loadgen.sender import CancelledError
from loadgen.timer import make_timer
from loadgen.turns import Turns
from loadgen.waiting import WaitingTurns
from loadgen.windows import PREDECESSOR_UNFINISHED

_YIELD_EVERY = 128  # a turn of a busy loop takes long: yielding often would throttle the catching up after a stall
_WARM_US = 500_000
_WARM_EVERY_S = 0.05
_WARM_LIMIT = 2000
_CHECK_US = 50_000
_FRESH_US = 60_000_000  # signatures are taken for five minutes


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
