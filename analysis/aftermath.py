"""What followed from a scale-out: when capacity was there by each definition, and what the wait cost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import polars as pl

from analysis import capacity as cap
from analysis.deficit import Fluid, fluid
from analysis.reached import Objective, definitions
from analysis.records import ScaleOutResult
from analysis.user_cost import idle_unit_seconds, user_cost


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its users felt it: `timings` of `latency`, `load` of `demand`, ready `capacity` and a unit's `rate`."""

    timings: pl.DataFrame
    load: pl.DataFrame
    capacity: Sequence[cap.Step]
    rate: cap.UnitRate | None
    first_tokens: dict[str, int]
    objective: Objective
    price_per_unit_hour: float | None


def with_consequences(found: Sequence[ScaleOutResult], told: Told) -> list[ScaleOutResult]:
    """Return scale-outs with `reached` and `cost`. The first of a burst bears what users felt, the last what idled.

    Several scale-outs of one burst share its damage, which is not theirs one by one: counted once, it adds up.
    """
    if told.timings.is_empty():
        return list(found)
    end: int = told.timings["due_us"].max() + 1  # type: ignore[operator, assignment]
    result = []
    for i, one in enumerate(found):
        later = next((s for s in found[i + 1 :] if s.burst != one.burst and s.onset is not None), None)
        until = end if later is None or later.onset is None else later.onset.at_us
        one = msgspec.structs.replace(  # noqa: PLW2901 - the same scale-out, with more known of it
            one,
            reached=definitions(
                one,
                told.timings,
                told.objective,
                until_us=until,
                capacity=told.capacity,
                queue=_queue(one, told, until),
                first_token_us=told.first_tokens.get(one.marginal_unit or ""),
            ),
        )
        begins = i == 0 or found[i - 1].burst != one.burst
        ends = i + 1 == len(found) or found[i + 1].burst != one.burst
        idle = None
        if ends and one.in_service is not None:
            idle = idle_unit_seconds(told.load, told.capacity, told.rate, begin_us=one.in_service.at_us, end_us=until)
        cost = user_cost(
            one, told.timings, told.objective, until_us=until, idle_unit_s=idle,
            price_per_unit_hour=told.price_per_unit_hour,
        ) if begins else None  # fmt: skip
        result.append(msgspec.structs.replace(one, cost=cost))
    return result


def _queue(found: ScaleOutResult, told: Told, until_us: int) -> Fluid | None:
    """Return the backlog of a burst by the fluid model; None where a unit's rate is unknown."""
    if found.onset is None or told.rate is None or not told.capacity:
        return None
    starts, rates = told.load["start_us"].to_list(), told.load["requests_per_s"].to_list()
    inside = [(max(at, found.onset.at_us), r) for at, r in zip(starts, rates, strict=True) if at < until_us]
    before = [item for item in inside if item[0] == found.onset.at_us][-1:]
    demand = before + [item for item in inside if item[0] > found.onset.at_us]
    ready = [(step.at_us, step.units * told.rate.requests_per_s) for step in told.capacity]
    return fluid(demand, ready, until_us)
