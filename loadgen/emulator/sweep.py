"""Many simulations side by side: every variant of an endpoint under the same seeds, summed up. Pure but for `progress`.

Seeds are shared: the same seed gives every variant the same chance, so that differences between variants are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from loadgen.emulator.levers import Variant
from loadgen.emulator.outcome import Demand, Objective, Outcome, evaluate
from loadgen.emulator.virtual import start_of
from loadgen.emulator.virtual_load import Load


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over the seeds: its median, and the values below which a twentieth and above which a twentieth lie."""

    p05: float
    p50: float
    p95: float


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One variant over all seeds.

    `reached` is in how many runs capacity was reached; a run in which it was not counts as longer than any other, and
    a quantile of such runs is null.
    """

    values: dict[str, str]
    runs: int
    reached: int
    time_to_capacity_s: dict[str, float | None]
    violations: Spread
    excess_s: Spread
    failed: Spread
    instance_hours: Spread
    cost: Spread | None
    requests: int


def sweep(
    variants: Sequence[Variant],
    load: Load,
    demand: Demand,
    seeds: Sequence[int],
    objective: Objective,
    *,
    progress: Callable[[int], None] = lambda _done: None,
) -> list[Point]:
    """Return each variant's point, in order."""
    points = []
    for variant in variants:
        outcomes = []
        for seed in seeds:
            outcomes.append(evaluate(variant.endpoint, load, demand, objective, start_us=start_of(seed), seed=seed))
            progress(1)
        points.append(summed_up(variant.values, outcomes))
    return points


def summed_up(values: dict[str, str], outcomes: Sequence[Outcome]) -> Point:
    """Return what several runs of one variant came to."""
    times = [outcome.time_to_capacity_s for outcome in outcomes]
    costs = [outcome.cost for outcome in outcomes if outcome.cost is not None]
    return Point(
        values=values,
        runs=len(outcomes),
        reached=sum(time is not None for time in times),
        time_to_capacity_s={name: rank_of(times, share) for name, share in _RANKS.items()},
        violations=spread([float(outcome.violations) for outcome in outcomes]),
        excess_s=spread([outcome.excess_s for outcome in outcomes]),
        failed=spread([float(outcome.failed) for outcome in outcomes]),
        instance_hours=spread([outcome.instance_hours for outcome in outcomes]),
        cost=spread(costs) if costs else None,
        requests=outcomes[0].requests,
    )


_RANKS = {"p05": 0.05, "p50": 0.5, "p95": 0.95}


def spread(values: Sequence[float]) -> Spread:
    """Return the quantiles of values that are all known."""
    return Spread(**{name: rank_of(values, share) or 0.0 for name, share in _RANKS.items()})


def rank_of(values: Sequence[float | None], share: float) -> float | None:
    """Return the value of rank ⌈share (n − 1)⌉ counted from 0, one that occurred; null counts as the largest.

    >>> rank_of([3.0, None, 1.0], 0.5), rank_of([3.0, None, 1.0], 0.95)
    (3.0, None)
    """
    ordered = sorted(values, key=lambda value: (value is None, value or 0.0))
    return ordered[-int(-share * (len(ordered) - 1) // 1)]
