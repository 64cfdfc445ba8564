"""Demand against ready capacity as fluids: the deficit, the backlog it leaves, and when that is worked off.

Exact for demand and capacity that change in steps. A backlog Q grows by D − C while demand exceeds capacity and is
worked off by C − D after; Q never falls below zero. Everything here is what the step functions imply for requests that
wait; where requests are refused or give up, the backlog is what would have been.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from traces.units import US_PER_S


class Fluid(msgspec.Struct, frozen=True, kw_only=True):
    """What a deficit did. Instants in µs; None: not before the end.

    `covered_us`: capacity covers demand from then on, for `hold_us` at least. `deficit`: requests that came beyond
    capacity. `peak_backlog` in requests; `drained_us`: the backlog is gone, after its peak; `backlog_area` in
    request-seconds.
    """

    covered_us: int | None
    deficit: float
    peak_backlog: float
    drained_us: int | None
    backlog_area: float


def fluid(
    demand: Sequence[tuple[int, float]], capacity: Sequence[tuple[int, float]], end_us: int, hold_us: int = 0
) -> Fluid:
    """Return the deficit of a demand against a capacity, both as steps (from µs on, requests/s), up to `end_us`.

    >>> found = fluid([(0, 40.0)], [(0, 12.0), (300_000_000, 24.0), (480_000_000, 48.0)], 4_000_000_000)
    >>> found.covered_us, found.peak_backlog, found.drained_us, found.backlog_area
    (480000000, 11280.0, 1890000000, 10983600.0)
    """
    if not demand:
        return Fluid(covered_us=None, deficit=0.0, peak_backlog=0.0, drained_us=None, backlog_area=0.0)
    begin = demand[0][0]
    edges = sorted({at for at, _ in (*demand, *capacity) if begin < at < end_us} | {begin, end_us})
    backlog = peak = area = deficit = 0.0
    covered: int | None = None
    drained: int | None = None
    for left, right in pairwise(edges):
        length = (right - left) / US_PER_S
        net = _level(demand, left) - _level(capacity, left)
        if net > 0:
            if covered is not None and left - covered < hold_us:
                covered = None
            deficit += net * length
            area += (backlog + net * length / 2) * length
            backlog += net * length
            if backlog > peak:
                peak, drained = backlog, None
            continue
        covered = left if covered is None else covered
        until_empty = backlog / -net if net < 0 else float("inf")
        if backlog and until_empty <= length:
            area += backlog * until_empty / 2
            drained = left + round(until_empty * US_PER_S) if drained is None else drained
            backlog = 0.0
        elif backlog:
            area += (backlog + net * length / 2) * length
            backlog += net * length
        elif drained is None:
            drained = left
    return Fluid(covered_us=covered, deficit=deficit, peak_backlog=peak, drained_us=drained, backlog_area=area)


def _level(steps: Sequence[tuple[int, float]], at_us: int) -> float:
    """Return the level of a step function at an instant; before its first step, the first."""
    level = steps[0][1] if steps else 0.0
    for begin, value in steps:
        if begin > at_us:
            break
        level = value
    return level
