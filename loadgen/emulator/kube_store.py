"""What an API server keeps: objects by kind, one growing version for all changes, and the history that watches read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from loadgen.emulator.agenda import Agenda
from traces.clock import to_datetime


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one object, as a watch tells it."""

    version: int
    at_us: int
    kind: str
    change: Literal["ADDED", "MODIFIED", "DELETED"]
    object: dict[str, Any]


class Store:
    """Objects and their history. An object that was handed in is not changed any more."""

    def __init__(self, agenda: Agenda, seed: int) -> None:
        self._agenda = agenda
        self._seed = seed
        self.version = 1000
        self.history: list[Change] = []
        self._objects: dict[str, dict[str, dict[str, Any]]] = {}
        self._made = 0

    def put(self, kind: str, name: str, item: dict[str, Any], at_us: int | None = None) -> None:
        """Keep an object under its name, as it is from now on (or from `at_us` on, for what was before the start)."""
        known = self._objects.setdefault(kind, {})
        change: Literal["ADDED", "MODIFIED"] = "MODIFIED" if name in known else "ADDED"
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        known[name] = item
        self._tell(kind, change, item, at_us)

    def delete(self, kind: str, name: str) -> None:
        """Forget an object; its last state is told."""
        item = self._objects.get(kind, {}).pop(name, None)
        if item is not None:
            self.version += 1
            last = _copy(item)
            last["metadata"]["resourceVersion"] = str(self.version)
            self._tell(kind, "DELETED", last, None)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return a copy of an object to be changed and put again."""
        return _copy(self._objects[kind][name])

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind, as they are."""
        return list(self._objects.get(kind, {}).values())

    def since(self, position: int) -> Iterator[Change]:
        """Yield the changes from a position in the history on."""
        yield from self.history[position:]

    def position_after(self, version: int) -> int:
        """Return where in the history the changes after a version begin."""
        low, high = 0, len(self.history)
        while low < high:
            middle = (low + high) // 2
            if self.history[middle].version <= version:
                low = middle + 1
            else:
                high = middle
        return low

    def uid(self) -> str:
        """Return a new uid."""
        self._made += 1
        return f"{self._seed & 0xFFFFFFFF:08x}-0000-4000-8000-{self._made:012x}"

    def _tell(
        self, kind: str, change: Literal["ADDED", "MODIFIED", "DELETED"], item: dict[str, Any], at_us: int | None
    ) -> None:
        at_us = self._agenda.now_us if at_us is None else at_us
        self.history.append(Change(version=self.version, at_us=at_us, kind=kind, change=change, object=item))


def _copy(item: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(item))
    return copied


def stamp(at_us: int) -> str:
    """Return an instant as the API server keeps it: to the second, and never later than it was.

    >>> stamp(1_500_000)
    '1970-01-01T00:00:01Z'
    """
    return f"{to_datetime(at_us // 1_000_000 * 1_000_000):%Y-%m-%dT%H:%M:%SZ}"


def go_duration(us: int) -> str:
    """Return a duration as Go prints it, cut to the millisecond as the kubelet does.

    >>> go_duration(332_912_700), go_duration(912_000), go_duration(0)
    ('5m32.912s', '912ms', '0s')
    """
    ms = us // 1000
    if ms == 0:
        return "0s"
    if ms < 1000:
        return f"{ms}ms"
    minutes, rest = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + seconds
