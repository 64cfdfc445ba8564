"""Two snapshots of what is watched: as it was first read, and as it is now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class FirstAndLast:
    """Names the snapshots of each reading; `before` is what an earlier collector of the same run left, if one did."""

    def __init__(self, first: str, last: str, before: Mapping[str, Any] | None) -> None:
        self._names = [last] if before is not None else [first, last]
        self._last = last

    def take(self, document: Any) -> dict[str, Any]:
        """Return the snapshots that a reading is kept as."""
        names, self._names = self._names, [self._last]
        return dict.fromkeys(names, document)
