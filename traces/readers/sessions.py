"""Following conversations through a file whose rows name their session, in order."""

from __future__ import annotations

import msgspec


class Turn(msgspec.Struct, frozen=True):
    """The last turn seen of a session: its row, its place (from 1) and its arrival."""

    row_id: int
    place: int
    arrival_us: int


class Sessions:
    """The last turn of each session. Memory grows with the number of sessions, not of rows."""

    def __init__(self) -> None:
        self._last: dict[str, Turn] = {}

    def last(self, session: str | None) -> Turn | None:
        """Return the last turn of a session, if there was one."""
        return None if session is None else self._last.get(session)

    def link(self, session: str | None, row_id: int, arrival_us: int) -> dict[str, int | None]:
        """Return `turn` and `parent_row` of a session's next turn, and remember it; nothing without a session."""
        if session is None:
            return {}
        before = self._last.get(session)
        turn = Turn(row_id, 1 if before is None else before.place + 1, arrival_us)
        self._last[session] = turn
        return {"turn": turn.place, "parent_row": None if before is None else before.row_id}
