"""What a scale-out cost its users, phase by phase, and what the capacity cost after it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import polars as pl

from analysis import capacity as cap
from analysis.latency import measure_us, ranked, within
from analysis.reached import Objective, attainment
from analysis.records import ScaleOutResult
from traces.units import US_PER_S

_ABANDONED: Final = ("cancelled", "timeout")
"""Outcomes in which the client left before the answer was whole."""
_MIN_BEFORE: Final = 20


class PhaseCost(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that were due while one phase lasted, and output tokens asked for by them (those that came, if any).

    `late`: answered, but the first token came later than the objective allows. `abandoned`: the client gave up or left.
    `failed`: every other bad end. `excess_latency_s`: seconds by which first tokens came later than the median before
    the rise, summed over the answered; None without enough requests before the rise.
    """

    phase: str
    requests: int
    late: int
    failed: int
    abandoned: int
    not_sent: int
    tokens: int
    tokens_late: int
    tokens_lost: int
    excess_latency_s: float | None


class UserCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one scale-out cost: by phase from onset to recovery (or to where the run, or the burst, ends).

    `violations` are requests that missed the objective; `error_budget_s` is for how long traffic like this may miss it
    altogether before as many are missed as the objective allows in that time.
    """

    phases: tuple[PhaseCost, ...]
    violations: int
    attained: float | None
    error_budget_s: float | None
    idle_unit_s: float | None
    idle_money: float | None


def stretches(found: ScaleOutResult, end_us: int) -> list[tuple[str, int, int]]:
    """Return the scale-out's critical path as (phase, begin, end) in order, and `recovery` after it up to `end_us`."""
    if found.onset is None:
        return []
    rows = [row for row in found.phases if row.parent is None and row.start_us is not None and row.critical_us]
    cursor, result = found.onset.at_us, []
    for row in sorted(rows, key=lambda row: (row.end_us or 0, row.start_us or 0)):
        if row.end_us is not None and row.end_us > cursor:
            result.append((row.phase, cursor, min(row.end_us, end_us)))
            cursor = row.end_us
    if end_us > cursor:
        result.append(("recovery" if found.in_service is not None else "without capacity", cursor, end_us))
    return [(phase, begin, end) for phase, begin, end in result if begin < end]


def user_cost(
    found: ScaleOutResult,
    timings: pl.DataFrame,
    objective: Objective,
    *,
    until_us: int,
    idle_unit_s: float | None,
    price_per_unit_hour: float | None,
) -> UserCost | None:
    """Return what a scale-out cost its users up to `until_us`; None without an onset. `timings` of `latency`."""
    if found.onset is None:
        return None
    onset = found.onset.at_us
    recovered = found.reached.get("slo_recovered")
    end = until_us if recovered is None else min(until_us, max(onset + recovered.at_us, _end_of_path(found)))
    before = within(timings["due_us"], None, onset) & (timings["outcome"] == "ok")
    baseline = _baseline(timings, before)
    inside = timings.filter(within(timings["due_us"], onset, end))
    rows = tuple(
        _phase(name, inside.filter(within(inside["due_us"], begin, stop)), objective, baseline)
        for name, begin, stop in stretches(found, end)
    )
    asked = sum(row.requests for row in rows)
    violations = sum(row.late + row.failed + row.abandoned + row.not_sent for row in rows)
    length_s = (end - onset) / US_PER_S
    allowed = (1 - objective.share) * asked / length_s if length_s > 0 else 0.0
    money = None
    if idle_unit_s is not None and price_per_unit_hour is not None:
        money = idle_unit_s / 3600 * price_per_unit_hour
    return UserCost(
        phases=rows,
        violations=violations,
        attained=1 - violations / asked if asked else None,
        error_budget_s=violations / allowed if allowed else None,
        idle_unit_s=idle_unit_s,
        idle_money=money,
    )


def _end_of_path(found: ScaleOutResult) -> int:
    return found.in_service.at_us if found.in_service is not None else 0


def _baseline(timings: pl.DataFrame, before: pl.Series) -> int | None:
    known = measure_us(timings, "ttft_from_due").filter(before).drop_nulls()
    return ranked(known, (0.5,))[0] if len(known) >= _MIN_BEFORE else None


def _phase(name: str, frame: pl.DataFrame, objective: Objective, baseline: int | None) -> PhaseCost:
    outcome, tokens = frame["outcome"], frame["tokens"].fill_null(0)
    good = outcome == "ok"
    late = good & ~attainment(frame, objective)
    abandoned, not_sent = outcome.is_in(_ABANDONED), outcome == "not_sent"
    excess = None
    if baseline is not None:
        over = (measure_us(frame, "ttft_from_due").cast(pl.Int64).filter(good) - baseline).clip(lower_bound=0)
        excess = int(over.sum() or 0) / US_PER_S
    return PhaseCost(
        phase=name,
        requests=len(frame),
        late=int(late.sum()),
        failed=int((~good & ~abandoned & ~not_sent).sum()),
        abandoned=int(abandoned.sum()),
        not_sent=int(not_sent.sum()),
        tokens=int(tokens.cast(pl.Int64).sum()),
        tokens_late=int(tokens.filter(late).cast(pl.Int64).sum()),
        tokens_lost=int(tokens.filter(~good).cast(pl.Int64).sum()),
        excess_latency_s=excess,
    )


def idle_unit_seconds(
    load: pl.DataFrame, capacity: Sequence[cap.Step], rate: cap.UnitRate | None, *, begin_us: int, end_us: int
) -> float | None:
    """Return unit-seconds of ready capacity that demand did not need in [begin, end); None without a unit's rate.

    `load` is of `demand.load_per_bin`.

    A unit is needed as soon as part of it is: of three units against a demand of 1.2 units one is idle.
    """
    if rate is None or not capacity:
        return None
    total, edges = 0.0, {begin_us, end_us} | {s.at_us for s in capacity if begin_us < s.at_us < end_us}
    starts = load["start_us"].to_list()
    bin_us = starts[1] - starts[0] if len(starts) > 1 else end_us - begin_us
    demand = dict(zip(starts, load["requests_per_s"].to_list(), strict=True))
    edges |= {at for at in (*starts, *((starts[-1] + bin_us,) if starts else ())) if begin_us < at < end_us}
    ordered = sorted(edges)
    for left, right in pairwise(ordered):
        asked = demand.get(left // bin_us * bin_us, 0.0) if bin_us else 0.0
        needed = cap.units_needed(asked, rate.requests_per_s) if asked else 0
        total += max(cap.units_at(capacity, left) - needed, 0) * (right - left) / US_PER_S
    return total


def cost_entry(cost: UserCost | None) -> dict[str, Any] | None:
    """Return the JSON object of a scale-out's cost, null without an onset."""
    if cost is None:
        return None
    entry: dict[str, Any] = msgspec.to_builtins(cost)
    entry["phases"] = {row.pop("phase"): row for row in entry["phases"]}
    return entry
