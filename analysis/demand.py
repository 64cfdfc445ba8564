"""Offered load, and when it rose. Pure: frames and integers in, frames and records out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import polars as pl

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


def offered(trace: pl.DataFrame, requests: pl.DataFrame, load_start_us: int | None) -> pl.DataFrame:
    """Return one row per request that was due: `due_us` (endpoint), `tokens` (output asked for), sorted by `due_us`.

    A request that was recorded counts at its due instant; a trace row that has none (the replay was killed) counts at
    its place in the trace, which for a follow-up turn is the earliest it could have been due.
    """
    recorded = requests.select(
        "row_id",
        pl.col("due").dt.epoch("us").alias("due_us"),
        pl.coalesce("planned_output_tokens", "output_tokens").alias("tokens"),
    )
    if load_start_us is None or trace.is_empty():
        return recorded.select("due_us", "tokens").sort("due_us")
    planned = trace.join(recorded, on="row_id", how="anti").select(
        "row_id", (pl.col("arrival_us") + load_start_us).alias("due_us"), pl.col("output_tokens").alias("tokens")
    )
    return pl.concat([recorded, planned]).select("due_us", "tokens").sort("due_us")


def load_per_bin(arrivals: pl.DataFrame, bin_us: int) -> pl.DataFrame:
    """Return the offered load: `start_us`, `requests_per_s`, `tokens_per_s`, gap-free from first to last arrival."""
    if arrivals.is_empty():
        schema = {"start_us": pl.Int64, "requests_per_s": pl.Float64, "tokens_per_s": pl.Float64}
        return pl.DataFrame(schema=schema)
    start = (pl.col("due_us") // bin_us * bin_us).alias("start_us")
    counted = arrivals.group_by(start).agg(n=pl.len(), tokens=pl.col("tokens").sum())
    first: int = counted["start_us"].min()  # type: ignore[assignment]
    last: int = counted["start_us"].max()  # type: ignore[assignment]
    grid = pl.DataFrame({"start_us": pl.int_range(first, last + bin_us, bin_us, eager=True)})
    per_s = US_PER_S / bin_us
    return grid.join(counted, on="start_us", how="left").select(
        "start_us",
        requests_per_s=pl.col("n").fill_null(0) * per_s,
        tokens_per_s=pl.col("tokens").fill_null(0) * per_s,
    )


def change_point(due_us: pl.Series, begin_us: int, end_us: int, latest_us: int | None = None) -> Onset | None:
    """Return when a Poisson process rose between `begin_us` and `end_us`, or None when no rise is evident.

    Maximum likelihood for one change of rate at t: with n₀ arrivals in [begin, t) and n₁ in [t, end),
    ℓ(t) = n₀ ln(n₀ / (t − begin)) + n₁ ln(n₁ / (end − t)), over rises only. ℓ is convex between arrivals, so its
    maximum lies at an arrival, which then is the first of the new rate. The interval holds all t, from the arrival
    before, with ℓ(t) >= max ℓ − LIKELIHOOD_DROP. `latest_us` caps t (the first breach bounds the onset).
    """
    found = _rise(due_us, begin_us, end_us, latest_us)
    return None if found is None else found[1]


def _rise(due_us: pl.Series, begin_us: int, end_us: int, latest_us: int | None = None) -> tuple[float, Onset] | None:
    """Return the most likely rise (see `change_point`) after the log-likelihood that it gains over no change."""
    inside = due_us.filter((due_us >= begin_us) & (due_us < end_us)).sort()
    count = len(inside)
    if count < 2 or end_us <= begin_us:
        return None
    before, after = pl.col("i"), count - pl.col("i")
    left, right = pl.col("t") - begin_us, end_us - pl.col("t")
    rise = after * left > before * right
    table = (
        pl.DataFrame({"t": inside})
        .with_row_index("i")
        .with_columns(pl.col("i").cast(pl.Float64))
        .filter((pl.col("t") > begin_us) & (pl.col("t") <= (end_us if latest_us is None else latest_us)))
        .with_columns(
            gain=pl.when(before > 0).then(before * (before / left).log()).otherwise(0.0)
            + after * (after / right).log()
            - count * math.log(count / (end_us - begin_us)),
            rise=rise,
        )
        .filter("rise")
    )
    if table.is_empty():
        return None
    best = table.sort(["gain", "t"], descending=[True, False]).row(0, named=True)
    if best["gain"] < MIN_GAIN:
        return None
    near = table.filter(pl.col("gain") >= best["gain"] - LIKELIHOOD_DROP)
    lowest: int = near["t"].min()  # type: ignore[assignment]
    highest: int = near["t"].max()  # type: ignore[assignment]
    earlier: int = inside.filter(inside < lowest).max() or begin_us  # type: ignore[assignment]
    return best["gain"], Onset(
        lo_us=earlier,
        at_us=best["t"],
        hi_us=highest,
        rate_before=best["i"] / (best["t"] - begin_us) * US_PER_S,
        rate_after=(count - best["i"]) / (end_us - best["t"]) * US_PER_S,
        how="change-point",
    )


def find_onset(due_us: pl.Series, begin_us: int | None, end_us: int, latest_us: int | None) -> Onset | None:
    """Return the onset of the demand behind a decision at `end_us`.

    `begin_us` None: from the start of the load; then a load that never evidently rises was high from its first request
    on: that request is the onset, and the interval reaches as far as the arrivals leave open. `begin_us` given (an
    earlier decision): None when demand did not rise since.
    """
    first: int | None = due_us.min()  # type: ignore[assignment]
    if first is None or first >= end_us:
        return None
    start = first if begin_us is None else begin_us
    rise, fall = _rise(due_us, start, end_us, latest_us), _fall(due_us, start, end_us)
    if fall is not None and (rise is None or fall[0] > rise[0]):
        # A burst before a lull blurs or hides the rise after it: no single change of rate describes both.
        rise = _rise(due_us, fall[1], end_us, latest_us) or rise
    if rise is not None or begin_us is not None:
        return None if rise is None else rise[1]
    rate = int(((due_us >= first) & (due_us < end_us)).sum()) / (end_us - first) * US_PER_S
    hi = _latest_unnoticed_us(due_us, first, end_us, latest_us)
    return Onset(lo_us=first, at_us=first, hi_us=hi, rate_before=0.0, rate_after=rate, how="load-start")


MATERIAL_RISE: Final = 1.5
"""Smallest ratio of rates that counts as a rise of demand, where none is evident."""


def _latest_unnoticed_us(due_us: pl.Series, begin_us: int, end_us: int, latest_us: int | None) -> int:
    """Return how long after `begin_us` a rise by `MATERIAL_RISE` may have come and not be evident.

    With rates λ and at least ρλ before and after t, the likelihood's maximum has λ = n / (T₀ + ρ T₁) where the counts
    alone would make the ratio smaller. From the start on, t is open as long as that costs no more than
    `LIKELIHOOD_DROP` against one rate throughout: in dense traffic a short while, in sparse traffic up to the breach.
    """
    times: list[int] = due_us.filter((due_us >= begin_us) & (due_us < end_us)).sort().to_list()
    cap = end_us if latest_us is None else min(latest_us, end_us)
    count, whole = len(times), end_us - begin_us
    for before, at in enumerate(times):
        left, right, after = at - begin_us, end_us - at, count - before
        if left <= 0:
            continue
        if at >= cap:
            break
        cost = 0.0
        if after * left < MATERIAL_RISE * before * right:
            stretched = left + MATERIAL_RISE * right
            cost = count * math.log(stretched / whole) - after * math.log(MATERIAL_RISE)
        if cost > LIKELIHOOD_DROP:
            return at
    return cap


def _fall(due_us: pl.Series, begin_us: int, end_us: int) -> tuple[float, int] | None:
    """Return the gain and the instant of the most likely fall of the rate: a rise, seen backwards in time."""
    found = _rise(begin_us + end_us - due_us, begin_us, end_us)
    return None if found is None else (found[0], begin_us + end_us - found[1].at_us + 1)


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
    inside = due_us.filter((due_us >= onset.at_us) & (due_us < end_us))
    second = ((inside - onset.at_us) // US_PER_S).alias("second")
    counted = dict(pl.DataFrame({"second": second}).group_by("second").len().iter_rows())
    counts = [counted.get(i, 0) for i in range(len(bins))]
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
