"""Where a replay stands in its plan, readable after kill -9: two numbers in a small file that is mapped into memory.

`taken`: rows of the plan before it may have been sent; none from it on was. `settled`: rows before it are recorded for
good. What lies between and has no row in the table was under way when the process was killed, or waited for the turn
before it. Storing a number in the map is a memory write that the kernel keeps when the process dies, so that
one can be made before each send. (A power cut may lose the last flush interval of it.)

The file is also the run's lock: a second replay of the same run is refused.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from traces.errors import BadInputError

_MAGIC = b"ramptck1"
_LAYOUT = struct.Struct("<8sqq")
_TAKEN_AT, _SETTLED_AT = 8, 16
_NUMBER = struct.Struct("<q")


class Checkpoint:
    """The checkpoint of one run, held by one process from `open` to `close`."""

    def __init__(self, folder: Path, name: str = "checkpoint") -> None:
        """Open or make it. Raises `BadInputError` when another process holds it, or it is not a checkpoint."""
        path = folder / f"{name}.bin"
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise BadInputError(f"{folder}: another replay is writing this run; wait for it or stop it") from None
        if os.fstat(self._fd).st_size == 0:
            os.write(self._fd, _LAYOUT.pack(_MAGIC, 0, 0))
        if os.fstat(self._fd).st_size != _LAYOUT.size or os.pread(self._fd, len(_MAGIC), 0) != _MAGIC:
            os.close(self._fd)
            raise BadInputError(f"{path}: not a checkpoint; the run cannot be resumed, start a new one")
        self._map = mmap.mmap(self._fd, _LAYOUT.size)
        self._taken: int
        self._settled: int
        _, self._taken, self._settled = _LAYOUT.unpack(self._map[:])
        self._under_way: dict[int, int] = {}

    @property
    def taken(self) -> int:
        """How many rows of the plan may have been sent."""
        return self._taken

    @property
    def settled(self) -> int:
        """How many rows of the plan, from its start on, are recorded."""
        return self._settled

    def take(self, row_id: int) -> None:
        """Note that the plan's next row, or one that was held back, may be sent from now on."""
        if row_id in self._under_way:
            return
        self._under_way[row_id] = self._taken
        self._taken += 1
        _NUMBER.pack_into(self._map, _TAKEN_AT, self._taken)

    def recorded(self, row_ids: Iterable[int]) -> None:
        """Note rows that are in the table, on disk."""
        for row_id in row_ids:
            self._under_way.pop(row_id, None)
        self._set_settled(next(iter(self._under_way.values()), self._taken))
        self._map.flush()

    def settle(self, held: Mapping[int, int]) -> None:
        """Note that all rows that were taken are recorded but for those held back: row id to place, in plan order."""
        self._under_way = dict(held)
        self.recorded(())

    def close(self) -> None:
        """Give the run free for another process."""
        self._map.close()
        os.close(self._fd)

    def _set_settled(self, settled: int) -> None:
        self._settled = settled
        _NUMBER.pack_into(self._map, _SETTLED_AT, settled)
