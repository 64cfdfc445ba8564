"""A simple temporal network: what interval evidence and causal order together say about instants, in exact integers.

Variables are named instants. A constraint says `later - earlier <= limit`. The network is kept closed (every pair
holds its shortest path), so that bounds on each instant and on each difference can be read off at any time
(Dechter, Meiri and Pearl, "Temporal constraint networks", 1991).
"""

from __future__ import annotations

from collections.abc import Iterable

_UNBOUNDED = 1 << 62
_ORIGIN = "origin"


class ContradictionError(Exception):
    """A constraint cannot hold together with those already there; `sources` names everything on the cycle."""

    def __init__(self, sources: frozenset[str], excess_us: int) -> None:
        super().__init__(f"{' and '.join(sorted(sources))} contradict each other by {excess_us} µs")
        self.sources = sources
        self.excess_us = excess_us


class Network:
    """A closed simple temporal network over `names`; adding a constraint costs O(n²)."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = [_ORIGIN, *names]
        self._index = {name: i for i, name in enumerate(self._names)}
        size = len(self._names)
        self._limit = [[0 if i == j else _UNBOUNDED for j in range(size)] for i in range(size)]
        self._why: list[list[frozenset[str]]] = [[frozenset()] * size for _ in range(size)]

    def copy(self) -> Network:
        """Return an independent copy."""
        twin = Network([])
        twin._names, twin._index = self._names, self._index
        twin._limit = [row[:] for row in self._limit]
        twin._why = [row[:] for row in self._why]
        return twin

    def at_most_after(self, earlier: str, later: str, limit: int, source: str) -> None:
        """Add `later - earlier <= limit`; raises ContradictionError and changes nothing when that cannot hold."""
        a, b = self._index[earlier], self._index[later]
        back = self._limit[b][a]
        if back < _UNBOUNDED and back + limit < 0:
            raise ContradictionError(self._why[b][a] | {source}, -(back + limit))
        if limit >= self._limit[a][b]:
            return
        size = len(self._names)
        for i in range(size):
            to_a = self._limit[i][a]
            if to_a >= _UNBOUNDED:
                continue
            for j in range(size):
                from_b = self._limit[b][j]
                if from_b < _UNBOUNDED and (length := to_a + limit + from_b) < self._limit[i][j]:
                    self._limit[i][j] = length
                    self._why[i][j] = self._why[i][a] | {source} | self._why[b][j]

    def in_order(self, earlier: str, later: str, source: str = "causal order") -> None:
        """Add `earlier <= later`."""
        self.at_most_after(later, earlier, 0, source)

    def within(self, name: str, lo: int | None, hi: int | None, source: str) -> None:
        """Add `lo <= name <= hi`; an open side is `None`."""
        self.apart(_ORIGIN, name, lo, hi, source)

    def apart(self, earlier: str, later: str, lo: int | None, hi: int | None, source: str) -> None:
        """Add `lo <= later - earlier <= hi`, both or neither."""
        limit, why = [row[:] for row in self._limit], [row[:] for row in self._why]
        try:
            if hi is not None:
                self.at_most_after(earlier, later, hi, source)
            if lo is not None:
                self.at_most_after(later, earlier, -lo, source)
        except ContradictionError:
            self._limit, self._why = limit, why
            raise

    def bounds(self, name: str) -> tuple[int | None, int | None]:
        """Return the tightest `[lo, hi]` of an instant."""
        return self.difference(_ORIGIN, name)

    def difference(self, earlier: str, later: str) -> tuple[int | None, int | None]:
        """Return the tightest `[lo, hi]` of `later - earlier`."""
        a, b = self._index[earlier], self._index[later]
        down, up = self._limit[b][a], self._limit[a][b]
        return (None if down >= _UNBOUNDED else -down, None if up >= _UNBOUNDED else up)

    def sources(self, name: str) -> frozenset[str]:
        """Return the sources that bound an instant, without the causal order that carried them."""
        i = self._index[name]
        return self._why[0][i] | self._why[i][0]
