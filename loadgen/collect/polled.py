"""Values seen by polling: they changed between the last request for the old and the first answer with the new."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from loadgen.collect.base import Answer


class Change(NamedTuple):
    """A value that is another than at the last poll; `lo_us` and `hi_us` (client time) are when it changed."""

    old: Any
    new: Any
    lo_us: int
    hi_us: int


class Polled:
    """The last value of each thing, and when it was asked for. A thing that an answer lacks keeps its last value."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[Any, int]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._seen

    def changed(self, key: Hashable, value: Any, answer: Answer) -> Change | None:
        """Note a value; return the change, `None` for the first value and for the same one."""
        old = self._seen.get(key)
        self._seen[key] = (value, answer.sent_us)
        if old is None or old[0] == value:
            return None
        return Change(old[0], value, old[1], answer.received_us)

    def first_time(self, key: Hashable, value: Any, answer: Answer, absent_sent_us: int | None) -> Change | None:
        """Note a thing that may not have been there before: new since `absent_sent_us`, when it was not listed yet."""
        if key in self._seen:
            return self.changed(key, value, answer)
        self._seen[key] = (value, answer.sent_us)
        return None if absent_sent_us is None else Change(None, value, absent_sent_us, answer.received_us)
