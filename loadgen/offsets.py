"""How far a worker's clock is from the master's, from the round trips of a few questions. Pure.

A question leaves at `sent`, the worker reads its clock somewhere in between, the answer is there at `received`: the
offset is the worker's reading less the middle, and off by half the round trip at most, however unequal the two ways
are. So the tightest round trip is the best (Cristian's algorithm).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Offset(msgspec.Struct, frozen=True, kw_only=True):
    """Worker's clock less the master's, and a bound on its error, in µs."""

    offset_us: int
    error_us: int


def offset_of(sent_us: int, worker_us: int, received_us: int) -> Offset:
    """Return what one round trip tells.

    >>> offset_of(1_000, 5_600, 1_200)
    Offset(offset_us=4500, error_us=101)
    """
    middle = (sent_us + received_us) // 2
    return Offset(offset_us=worker_us - middle, error_us=(received_us - sent_us + 1) // 2 + 1)


def best(readings: Iterable[Offset]) -> Offset:
    """Return the reading with the smallest error."""
    return min(readings, key=lambda reading: reading.error_us)


def widened(first: Offset, last: Offset) -> Offset:
    """Return the offset that was used, with an error that holds until the last reading: the clocks may have drifted.

    >>> widened(Offset(offset_us=100, error_us=10), Offset(offset_us=130, error_us=20)).error_us
    50
    """
    return Offset(
        offset_us=first.offset_us, error_us=max(first.error_us, abs(last.offset_us - first.offset_us) + last.error_us)
    )
