"""When demand rose: change points of a Poisson process by maximum likelihood, with intervals. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from analysis.demand import between
from analysis.records import Onset
from traces.units import US_PER_S

CONFIDENCE: Final = 0.95
LIKELIHOOD_DROP: Final = -math.log(1 - math.sqrt(CONFIDENCE))
"""How far (natural log) the profile likelihood may fall within the interval of the onset: 3.68 for 95 %.

Away from the true change the log-likelihood ratio is, on either side, a random walk with negative drift; its maximum
is asymptotically exponential with mean 1, so P(drop <= x) = (1 - exp(-x))² (Siegmund, "Confidence sets in
change-point problems", 1988; conservative for abrupt changes). The usual chi-squared 1.92 does not apply here.
"""
MIN_GAIN: Final = 8.0
"""Log-likelihood a change must gain over no change to count (e⁸ is 1 : 3000; it guards against a maximum over many
candidate instants)."""
LOOK_BACK_US: Final = 3600 * US_PER_S
"""How long before a decision its rise is looked for first; only without one there, in all of the load before."""
_MOST_CHANGES: Final = 16
_CHI2_MEDIAN: Final = 0.4549
_DISPERSION_BINS: Final = 200


class _Change:
    """A change of rate at `at`: the log-likelihood it gains, and the table of all candidates."""

    __slots__ = ("at", "earlier", "gain", "hi", "rate_after", "rate_before")

    def __init__(self, gain: float, at: int, earlier: int, hi: int, *, rate_before: float, rate_after: float) -> None:
        self.gain, self.at, self.earlier, self.hi = gain, at, earlier, hi
        self.rate_before, self.rate_after = rate_before, rate_after

    def onset(self) -> Onset:
        return Onset(
            lo_us=self.earlier, at_us=self.at, hi_us=self.hi, rate_before=self.rate_before,
            rate_after=self.rate_after, how="change-point",
        )  # fmt: skip


def dispersion(due_us: pl.Series, begin_us: int, end_us: int) -> float:
    """Return how many times more the counts vary than a Poisson process's would, 1 at least.

    Over neighbouring bins, (x₁ − x₂)² / (x₁ + x₂) has the median of chi-squared with one degree of freedom when
    arrivals are Poisson, whatever the rate; a few jumps of the rate do not move a median. Likelihoods are divided by
    it (quasi-likelihood), so that arrivals in clumps make no change points of their own.
    """
    inside = between(due_us, begin_us, end_us).to_numpy()
    if len(inside) < 10 * _DISPERSION_BINS:
        return 1.0
    counts = np.histogram(inside, bins=_DISPERSION_BINS, range=(begin_us, end_us))[0].astype(float)
    sums = counts[:-1] + counts[1:]
    ratios = (np.diff(counts) ** 2)[sums > 0] / sums[sums > 0]
    return max(1.0, float(np.median(ratios)) / _CHI2_MEDIAN)


def change_point(due_us: pl.Series, begin_us: int, end_us: int, latest_us: int | None = None) -> Onset | None:
    """Return when a Poisson process rose between `begin_us` and `end_us`, or None when no rise is evident.

    Maximum likelihood for one change of rate at t: with n₀ arrivals in [begin, t) and n₁ in [t, end),
    ℓ(t) = n₀ ln(n₀ / (t − begin)) + n₁ ln(n₁ / (end − t)), over rises only. ℓ is convex between arrivals, so its
    maximum lies at an arrival, which then is the first of the new rate. The interval holds all t, from the arrival
    before, with ℓ(t) >= max ℓ − LIKELIHOOD_DROP. `latest_us` caps t (the first breach bounds the onset).
    """
    found = _rise(due_us, begin_us, end_us, latest_us)
    return None if found is None else found.onset()


def _rise(due_us: pl.Series, begin_us: int, end_us: int, latest_us: int | None = None) -> _Change | None:
    """Return the most likely rise (see `change_point`), None when none is evident."""
    inside = between(due_us, begin_us, end_us).to_numpy()
    count = len(inside)
    if count < 2 or end_us <= begin_us:
        return None
    before = np.arange(count, dtype=float)
    after = count - before
    left, right = (inside - begin_us).astype(float), (end_us - inside).astype(float)
    candidate = (inside > begin_us) & (after * left > before * right)
    if latest_us is not None:
        candidate &= inside <= latest_us
    places = np.flatnonzero(candidate)
    if not len(places):
        return None
    before, after, left, right = before[places], after[places], left[places], right[places]
    gain = after * np.log(after / right) - count * math.log(count / (end_us - begin_us))
    gain += before * np.log(np.where(before > 0, before, 1.0) / left)
    phi = dispersion(due_us, begin_us, end_us)
    best = int(np.argmax(gain))
    if gain[best] < MIN_GAIN * phi:
        return None
    near = places[np.flatnonzero(gain >= gain[best] - LIKELIHOOD_DROP * phi)]
    lowest = int(near[0])
    at = int(inside[places[best]])
    return _Change(
        float(gain[best]),
        at,
        _arrival_before(inside, lowest, begin_us),
        int(inside[near[-1]]),
        rate_before=float(before[best]) / (at - begin_us) * US_PER_S,
        rate_after=float(after[best]) / (end_us - at) * US_PER_S,
    )


def _arrival_before(inside: np.ndarray, place: int, begin_us: int) -> int:
    """Return the last arrival strictly before the one at `place`, or the begin."""
    earlier = int(np.searchsorted(inside, inside[place], side="left"))
    return int(inside[earlier - 1]) if earlier > 0 else begin_us


def find_onset(due_us: pl.Series, begin_us: int | None, end_us: int, latest_us: int | None) -> Onset | None:
    """Return the onset of the demand behind a decision at `end_us`; `due_us` is sorted.

    `begin_us` None: from the start of the load; then a load that never evidently rises was high from its first request
    on: that request is the onset, and the interval reaches as far as the arrivals leave open. `begin_us` given (an
    earlier decision): None when demand did not rise since.
    """
    if due_us.is_empty() or int(due_us[0]) >= end_us:
        return None
    first = int(due_us[0])
    start = first if begin_us is None else begin_us
    recent = max(start, end_us - LOOK_BACK_US)
    rise = _rise_after_lull(due_us, recent, end_us, latest_us)
    if rise is None and recent > start:
        rise = _rise_after_lull(due_us, start, end_us, latest_us)
    if rise is not None or begin_us is not None:
        return None if rise is None else rise.onset()
    rate = len(between(due_us, first, end_us)) / (end_us - first) * US_PER_S
    hi = _latest_unnoticed_us(due_us, first, end_us, latest_us)
    return Onset(lo_us=first, at_us=first, hi_us=hi, rate_before=0.0, rate_after=rate, how="load-start")


def _rise_after_lull(due_us: pl.Series, start: int, end_us: int, latest_us: int | None) -> _Change | None:
    rise, fall = _rise(due_us, start, end_us, latest_us), _fall(due_us, start, end_us)
    if fall is not None and (rise is None or fall[0] > rise.gain):
        # A burst before a lull blurs or hides the rise after it: no single change of rate describes both.
        rise = _rise(due_us, fall[1], end_us, latest_us) or rise
    return rise


def of_the_deficit(due_us: pl.Series, onset: Onset, begin_us: int, end_us: int, capacity_per_s: float) -> Onset:
    """Return the rise with which demand came to exceed the ready capacity, in place of the likeliest single rise.

    Demand may rise in several steps. Where the rate between an earlier rise and the onset exceeded capacity already,
    the earlier one is it; where the rate up to a later rise does not exceed it, the later one (binary segmentation by
    the same likelihood). Without such a rise the onset stays.
    """
    for _ in range(_MOST_CHANGES):
        earlier = _rise(due_us, begin_us, onset.at_us)
        if earlier is None or earlier.rate_after <= capacity_per_s:
            break
        onset = earlier.onset()
    for _ in range(_MOST_CHANGES):
        later = _rise(due_us, onset.at_us, end_us)
        if later is None or later.rate_before > capacity_per_s or later.rate_after <= capacity_per_s:
            break
        onset = later.onset()
    return onset


MATERIAL_RISE: Final = 1.5
"""Smallest ratio of rates that counts as a rise of demand, where none is evident."""


def _latest_unnoticed_us(due_us: pl.Series, begin_us: int, end_us: int, latest_us: int | None) -> int:
    """Return how long after `begin_us` a rise by `MATERIAL_RISE` may have come and not be evident.

    With rates λ and at least ρλ before and after t, the likelihood's maximum has λ = n / (T₀ + ρ T₁) where the counts
    alone would make the ratio smaller. From the start on, t is open as long as that costs no more than
    `LIKELIHOOD_DROP` against one rate throughout: in dense traffic a short while, in sparse traffic up to the breach.
    """
    times = between(due_us, begin_us, end_us).to_numpy()
    cap = end_us if latest_us is None else min(latest_us, end_us)
    count, whole = len(times), end_us - begin_us
    for before, at in enumerate(times):
        left, right, after = int(at) - begin_us, end_us - int(at), count - before
        if left <= 0:
            continue
        if at >= cap:
            break
        cost = 0.0
        if after * left < MATERIAL_RISE * before * right:
            stretched = left + MATERIAL_RISE * right
            cost = count * math.log(stretched / whole) - after * math.log(MATERIAL_RISE)
        if cost > LIKELIHOOD_DROP:
            return int(at)
    return cap


def fell(due_us: pl.Series, begin_us: int, end_us: int) -> bool:
    """Tell whether the rate evidently fell between two instants."""
    return _fall(due_us, begin_us, end_us) is not None


def _fall(due_us: pl.Series, begin_us: int, end_us: int) -> tuple[float, int] | None:
    """Return the gain and the instant of the most likely fall of the rate: a rise, seen backwards in time."""
    mirrored = (begin_us + end_us - between(due_us, begin_us, end_us)).reverse().set_sorted()
    found = _rise(mirrored, begin_us, end_us)
    return None if found is None else (found.gain, begin_us + end_us - found.at + 1)


EVIDENT_ABOVE: Final = math.log(1000)
"""CUSUM level at which a rise counts as evident: the new rate explains the counts a thousand times better."""


def evident_after_us(due_us: pl.Series, onset: Onset, end_us: int) -> int | None:
    """Return how long after the onset its arrivals alone made the rise evident, in whole seconds; None: unknown.

    No detector that sees counts per second could have been sure much sooner: what detection takes beyond this is
    metric periods, alarm rules and lags.
    """
    if onset.rate_before <= 0 or onset.rate_after <= onset.rate_before:
        return None
    bins = range(onset.at_us, end_us, US_PER_S)
    inside = between(due_us, onset.at_us, end_us).to_numpy()
    counts = np.bincount((inside - onset.at_us) // US_PER_S, minlength=len(bins)).tolist()
    found = cusum_detection(cusum(counts, onset.rate_before, onset.rate_after, 1.0), EVIDENT_ABOVE)
    return None if found is None else (found[0] + 1) * US_PER_S


def cusum(counts: Sequence[float], rate_before: float, rate_after: float, bin_s: float) -> list[float]:
    """Return the Poisson CUSUM after each bin: S_k = max(0, S_{k−1} + x_k ln(λ₁/λ₀) − (λ₁ − λ₀) Δt).

    >>> [round(s, 2) for s in cusum([9, 11, 10, 12, 38, 41], 10, 40, 1)]
    [0.0, 0.0, 0.0, 0.0, 22.68, 49.52]
    """
    weight, drift = math.log(rate_after / rate_before), (rate_after - rate_before) * bin_s
    levels, level = [], 0.0
    for count in counts:
        level = max(0.0, level + count * weight - drift)
        levels.append(level)
    return levels


def cusum_detection(levels: Sequence[float], threshold: float) -> tuple[int, int] | None:
    """Return (bin of detection, last bin at zero before it), both from 0 (−1: from the start), or None.

    >>> cusum_detection([0, 0, 0, 0, 22.68, 49.52], 20)
    (4, 3)
    """
    for k, level in enumerate(levels):
        if level > threshold:
            return k, max((i for i in range(k) if levels[i] == 0), default=-1)
    return None
