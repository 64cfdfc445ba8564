"""What a trace looks like, in figures. Pure: a trace frame in, figures out."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import polars as pl

from traces.units import US_PER_S

_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class Description(msgspec.Struct, kw_only=True):
    """Figures of a trace; null where rows are too few to tell.

    `mean_rate_per_s` is one over the mean gap between arrivals; peak rates are of the fullest bin, bins counted from
    the first arrival; `interarrival_cv` is the gaps' standard deviation over their mean (1 for Poisson arrivals).
    Token figures: min, mean, p50, p90, p99 and max of the lengths that are known.
    """

    rows: int
    span_us: int
    mean_rate_per_s: float | None
    peak_rate_1s_per_s: float | None
    peak_rate_10s_per_s: float | None
    interarrival_cv: float | None
    input_tokens: dict[str, float | None]
    output_tokens: dict[str, float | None]


def describe(frame: pl.LazyFrame) -> Description:
    """Return the figures of a trace frame that is in order of arrival."""
    gaps = pl.col("arrival_us").diff()
    figures: dict[str, Any] = (
        frame.select(
            pl.len().alias("rows"),
            (pl.col("arrival_us").max() - pl.col("arrival_us").min()).alias("span_us"),
            (gaps.std() / gaps.mean()).alias("cv"),
            *_token_figures("input_tokens"),
            *_token_figures("output_tokens"),
        )
        .collect(engine="streaming")
        .row(0, named=True)
    )
    rows, span_us = figures["rows"], figures["span_us"] or 0
    peak_1s, peak_10s = peak_rates_per_s(frame, (1, 10))
    return Description(
        rows=rows,
        span_us=span_us,
        mean_rate_per_s=(rows - 1) * US_PER_S / span_us if span_us else None,
        peak_rate_1s_per_s=peak_1s,
        peak_rate_10s_per_s=peak_10s,
        interarrival_cv=figures["cv"] if span_us else None,
        input_tokens=_tokens_of(figures, "input_tokens"),
        output_tokens=_tokens_of(figures, "output_tokens"),
    )


def peak_rates_per_s(frame: pl.LazyFrame, bins_s: tuple[int, ...]) -> list[float | None]:
    """Return arrivals per second in the fullest bin, for each bin length (whole seconds); None for no rows.

    >>> peak_rates_per_s(pl.LazyFrame({"arrival_us": [0, 900_000, 1_000_000]}), (1, 10))
    [2.0, 0.3]
    """
    second = pl.col("arrival_us") // US_PER_S
    # One pass over the trace: longer bins are sums of whole seconds.
    per_second = frame.group_by(second.alias("second")).len().collect(engine="streaming")
    return [_fullest(per_second, bin_s) for bin_s in bins_s]


def _fullest(per_second: pl.DataFrame, bin_s: int) -> float | None:
    counts = per_second.group_by(pl.col("second") // bin_s).agg(pl.col("len").sum())["len"]
    return None if counts.is_empty() else max(counts.to_list()) / bin_s


def _token_figures(column: str) -> list[pl.Expr]:
    tokens = pl.col(column)
    named = {"min": tokens.min(), "mean": tokens.mean(), "max": tokens.max()}
    named |= {name: tokens.quantile(share, "linear") for name, share in _QUANTILES.items()}
    return [figure.alias(f"{column}.{name}") for name, figure in named.items()]


def _tokens_of(figures: dict[str, Any], column: str) -> dict[str, float | None]:
    return {name: figures[f"{column}.{name}"] for name in ("min", "mean", *_QUANTILES, "max")}
