"""How many units were ready when, how much one unit can do, how many were needed, and what went short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import polars as pl

from analysis.records import AnchorValue
from traces.units import US_PER_S

SATURATED_BELOW: Final = 0.9
"""The endpoint counts as saturated when it delivered less than this share of what was offered."""
NEED_TOLERANCE: Final = 0.05
"""Demand may exceed capacity by this share before one more unit counts as needed (the calibration is no better)."""
_MIN_COMPLETIONS: Final = 20


class UnitRate(msgspec.Struct, frozen=True, kw_only=True):
    """What one unit delivers when it has all the work it can do (requests/s and output tokens/s, endpoint time)."""

    requests_per_s: float
    tokens_per_s: float


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """From `at_us` (within [lo_us, hi_us]) on, `units` are in service."""

    lo_us: int
    at_us: int
    hi_us: int
    units: int


def calibrate(
    requests: pl.LazyFrame | pl.DataFrame, onset_us: int, until_us: int, units: int, offered_per_s: float
) -> UnitRate | None:
    """Return what one unit delivers, read from the run itself: completions per second and unit while saturated.

    Looked at over the last three quarters of [onset, until), while the number of units is still the old one. None
    when the endpoint kept up (then only a lower bound is known) or when too little completed to say.
    """
    begin = onset_us + (until_us - onset_us) // 4
    length_s = (until_us - begin) / US_PER_S
    if units < 1 or length_s <= 0:
        return None
    done = pl.col("done").dt.epoch("us")
    good = requests.lazy().filter((pl.col("outcome") == "ok") & (done >= begin) & (done < until_us))
    tokens = pl.coalesce("output_tokens", "planned_output_tokens").sum()
    completed, generated = good.select(pl.len(), tokens).collect(engine="streaming").row(0)
    if completed < _MIN_COMPLETIONS or completed / length_s >= SATURATED_BELOW * offered_per_s:
        return None
    return UnitRate(requests_per_s=completed / length_s / units, tokens_per_s=(generated or 0) / length_s / units)


def units_needed(offered_per_s: float, rate_per_unit: float) -> int:
    """Return the fewest units that cover the demand, with `NEED_TOLERANCE`.

    >>> units_needed(40, 6), units_needed(6.1, 6), units_needed(0.1, 6)
    (7, 1, 1)
    """
    return max(1, math.ceil(offered_per_s * (1 - NEED_TOLERANCE) / rate_per_unit))


def marginal(ready_us: Sequence[int], more_needed: int) -> int | None:
    """Return the position (in `ready_us`) of the unit that completed the needed capacity; None: not reached.

    >>> marginal([200, 240, 300], 2), marginal([240, 300, 200], 2), marginal([200], 2)
    (1, 0, None)
    """
    order = sorted(range(len(ready_us)), key=lambda i: (ready_us[i], i))
    position = max(more_needed, 1) - 1
    return order[position] if position < len(order) else None


def steps(
    units_at_start: int, begin_us: int, arrivals: Sequence[AnchorValue], falls: Sequence[tuple[int, int, int]]
) -> list[Step]:
    """Return ready capacity as a step function with bounds.

    `arrivals` are `in_service` anchors of new units; `falls` are (lo, hi, number of units gone).
    """
    changes = [
        (v.at_us, v.lo_us if v.lo_us is not None else v.at_us, v.hi_us if v.hi_us is not None else v.at_us, 1)
        for v in arrivals
    ]
    changes += [((lo + hi) // 2, lo, hi, -gone) for lo, hi, gone in falls]
    level = units_at_start
    result = [Step(lo_us=begin_us, at_us=begin_us, hi_us=begin_us, units=level)]
    for at, lo, hi, change in sorted(changes):
        level = max(level + change, 0)
        result.append(Step(lo_us=lo, at_us=at, hi_us=hi, units=level))
    return result


def units_at(capacity: Sequence[Step], at_us: int) -> int:
    """Return the number of ready units at an instant."""
    level = capacity[0].units if capacity else 0
    for step in capacity:
        if step.at_us <= at_us:
            level = step.units
    return level


def against_demand(load: pl.DataFrame, capacity: Sequence[Step], rate: UnitRate | None, bin_us: int) -> pl.DataFrame:
    """Return demand and capacity per bin: the columns of `load`; `units` within [`units_lo`, `units_hi`]; and, when a
    unit's rate is known, `capacity_per_s`, `demand_units` and `deficit_requests` (demand beyond capacity within the
    bin; `deficit_lo` and `deficit_hi` for all steps as early and as late as they may have been), else null.
    """  # noqa: D205
    middles = [start + bin_us // 2 for start in load["start_us"]]
    early, late = shifted(capacity, "lo_us"), shifted(capacity, "hi_us")
    columns = {"units": capacity, "units_lo": late, "units_hi": early}
    frame = load.with_columns(
        pl.Series(name, [units_at(steps, at) for at in middles], dtype=pl.Int64) for name, steps in columns.items()
    )
    per_unit = None if rate is None else rate.requests_per_s
    served = pl.col("units") * pl.lit(per_unit, dtype=pl.Float64)
    return frame.with_columns(
        capacity_per_s=served,
        demand_units=pl.col("requests_per_s") / pl.lit(per_unit, dtype=pl.Float64),
        **{
            name: (pl.col("requests_per_s") - pl.col(units) * pl.lit(per_unit, dtype=pl.Float64)).clip(lower_bound=0)
            * (bin_us / US_PER_S)
            for name, units in (("deficit_requests", "units"), ("deficit_lo", "units_hi"), ("deficit_hi", "units_lo"))
        },
    )


def shifted(capacity: Sequence[Step], side: Literal["lo_us", "hi_us"]) -> list[Step]:
    """Return the steps with every rise at its earliest (`lo_us`) or latest (`hi_us`), and every fall the other way."""
    other: dict[str, Literal["lo_us", "hi_us"]] = {"lo_us": "hi_us", "hi_us": "lo_us"}
    changes, level = [], capacity[0].units if capacity else 0
    for step in capacity[1:]:
        rising = step.units >= level
        changes.append((getattr(step, side if rising else other[side]), step.units - level))
        level = step.units
    result = list(capacity[:1])
    for at, change in sorted(changes):
        units = max(result[-1].units + change, 0)
        result.append(Step(lo_us=at, at_us=at, hi_us=at, units=units))
    return result
