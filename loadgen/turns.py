"""Turns of a conversation: which request has to wait for which, and until when. Pure, in bounded memory.

The turn before a row is the row that `parent_row` names; without one, the session's previous row in order of arrival,
unless both state the same `turn` (they branch off the same answer). A turn is due at its arrival, or when the turn
before has ended and the think time has passed, whichever is later. How the turn before ended does not matter: after a
failure or a cancellation the conversation goes on, as the recorded users did. A row whose turn before is not part of
the run (an orphan) goes at its arrival.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import msgspec

from loadgen.plan import PlannedRequest

Item = TypeVar("Item")

_PAGE_BITS = 1024


class Start(msgspec.Struct, frozen=True):
    """When a row is due, and by how much that is later than its arrival; `None` without a turn before it."""

    due_us: int
    late_us: int | None


class _Session(msgspec.Struct):
    row_id: int
    turn: int | None


class Turns(Generic[Item]):
    """Follows rows from their arrival to their end. All instants are client µs from t0.

    Rows under way, and those that wait for them, are kept; of the ended ones only those whose end can still delay
    someone, which is none longer ago than the longest think time. Besides, one bit per row tells an orphan from a row
    whose turn before ended long ago.
    """

    def __init__(self, longest_think_us: int) -> None:
        self._longest_think_us = longest_think_us
        self._waiting: dict[int, list[tuple[PlannedRequest, Item]]] = {}
        self._ended: dict[int, int] = {}
        self._in_order_of_end: deque[tuple[int, int]] = deque()
        self._sessions: dict[str, _Session] = {}
        self._session_of: dict[int, str] = {}
        self._seen: dict[int, int] = {}
        self._waiting_count = 0

    def arrive(self, request: PlannedRequest, item: Item) -> Start | None:
        """Take a row at its arrival, in order; tells when it is due, or `None` when it has to wait.

        `ended` of the turn before returns it then.
        """
        before = self._turn_before(request)
        self._remember(request)
        if before is None:
            return Start(request.due_us, None)
        waiting = self._waiting.get(before)
        if waiting is not None:
            waiting.append((request, item))
            self._waiting_count += 1
            return None
        ended_us = self._ended.get(before)
        return Start(request.due_us, 0) if ended_us is None else _start(request, ended_us)

    def ended(self, row_id: int, now_us: int) -> list[tuple[Item, Start]]:
        """Note a row's end; returns the rows that waited for it and when they are due."""
        self._ended[row_id] = now_us
        self._in_order_of_end.append((now_us, row_id))
        self._forget(now_us - self._longest_think_us)
        followers = self._waiting.pop(row_id, [])
        self._waiting_count -= len(followers)
        return [(item, _start(request, now_us)) for request, item in followers]

    @property
    def is_waiting(self) -> bool:
        """Whether a row waits for a turn before it."""
        return self._waiting_count > 0

    def waiting(self) -> list[Item]:
        """Return the rows that wait for a turn before them, in no particular order."""
        return [item for group in self._waiting.values() for _, item in group]

    @property
    def held(self) -> int:
        """How many rows are remembered, in whatever way."""
        return len(self._waiting) + len(self._ended) + len(self._sessions)

    def _turn_before(self, request: PlannedRequest) -> int | None:
        if request.parent_row is not None:
            return request.parent_row if self._has_seen(request.parent_row) else None
        if request.session_id is None:
            return None
        last = self._sessions.get(request.session_id)
        if last is None or (last.turn is not None and last.turn == request.turn):
            return None
        return last.row_id

    def _remember(self, request: PlannedRequest) -> None:
        self._waiting[request.row_id] = []
        page, bit = divmod(request.row_id, _PAGE_BITS)
        self._seen[page] = self._seen.get(page, 0) | 1 << bit
        if request.session_id is not None:
            self._sessions[request.session_id] = _Session(request.row_id, request.turn)
            self._session_of[request.row_id] = request.session_id

    def _has_seen(self, row_id: int) -> bool:
        page, bit = divmod(row_id, _PAGE_BITS)
        return bool(self._seen.get(page, 0) >> bit & 1)

    def _forget(self, until_us: int) -> None:
        """Forget the rows that ended before an instant: no turn can be due later because of them."""
        while self._in_order_of_end and self._in_order_of_end[0][0] < until_us:
            _, row_id = self._in_order_of_end.popleft()
            del self._ended[row_id]
            session_id = self._session_of.pop(row_id, None)
            if session_id is not None and self._sessions[session_id].row_id == row_id:
                del self._sessions[session_id]


def _start(request: PlannedRequest, ended_us: int) -> Start:
    due_us = max(request.due_us, ended_us + request.think_us)
    return Start(due_us, due_us - request.due_us)
