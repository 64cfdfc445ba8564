"""What a user felt: latencies from when a request was due and from when it was sent, by stretch of the scale-out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from traces.units import US_PER_S

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)

RANK: Final = "equiprobable"
"""How a quantile is read, everywhere: a value that occurred, the smallest with at least that share at or below it."""

_CLASS_NAME: Final = r"^[A-Za-z][A-Za-z0-9_.]{0,63}$"
"""What an error's text may be to be shown: the bare name of its class. Anything longer may quote content."""

MEASURES: Final = {
    "ttft_from_due": ("due", "first_token"),
    "ttft_from_sent": ("sent", "first_token"),
    "end_to_end_from_due": ("due", "done"),
    "end_to_end_from_sent": ("sent", "done"),
}
"""Time to first token and end to end. From due it holds what a late client or a queue before it added; from sent it
is what the endpoint did."""


def with_latencies(requests: pl.DataFrame) -> pl.DataFrame:
    """Return requests that ended well, with one column per measure in seconds (endpoint time), null where unknown."""
    return requests.filter(pl.col("outcome") == "ok").with_columns(
        ((pl.col(end) - pl.col(begin)).dt.total_microseconds() / US_PER_S).alias(name)
        for name, (begin, end) in MEASURES.items()
    )


def quantiles(requests: pl.DataFrame) -> dict[str, dict[str, float | int | None]]:
    """Return, per measure, the number of values and their quantiles and maximum in seconds (None without values)."""
    frame = with_latencies(requests)
    result: dict[str, dict[str, float | int | None]] = {}
    for name in MEASURES:
        column = frame[name].drop_nulls()
        row: dict[str, float | int | None] = {"n": len(column)}
        for q in QUANTILES:
            row[f"p{round(q * 100)}_s"] = _rounded(column.quantile(q, RANK))
        row["max_s"] = _rounded(column.max())
        result[name] = row
    return result


def _rounded(value: Any) -> float | None:
    return None if value is None else round(float(value), 6)


def by_window(requests: pl.DataFrame, windows: Mapping[str, tuple[int | None, int | None]]) -> dict[str, Any]:
    """Return `quantiles` and outcomes for each named window [begin, end) of due instants (µs; None: open)."""
    due = pl.col("due").dt.epoch("us")
    result: dict[str, Any] = {}
    for name, (begin, end) in windows.items():
        inside = requests
        if begin is not None:
            inside = inside.filter(due >= begin)
        if end is not None:
            inside = inside.filter(due < end)
        result[name] = {"outcomes": outcomes(inside), **quantiles(inside)}
    return result


def outcomes(requests: pl.DataFrame) -> dict[str, int]:
    """Return how many requests ended in which way, most frequent first."""
    counted = (
        requests.group_by(pl.col("outcome").cast(pl.String)).len().sort(["len", "outcome"], descending=[True, False])
    )
    return dict(counted.iter_rows())


def errors(requests: pl.DataFrame) -> list[dict[str, Any]]:
    """Return failures by outcome, status, kind and name of the error's class, most frequent first: at most ten rows."""
    failed = requests.filter(pl.col("outcome") != "ok")
    text = pl.col("error_text")
    name = pl.when(text.str.contains(_CLASS_NAME)).then(text).alias("error_class")
    keys = [pl.col("outcome").cast(pl.String), pl.col("http_status"), pl.col("error_kind"), name]
    order = ["n", "outcome", "http_status", "error_kind", "error_class"]
    return failed.group_by(keys).len("n").sort(order, descending=[True, *[False] * 4]).head(10).to_dicts()


def over_time(requests: pl.DataFrame, bin_us: int) -> pl.DataFrame:
    """Return p50 and p95 of the time to first token per bin of due instants, from due and from sent, in seconds."""
    start = (pl.col("due").dt.epoch("us") // bin_us * bin_us).alias("start_us")
    names = ("ttft_from_due", "ttft_from_sent")
    return (
        with_latencies(requests)
        .group_by(start)
        .agg(pl.col(name).quantile(q, RANK).alias(f"{name}_p{round(q * 100)}") for name in names for q in (0.5, 0.95))
        .sort("start_us")
    )
