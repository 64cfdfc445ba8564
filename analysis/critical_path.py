"""Which phases the time went to: backward walk, overlap ledger, drag. Exact integers, no model.

The three answer different questions. The walk splits the total, without remainder, over the spans that were waited
for. The ledger says which spans were active at the same time. The drag of a span is what the total would lose if that
span alone took no time and nothing else changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

UNATTRIBUTED = "unattributed"


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A phase from `start` to `end` (µs) that could not begin before the spans named in `after` had ended."""

    name: str
    start: int
    end: int
    after: tuple[str, ...] = ()


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """A critical path, latest part first: `parts` are (name, start, end) and tile the whole time without overlap.

    `slack` holds, for each span that was a candidate and lost, how much longer it could have taken. `overlaps` names
    pairs (predecessor, successor) where the predecessor was seen to end after its successor began.
    """

    parts: tuple[tuple[str, int, int], ...]
    slack: dict[str, int]
    overlaps: tuple[tuple[str, str], ...]

    def amounts(self) -> dict[str, int]:
        """Return the µs on the path by name; they sum to the walked time exactly."""
        totals: dict[str, int] = {}
        for name, start, end in self.parts:
            totals[name] = totals.get(name, 0) + end - start
        return totals


def walk(spans: Sequence[Span], begin: int, end: int) -> Path:
    """Return the critical path from `begin` to `end`, walking back from the span that ended last.

    A predecessor's end is cut at the start of its successor; time between the two is `wait:<successor>`; what is left
    before the first span is `unattributed`. Ties go to the longer span, then to the name.
    """
    by_name = {span.name: span for span in spans}
    parts: list[tuple[str, int, int]] = []
    slack: dict[str, int] = {}
    overlaps: list[tuple[str, str]] = []
    cursor = end
    current = _last(list(spans), cursor)
    if current is not None and current.end < cursor and begin < cursor:
        edge = max(current.end, begin)
        parts.append((UNATTRIBUTED, edge, cursor))
        cursor = edge
    while current is not None and cursor > begin:
        start = max(min(current.start, cursor), begin)
        if start < cursor:
            parts.append((current.name, start, cursor))
        cursor = start
        candidates = [by_name[name] for name in current.after if name in by_name]
        overlaps += [(span.name, current.name) for span in candidates if span.end > current.start]
        chosen = _last(candidates, cursor)
        for span in candidates:
            if span is not chosen:
                slack[span.name] = cursor - min(span.end, cursor)
        if chosen is not None and chosen.end < cursor and begin < cursor:
            edge = max(chosen.end, begin)
            parts.append((f"wait:{current.name}", edge, cursor))
            cursor = edge
        current = chosen
    if cursor > begin:
        parts.append((UNATTRIBUTED, begin, cursor))
    return Path(parts=tuple(parts), slack=slack, overlaps=tuple(overlaps))


def _last(spans: list[Span], cursor: int) -> Span | None:
    """Return the span that ended last, as seen from `cursor`."""
    if not spans:
        return None
    return min(spans, key=lambda span: (-min(span.end, cursor), span.start - span.end, span.name))


def ledger(spans: Sequence[Span], begin: int, end: int) -> dict[frozenset[str], int]:
    """Return how long (µs) each set of spans was active together; the empty set is idle time. Sums to the total."""
    inside = {begin, end} | {t for s in spans for t in (s.start, s.end) if begin < t < end}
    edges = sorted(inside)
    totals: dict[frozenset[str], int] = {}
    for left, right in pairwise(edges):
        active = frozenset(span.name for span in spans if span.start <= left and span.end >= right)
        totals[active] = totals.get(active, 0) + right - left
    return totals


def equal_shares(cells: dict[frozenset[str], int]) -> dict[str, float]:
    """Return each span's part of the total when shared time is split evenly (for stacked bars only)."""
    shares: dict[str, float] = {}
    for active, length in cells.items():
        for name in active:
            shares[name] = shares.get(name, 0.0) + length / len(active)
    return shares


def drag(spans: Sequence[Span]) -> dict[str, int]:
    """Return, per span, the µs by which the end would come sooner if that span took no time.

    Every other span keeps its length and its lag behind its latest predecessor. Drags do not sum to the total.
    """
    total = _finish(spans, None)
    return {span.name: total - _finish(spans, span.name) for span in spans}


def _finish(spans: Sequence[Span], without: str | None) -> int:
    by_name = {span.name: span for span in spans}
    ends: dict[str, int] = {}

    def end_of(span: Span) -> int:
        if span.name not in ends:
            before = [by_name[name] for name in span.after if name in by_name]
            start = span.start
            if before:
                # An observed overlap is a negative lag; it is kept, so that nothing but the one span changes.
                lag = span.start - max(other.end for other in before)
                start = max(end_of(other) for other in before) + lag
            ends[span.name] = start if span.name == without else start + span.end - span.start
        return ends[span.name]

    return max((end_of(span) for span in spans), default=0)
