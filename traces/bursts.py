"""Bursts of a trace: where traffic rises well above its recent past, found with a Poisson CUSUM.

Arrivals are counted in bins. At each instant the *baseline* λ₀ is the rate over the stretch before it, earlier bursts
left out, and the cumulative sum `S = max(0, S + (x ln ρ - (ρ - 1) λ₀ Δt) / φ)` weighs the evidence for a rate ρ times
as high (Page, 1954; Lucas, 1985, for Poisson counts). When S passes the threshold h, a burst began where S last left
zero. λ₀ is held from there on, so that the burst does not become its own past. The end is found by the same sum
turned round, between the burst's own rate so far and the baseline: it lies where traffic last fell below their
logarithmic mean. λ₀ is taken to be at least a tenth of the trace's mean rate: waking from a silence to a trickle is
no burst.

φ is how much more than those of a Poisson process neighbouring bins differ (half their mean squared difference over
their mean, at least 1), so that traffic that is restless everywhere does not look like one burst after another.

For Poisson arrivals and a known λ₀ fewer than one bin in e^h starts a false burst. A time grid (rows that share
stamps) is dissolved first, and bins are no shorter than its step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

import msgspec
import polars as pl

from traces.transform import jitter_ties
from traces.units import US_PER_S

RISE: Final = 2.0
THRESHOLD: Final = 12.0
_GRID_TIES: Final = 0.2
"""Share of rows that share the stamp of the row before, from which on stamps are taken for a grid."""

_LEAST_BASELINE: Final = 0.1
_SHORTEST_BASELINE_US: Final = 10 * US_PER_S
_LONGEST_BASELINE_US: Final = 300 * US_PER_S
_LONGEST_BURST_BASELINES: Final = 10


class Burst(msgspec.Struct, frozen=True, kw_only=True):
    """One burst, in µs from the trace's start.

    `score` is the log-likelihood ratio of the burst's own rate against its baseline, over φ: it grows with height and
    length, and ranks bursts. `excess` is the number of arrivals beyond the baseline's. `ended` is false where the trace
    (or the longest burst looked for) ended before the traffic fell back. `window` holds the burst with a baseline's
    length before and after it, as `--window` and a scenario's `[trace] window` take it.
    """

    start_us: int
    end_us: int
    requests: int
    rate_per_s: float
    baseline_per_s: float
    peak_per_s: float
    excess: float
    score: float
    ended: bool
    window: str


class BurstReport(msgspec.Struct, frozen=True, kw_only=True):
    """The bursts by falling score, and how they were looked for."""

    bursts: list[Burst]
    bin_us: int
    baseline_us: int
    grid_us: int | None
    overdispersion: float
    rise: float
    threshold: float


def find_bursts(
    frame: pl.LazyFrame, *, rise: float = RISE, threshold: float = THRESHOLD, baseline_us: int | None = None
) -> BurstReport:
    """Return the bursts of a trace frame in order of arrival; its arrivals are held in memory.

    `rise` is ρ, `threshold` is h. `baseline_us` defaults to a tenth of the trace, within 10 s and 5 min.
    """
    arrivals = frame.select("row_id", "arrival_us").collect()
    if arrivals.is_empty():
        raise ValueError("a trace without rows has no bursts")
    grid_us = grid_step_us(arrivals["arrival_us"])
    if grid_us is not None:
        arrivals = jitter_ties(arrivals.lazy(), seed=0).collect()
    bin_us = max(US_PER_S, grid_us or 0)
    span_us: int = arrivals["arrival_us"][-1]
    if baseline_us is None:
        baseline_us = min(max(span_us // 10, _SHORTEST_BASELINE_US, 10 * bin_us), _LONGEST_BASELINE_US)
    counts = _counts(arrivals["arrival_us"], bin_us)
    overdispersion = _overdispersion(counts)
    least = _LEAST_BASELINE * sum(counts) / len(counts)
    detector = _Detector(rise, threshold * overdispersion, max(1, baseline_us // bin_us), least)
    spans = detector.spans(counts)
    found = [_burst(counts, bin_us, span, overdispersion, around_us=baseline_us, span_us=span_us) for span in spans]
    return BurstReport(
        bursts=sorted(found, key=lambda burst: -burst.score),
        bin_us=bin_us,
        baseline_us=baseline_us,
        grid_us=grid_us,
        overdispersion=overdispersion,
        rise=rise,
        threshold=threshold,
    )


def grid_step_us(arrivals_us: pl.Series) -> int | None:
    """Return the step of the time grid that the stamps lie on (the median gap between distinct ones), or None.

    >>> grid_step_us(pl.Series([0, 0, 3, 3, 3, 6])), grid_step_us(pl.Series([0, 1, 5]))
    (3, None)
    """
    steps = arrivals_us.unique().sort().diff().drop_nulls()
    if steps.is_empty() or (arrivals_us.diff() == 0).sum() < _GRID_TIES * len(arrivals_us):
        return None
    ordered: list[int] = sorted(steps.to_list())
    return ordered[len(ordered) // 2]


class _Span(msgspec.Struct, frozen=True):
    """Bins `[start, end)` of a burst, and the arrivals per bin before it."""

    start: int
    end: int
    baseline: float
    ended: bool


class _Detector:
    """The CUSUM over bins. Sums are kept times φ, so that only the threshold knows of it."""

    def __init__(self, rise: float, threshold: float, baseline_bins: int, least: float) -> None:
        self._rise = rise
        self._threshold = threshold
        self._length = baseline_bins
        self._least = least
        self._longest = _LONGEST_BURST_BASELINES * baseline_bins

    def spans(self, counts: Sequence[int]) -> list[_Span]:
        """Return the bursts in order."""
        found: list[_Span] = []
        # Nothing is known of the time before the trace: half a baseline has to pass first.
        at = max(1, self._length // 2)
        quiet = list(counts[:at])
        while (risen := self._next_rise(counts, at, quiet)) is not None:
            start, crossed, baseline = risen
            end, ended = self._fall(counts, start, crossed, baseline)
            found.append(_Span(start, end, baseline, ended))
            at = end
            if not ended:
                # What stays is the new normal: the past begins anew.
                at = min(end + max(1, self._length // 2), len(counts))
                quiet = list(counts[end:at])
        return found

    def _next_rise(self, counts: Sequence[int], at: int, quiet: list[int]) -> tuple[int, int, float] | None:
        """Return the next burst's first bin, the bin in which it was certain, and its baseline; None for none.

        `quiet` holds the counts outside of bursts so far, and is carried on to the burst's start.
        """
        evidence, start, baseline = 0.0, at, 0.0
        recent = sum(quiet[-self._length :])
        for k in range(at, len(counts)):
            if evidence == 0.0:
                # λ₀ follows until evidence begins to add up.
                baseline = max(recent / min(len(quiet), self._length), self._least)
                start = k
            evidence = max(0.0, evidence + counts[k] * math.log(self._rise) - (self._rise - 1) * baseline)
            if evidence > self._threshold:
                del quiet[len(quiet) - (k - start) :]
                return start, k, baseline
            recent += counts[k] - (quiet[-self._length] if len(quiet) >= self._length else 0)
            quiet.append(counts[k])
        return None

    def _fall(self, counts: Sequence[int], start: int, crossed: int, baseline: float) -> tuple[int, bool]:
        """Return the bin in which the burst was over, and whether traffic fell back by then."""
        last = min(len(counts), start + self._longest)
        evidence, turned = 0.0, crossed + 1
        inside = sum(counts[start : crossed + 1])
        own = max(inside / (crossed + 1 - start), self._rise * baseline)
        for k in range(crossed + 1, last):
            if evidence == 0.0:
                own, turned = max(inside / (k - start), self._rise * baseline), k
            evidence = max(0.0, evidence + (own - baseline) - counts[k] * math.log(own / baseline))
            if evidence > self._threshold:
                return turned, True
            inside += counts[k]
        return last, False


def _counts(arrivals_us: pl.Series, bin_us: int) -> list[int]:
    bins = (arrivals_us // bin_us).alias("bin").to_frame().group_by("bin").len()
    every = pl.DataFrame({"bin": pl.int_range(arrivals_us[-1] // bin_us + 1, eager=True)}).join(
        bins, on="bin", how="left"
    )
    return every.sort("bin")["len"].fill_null(0).to_list()


def _overdispersion(counts: Sequence[int]) -> float:
    if len(counts) < 2 or not any(counts):
        return 1.0
    squares = sum((b - a) ** 2 for a, b in itertools.pairwise(counts))
    return max(1.0, squares / (2 * (len(counts) - 1)) / (sum(counts) / len(counts)))


def _burst(counts: Sequence[int], bin_us: int, span: _Span, phi: float, *, around_us: int, span_us: int) -> Burst:
    inside = counts[span.start : span.end]
    requests, expected = sum(inside), span.baseline * len(inside)
    per_s = US_PER_S / bin_us
    start_us, end_us = span.start * bin_us, span.end * bin_us
    return Burst(
        start_us=start_us,
        end_us=end_us,
        requests=requests,
        rate_per_s=requests / len(inside) * per_s,
        baseline_per_s=span.baseline * per_s,
        peak_per_s=max(inside) * per_s,
        excess=requests - expected,
        score=(requests * math.log(requests / expected) - (requests - expected)) / phi,
        ended=span.ended,
        window=_window_text(max(0, start_us - around_us), min(end_us + around_us, span_us + 1)),
    )


def _window_text(start_us: int, end_us: int) -> str:
    """Return a window in whole milliseconds, its end rounded up."""
    return f"{start_us // 1000 / 1000:.12g}s..{-(-end_us // 1000) / 1000:.12g}s"
