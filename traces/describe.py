"""What a trace looks like, in figures. Pure: a trace frame in, figures out, in one pass and bounded memory.

Bounded by what is distinct (seconds, lengths, conversations, prefix blocks), not by rows. Concurrency alone holds two
columns in memory, and only of rows whose latency is recorded.
"""

from __future__ import annotations

from typing import Final

import msgspec
import polars as pl

from traces.batches import in_batches
from traces.concurrency import Concurrency, concurrency
from traces.counting import Counts, Moments
from traces.dispersion import BinCounts, idc_by_window
from traces.prefix import PrefixCounter, PrefixReuse
from traces.units import US_PER_S

CHART_BINS: Final = 60
_CHART_BINS_US: Final = tuple(
    round(seconds * US_PER_S)
    for seconds in (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
)
_DAY_US: Final = 86_400 * US_PER_S


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Arrivals per second in successive bins of `bin_us`, from the trace's start; the last bin may be cut short."""

    bin_us: int
    per_s: list[float]


class Sessions(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations: how many, how many rows are in one, how many have several rows, and rows per conversation."""

    sessions: int
    rows: int
    of_several_rows: int
    rows_per_session: dict[str, float | None]


class Description(msgspec.Struct, kw_only=True):
    """Figures of a trace; null where rows are too few to tell, or where the recording does not say.

    `mean_rate_per_s` is one over the mean gap between arrivals; peak rates are of the fullest bin, bins counted from
    the trace's start; `interarrival_cv` is the gaps' standard deviation over their mean (1 for Poisson arrivals);
    `dispersion` is the index of dispersion for counts by window length (`traces.dispersion`). Histograms list
    (first value, last value, count) in bins that double. Figures of gaps and lengths: mean, min, p50, p90, p99 and max
    of those that are known; quantiles are values that occur (the least that is not below the stated share of rows).
    """

    rows: int
    span_us: int
    mean_rate_per_s: float | None
    peak_rate_1s_per_s: float | None
    peak_rate_10s_per_s: float | None
    interarrival_cv: float | None
    interarrival_us: dict[str, float | None]
    interarrival_histogram_us: list[tuple[int, int, int]]
    dispersion: dict[str, float | None]
    rates: Rates
    input_tokens: dict[str, float | None]
    output_tokens: dict[str, float | None]
    input_tokens_histogram: list[tuple[int, int, int]]
    output_tokens_histogram: list[tuple[int, int, int]]
    concurrency: Concurrency | None
    prefix_reuse: PrefixReuse | None
    sessions: Sessions | None


def describe(frame: pl.LazyFrame, chart_bins: int = CHART_BINS) -> Description:
    """Return the figures of a trace frame that is in order of arrival; `chart_bins` is the most of a time series."""
    gaps, gap_counts = Moments(), Counts()
    bins, prefixes = BinCounts(), PrefixCounter()
    inputs, outputs, sessions = Counts(), Counts(), Counts(pl.String)
    rows, first_us = 0, 0
    columns: list[str] = []
    latencies: list[pl.DataFrame] = []
    for batch in in_batches(frame):
        if not rows:
            first_us, columns = batch["arrival_us"][0], batch.columns
        rows += batch.height
        gap_us = batch["gap_us"].drop_nulls()
        gaps.add(gap_us)
        gap_counts.add(_three_digits(gap_us))
        bins.add(batch["arrival_us"])
        inputs.add(batch["input_tokens"].drop_nulls())
        outputs.add(batch["output_tokens"].drop_nulls())
        if "session_id" in columns:
            sessions.add(batch["session_id"].drop_nulls())
        if "prefix_blocks" in columns:
            prefixes.add(batch)
        if "source_latency_us" in columns:
            latencies.append(batch.select("arrival_us", "source_latency_us").drop_nulls())
    span_us = round(gaps.count * gaps.mean)
    last_us = first_us + span_us
    bin_us = chart_bin_us(last_us, chart_bins)
    return Description(
        rows=rows,
        span_us=span_us,
        mean_rate_per_s=US_PER_S / gaps.mean if gaps.mean else None,
        peak_rate_1s_per_s=_peak_rate_per_s(bins, US_PER_S),
        peak_rate_10s_per_s=_peak_rate_per_s(bins, 10 * US_PER_S),
        interarrival_cv=gaps.standard_deviation() / gaps.mean if gaps.mean and gaps.count > 1 else None,
        interarrival_us={**gap_counts.figures(), "mean": gaps.mean if gaps.count else None},
        interarrival_histogram_us=gap_counts.doubling(),
        dispersion={f"{window_us / US_PER_S:g}s": value for window_us, value in idc_by_window(bins, last_us).items()},
        rates=rates_of(bins, last_us, bin_us),
        input_tokens=inputs.figures(),
        output_tokens=outputs.figures(),
        input_tokens_histogram=inputs.doubling(),
        output_tokens_histogram=outputs.doubling(),
        concurrency=concurrency(pl.concat(latencies), rows, last_us, bin_us) if latencies else None,
        prefix_reuse=prefixes.result(),
        sessions=_sessions(sessions),
    )


def chart_bin_us(span_us: int, most: int = CHART_BINS) -> int:
    """Return the shortest round bin that covers `[0, span_us]` with at most `most` bins.

    >>> chart_bin_us(60_000_000) / 1e6, chart_bin_us(3_600_000_000) / 1e6
    (2.0, 120.0)
    """
    for bin_us in _CHART_BINS_US:
        if span_us // bin_us < most:
            return bin_us
    return _DAY_US * (span_us // (_DAY_US * most) + 1)


def rates_of(bins: BinCounts, span_us: int, bin_us: int) -> Rates:
    """Return the rate per bin over `[0, span_us]`, empty bins included; `bin_us` is a multiple of the base bin."""
    counts = dict(bins.table(bin_us).iter_rows())
    return Rates(bin_us=bin_us, per_s=[counts.get(i, 0) * US_PER_S / bin_us for i in range(span_us // bin_us + 1)])


def _three_digits(gaps_us: pl.Series) -> pl.Series:
    """Round to three significant digits: distinct gaps to count are then few, and quantiles right to half a percent."""
    return gaps_us.cast(pl.Float64).round_sig_figs(3).cast(pl.Int64)


def _peak_rate_per_s(bins: BinCounts, bin_us: int) -> float | None:
    counts = bins.table(bin_us)["count"]
    return None if counts.is_empty() else max(counts.to_list()) * US_PER_S / bin_us


def _sessions(counts: Counts) -> Sessions | None:
    if counts.table.is_empty():
        return None
    per_session = Counts()
    per_session.add(counts.table["count"])
    return Sessions(
        sessions=counts.table.height,
        rows=int(counts.table["count"].sum()),
        of_several_rows=counts.table.filter(pl.col("count") > 1).height,
        rows_per_session=per_session.figures(),
    )
