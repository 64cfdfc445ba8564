"""Prepared requests that cannot go yet: turns of a conversation whose turn before has not ended."""

from __future__ import annotations

import heapq

from loadgen.lookahead import Prepared
from loadgen.turns import Turns

_WAITING_BYTES = 64 * 1024 * 1024


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
