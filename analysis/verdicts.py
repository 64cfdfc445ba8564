"""What the statistics say of two arms: the total first, phases second, and how many bursts would tell more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from analysis import effects, power

Observed = tuple[tuple[float, bool], ...]


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """An arm's times (s) per scale-out: (time, whether capacity was reached or watching ended), and its phases'."""

    startup: Observed
    time_to_capacity: Observed
    phases: dict[str, list[float]]


class Statistic(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome of two arms. `effect` None: an arm is empty, or has censored times; then `restricted_mean` holds."""

    censored_before: int
    censored_after: int
    effect: effects.Effect | None
    median_before: float | None
    median_after: float | None
    restricted_mean: dict[str, Any] | None
    bursts_needed: int | None
    detectable: float | None
    p_adjusted: float | None = None


def statistics_of(before: Outcomes, after: Outcomes) -> dict[str, Statistic]:
    """Return a statistic per outcome: `time_to_capacity`, `startup`, and each phase that all scale-outs have.

    Time to capacity is the one primary hypothesis. Start-up and phases are secondary: their p-values are adjusted
    together (Holm). Phases are compared in seconds: their shares would rise whenever another phase shrinks.
    """
    found = {
        "time_to_capacity": _statistic(before.time_to_capacity, after.time_to_capacity),
        "startup": _statistic(before.startup, after.startup),
    }
    for name in before.phases:
        if name in after.phases:
            pair = [tuple((v, True) for v in arm.phases[name]) for arm in (before, after)]
            found[f"phase:{name}"] = _statistic(*pair)
    secondary = {n: s.effect.p for n, s in found.items() if s.effect is not None and n != "time_to_capacity"}
    for name, p in effects.holm(secondary).items():
        found[name] = msgspec.structs.replace(found[name], p_adjusted=p)
    return found


def _statistic(before: Sequence[tuple[float, bool]], after: Sequence[tuple[float, bool]]) -> Statistic:
    censored = [sum(1 for _, hit in arm if not hit) for arm in (before, after)]
    if not before or not after:
        return Statistic(
            censored_before=censored[0], censored_after=censored[1], effect=None, median_before=None,
            median_after=None, restricted_mean=None, bursts_needed=None, detectable=None,
        )  # fmt: skip
    values = [[t for t, _ in arm] for arm in (before, after)]
    curves = [effects.kaplan_meier([t for t, _ in arm], [hit for _, hit in arm]) for arm in (before, after)]
    found = None if any(censored) else effects.effect([[v] for v in values[0]], [[v] for v in values[1]])
    spreads = [cv for v in values if (cv := effects.variation(v)) is not None]
    cv = max(spreads) if spreads and not any(censored) else None
    reduction = None
    if found is not None and found.median_before > 0 and found.median_after > 0:
        ratio = min(found.median_after / found.median_before, found.median_before / found.median_after)
        reduction = 1 - ratio
    return Statistic(
        censored_before=censored[0],
        censored_after=censored[1],
        effect=found,
        median_before=effects.km_median(curves[0]) if found is None else found.median_before,
        median_after=effects.km_median(curves[1]) if found is None else found.median_after,
        restricted_mean=effects.restricted_mean_difference(before, after) if any(censored) else None,
        bursts_needed=power.bursts_needed(reduction, cv) if cv and reduction else None,
        detectable=power.detectable(min(len(before), len(after)), cv) if cv else None,
    )


def statistic_entry(found: Statistic) -> dict[str, Any]:
    """Return the JSON object of one outcome: lengths in seconds; `difference_s` > 0 means shorter after."""
    entry: dict[str, Any] = {
        "censored_before": found.censored_before,
        "censored_after": found.censored_after,
        "median_before_s": found.median_before,
        "median_after_s": found.median_after,
        "restricted_mean": found.restricted_mean,
        "bursts_needed": found.bursts_needed,
        "detectable_reduction": found.detectable,
        "verdict": "censored" if found.effect is None else found.effect.verdict,
    }
    e = found.effect
    if e is not None:
        entry |= {
            "n_before": e.n_before, "n_after": e.n_after, "difference_s": e.difference,
            "difference_ci_s": e.difference_ci, "shift_s": e.shift, "shift_ci_s": e.shift_ci, "p": e.p,
            "p_adjusted": found.p_adjusted, "least_p": e.least_p,
        }  # fmt: skip
    return entry
