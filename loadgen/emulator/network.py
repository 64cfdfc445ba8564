"""Transfers that share resources: a weighted max-min fluid model.

Each flow moves bytes at a rate; a byte costs work on the resources that it crosses (one per wire byte on a network
card, more on a disk that also unpacks). Rates are raised together, in proportion to the flows' weights, until a flow
reaches its own cap or one of its resources is full; they are computed anew whenever a flow starts or ends.
Source: progressive filling, Bertsekas and Gallager, *Data Networks*, section 6.5.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

_RELATIVE = 1e-12


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """One transfer. `work` is the work per byte on each resource it crosses; `weight` its share of the rate.

    It starts `start_s` after time zero or, when `after` names another flow by its index, after that one's end.
    """

    size: float
    work: Mapping[str, float]
    weight: float = 1.0
    cap: float = math.inf
    start_s: float = 0.0
    after: int | None = None


def max_min_rates(flows: Sequence[Flow], capacity: Mapping[str, float]) -> list[float]:
    """Return each flow's rate in bytes per second; infinite for a flow that nothing limits."""
    rates = [0.0] * len(flows)
    rising = set(range(len(flows)))
    level = 0.0
    while rising:
        step_to = min(
            [flows[i].cap / flows[i].weight for i in rising]
            + [_level_when_full(name, limit, flows, rates, rising) for name, limit in capacity.items()]
        )
        level = max(level, step_to)
        for i in rising:
            rates[i] = min(level * flows[i].weight, flows[i].cap)
        full = {name for name, limit in capacity.items() if _used(name, flows, rates) >= limit * (1 - _RELATIVE)}
        stopped = {i for i in rising if rates[i] >= flows[i].cap or full & flows[i].work.keys()}
        if not stopped:
            break
        rising -= stopped
    return rates


def completion_times(flows: Sequence[Flow], capacity: Mapping[str, float]) -> list[float]:
    """Return each flow's time of completion in seconds; infinite for one that cannot move."""
    ends: list[float | None] = [None] * len(flows)
    left = [flow.size for flow in flows]
    now = 0.0
    while None in ends:
        starts = [_start(flow, ends) for flow in flows]
        active = [i for i, flow in enumerate(flows) if ends[i] is None and starts[i] <= now]
        rates = dict(zip(active, max_min_rates([flows[i] for i in active], capacity), strict=True))
        to_end = {i: _seconds(left[i], rate) for i, rate in rates.items()}
        to_start = [start - now for i, start in enumerate(starts) if ends[i] is None and start > now]
        step = min([*to_end.values(), *to_start], default=math.inf)
        if math.isinf(step):
            return [math.inf if end is None else end for end in ends]
        now += step
        for i, rate in rates.items():
            left[i] = 0.0 if math.isinf(rate) else left[i] - rate * step
            if to_end[i] <= step * (1 + _RELATIVE):
                ends[i] = now
    return [end for end in ends if end is not None]


def _level_when_full(name: str, limit: float, flows: Sequence[Flow], rates: Sequence[float], rising: set[int]) -> float:
    """Return the level at which a resource is full if only the rising flows grow."""
    growing = sum(flows[i].work.get(name, 0.0) * flows[i].weight for i in rising)
    settled = sum(flow.work.get(name, 0.0) * rates[i] for i, flow in enumerate(flows) if i not in rising)
    return (limit - settled) / growing if growing > 0 else math.inf


def _used(name: str, flows: Sequence[Flow], rates: Sequence[float]) -> float:
    return sum(flow.work[name] * rates[i] for i, flow in enumerate(flows) if name in flow.work)


def _start(flow: Flow, ends: Sequence[float | None]) -> float:
    if flow.after is None:
        return flow.start_s
    before = ends[flow.after]
    return math.inf if before is None else before + flow.start_s


def _seconds(size: float, rate: float) -> float:
    if size <= 0:
        return 0.0
    return size / rate if rate > 0 else math.inf
