"""Before against after: effects with intervals and exact tests, for few and for censored observations.

The unit of all of it is the scale-out, never the instance: what instances of one scale-out say is reduced to one value
first (cluster bootstrap). Two bursts of fifty instances are n = 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median
from typing import Any, Final

import msgspec
import numpy as np

Interval = tuple[float, float]
ALPHA: Final = 0.05
LEAST_FOR_A_VERDICT: Final = 4
"""Scale-outs per arm below which no difference can be told at 5 % with any margin (3 + 3: the least p is 0.10)."""
DRAWS: Final = 10_000
_SEED: Final = 20260616


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """By how much "after" is less than "before", in the unit of the values; None: cannot be told from so few.

    `shift` is Hodges and Lehmann's (median of all pairwise differences), its interval inverts the exact test.
    """

    n_before: int
    n_after: int
    median_before: float
    median_after: float
    difference: float
    difference_ci: Interval | None
    shift: float
    shift_ci: Interval | None
    p: float
    least_p: float
    verdict: str


def effect(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]) -> Effect:
    """Return the effect between two arms of clusters; the values of one cluster count as one, their median."""
    b, a = [median(c) for c in before if c], [median(c) for c in after if c]
    p = permutation_p(b, a)
    enough = min(len(b), len(a)) >= LEAST_FOR_A_VERDICT
    verdict = ("different" if p <= ALPHA else "not told apart") if enough else "insufficient"
    return Effect(
        n_before=len(b),
        n_after=len(a),
        median_before=median(b),
        median_after=median(a),
        difference=median(b) - median(a),
        difference_ci=bootstrap_medians(b, a),
        shift=hodges_lehmann(b, a),
        shift_ci=shift_interval(b, a),
        p=p,
        least_p=least_p(len(b), len(a)),
        verdict=verdict,
    )


def hodges_lehmann(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the median of all pairwise differences before − after.

    >>> hodges_lehmann([510, 525, 540, 530, 515], [250, 258, 262, 270, 255])
    265
    """
    return median(x - y for x in before for y in after)


def least_p(n_before: int, n_after: int) -> float:
    """Return the smallest two-sided p that any data of so many events can have.

    >>> [round(least_p(n, n), 4) for n in (3, 4, 5, 6)]
    [0.1, 0.0286, 0.0079, 0.0022]
    """
    return min(1.0, 2 / math.comb(n_before + n_after, n_before))


def rank_sums(doubled_ranks: Sequence[int], size: int) -> np.ndarray:
    """Return, per possible sum of `size` of the doubled ranks, the share of subsets with it (each as likely)."""
    top = sum(sorted(doubled_ranks)[-size:]) if size else 0
    counts = np.zeros((size + 1, top + 1))
    counts[0, 0] = 1
    for rank in doubled_ranks:
        for k in range(size, 0, -1):
            counts[k, rank:] += counts[k - 1, : top + 1 - rank]
    shares: np.ndarray = counts[size] / counts[size].sum()
    return shares


def _doubled_midranks(values: Sequence[float]) -> list[int]:
    """Return twice the rank of each value, ties sharing the mean of theirs: integers."""
    ordered = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(ordered)))}
    count = {value: ordered.count(value) for value in first}
    return [2 * first[value] + count[value] + 1 for value in values]


def permutation_p(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the exact two-sided p of the rank sum under all relabellings of the events; ties are no obstacle.

    >>> round(permutation_p([510, 525, 540, 530, 515], [250, 258, 262, 270, 255]), 5)
    0.00794
    """
    ranks = _doubled_midranks([*before, *after])
    shares = rank_sums(ranks, len(before))
    mean = len(before) * (len(ranks) + 1)
    far = abs(sum(ranks[: len(before)]) - mean)
    sums = np.arange(len(shares))
    return min(1.0, float(shares[np.abs(sums - mean) >= far].sum()))


def shift_interval(before: Sequence[float], after: Sequence[float], alpha: float = ALPHA) -> Interval | None:
    """Return the interval of the shift that inverts the exact rank test; None: too few for that level.

    With U's distribution under equal arms, it runs from the k-th smallest to the k-th largest pairwise difference,
    with the greatest k such that P(U < k) <= α/2 (Moses).
    """
    differences = sorted(x - y for x in before for y in after)
    n = len(before)
    shares = rank_sums([2 * (i + 1) for i in range(n + len(after))], n)
    # Sums are of doubled ranks: U = sum / 2 − n (n + 1) / 2.
    u = np.cumsum(shares[n * (n + 1) :: 2])
    k = int(np.searchsorted(u, alpha / 2, side="right"))
    return None if k < 1 else (differences[k - 1], differences[-k])


def bootstrap_medians(before: Sequence[float], after: Sequence[float], alpha: float = ALPHA) -> Interval | None:
    """Return the percentile interval of median(before) − median(after) over resampled events; None below 2 + 2."""
    if min(len(before), len(after)) < 2:
        return None
    rng = np.random.default_rng(_SEED)

    def medians(values: Sequence[float]) -> np.ndarray:
        drawn = rng.choice(np.asarray(values, dtype=float), (DRAWS, len(values)))
        found: np.ndarray = np.median(drawn, axis=1)
        return found

    low, high = np.quantile(medians(before) - medians(after), [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)


def holm(p_values: dict[str, float]) -> dict[str, float]:
    """Return p-values adjusted for their number (Holm's step-down): with them the chance of any false alarm is kept.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    adjusted, floor = {}, 0.0
    for place, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        floor = max(floor, min(1.0, p * (len(p_values) - place)))
        adjusted[name] = floor
    return adjusted


def kaplan_meier(times: Sequence[float], reached: Sequence[bool]) -> list[tuple[float, float]]:
    """Return the survival curve as steps (time, share not there yet after it); `reached` False: right-censored.

    >>> kaplan_meier([200, 260, 300, 600, 600], [True, True, True, False, False])
    [(200, 0.8), (260, 0.6), (300, 0.4)]
    """
    share, steps = 1.0, []
    for at in sorted({t for t, hit in zip(times, reached, strict=True) if hit}):
        at_risk = sum(1 for t in times if t >= at)
        share *= 1 - sum(1 for t, hit in zip(times, reached, strict=True) if hit and t == at) / at_risk
        steps.append((at, round(share, 12)))
    return steps


def km_median(curve: Sequence[tuple[float, float]]) -> float | None:
    """Return when half had reached it, None where fewer ever did."""
    return next((at for at, share in curve if share <= 0.5), None)


def restricted_mean(curve: Sequence[tuple[float, float]], until: float) -> float:
    """Return the mean time up to `until` of all, reached or not: the area under the survival curve.

    >>> round(restricted_mean([(200, 0.8), (260, 0.6), (300, 0.4)], 600), 6)
    392.0
    """
    area, at, share = 0.0, 0.0, 1.0
    for step, after in curve:
        if step >= until:
            break
        area, at, share = area + share * (step - at), step, after
    return area + share * (until - at)


def restricted_mean_difference(
    before: Sequence[tuple[float, bool]], after: Sequence[tuple[float, bool]]
) -> dict[str, Any]:
    """Return the restricted means of two arms of (time, reached) up to a common time, and their difference.

    The common time is the lesser of both arms' longest: beyond it one of them was not watched.
    """
    until = min(max(t for t, _ in before), max(t for t, _ in after))

    def mean(arm: Sequence[tuple[float, bool]]) -> float:
        return restricted_mean(kaplan_meier([t for t, _ in arm], [hit for _, hit in arm]), until)

    rng = np.random.default_rng(_SEED)
    interval = None
    if min(len(before), len(after)) >= 2:
        arms = (list(before), list(after))
        draws = [
            [mean([arm[i] for i in rng.integers(0, len(arm), len(arm))]) for arm in arms] for _ in range(DRAWS // 10)
        ]
        low, high = np.quantile([b - a for b, a in draws], [ALPHA / 2, 1 - ALPHA / 2])
        interval = (float(low), float(high))
    found = {"until": until, "before": mean(before), "after": mean(after)}
    return found | {"difference": found["before"] - found["after"], "difference_ci": interval}


def wilson(hits: int, of: int, alpha: float = ALPHA) -> Interval:
    """Return Wilson's interval of a share.

    >>> [round(x, 3) for x in wilson(7, 10)]
    [0.397, 0.892]
    """
    z = NormalDist().inv_cdf(1 - alpha / 2)
    share, scale = hits / of, 1 + z * z / of
    middle = (share + z * z / (2 * of)) / scale
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / scale
    return max(middle - half, 0.0), min(middle + half, 1.0)


def variation(values: Sequence[float]) -> float | None:
    """Return the coefficient of variation, None from fewer than two."""
    if len(values) < 2:
        return None
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1)) / mean if mean else None
