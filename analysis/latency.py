"""What a user felt: latencies from when a request was due and from when it was sent, by stretch of the scale-out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from traces.schema import OUTCOMES
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


_INT32: Final = 2**31 - 1


def timings(requests: pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """Return one row of numbers per request (endpoint µs), all that latencies are made of; in no particular order.

    `due_us`, `lag_us` (sent − due), `first_us` (first token − sent), `done_us` (done − sent), `outcome`, `tokens`
    (output tokens that came, or else were asked for). Null: did not happen. 25 bytes per request, unless one took
    longer than 2³¹ µs.
    """
    lazy = requests.lazy()
    ends = pl.max_horizontal("first_token", "done", "sent")
    longest = lazy.select((ends - pl.col("due")).dt.total_microseconds().abs().max()).collect(engine="streaming").item()
    span = pl.Int32 if (longest or 0) < _INT32 else pl.Int64

    def us(since: str, until: str) -> pl.Expr:
        return (pl.col(until) - pl.col(since)).dt.total_microseconds().cast(span)

    return lazy.select(
        pl.col("due").dt.epoch("us").alias("due_us"),
        us("due", "sent").alias("lag_us"),
        us("sent", "first_token").alias("first_us"),
        us("sent", "done").alias("done_us"),
        pl.col("outcome").cast(pl.Enum(OUTCOMES)),
        pl.coalesce("output_tokens", "planned_output_tokens").cast(pl.Int32, strict=False).alias("tokens"),
    ).collect(engine="streaming")


def measure_us(frame: pl.DataFrame, name: str) -> pl.Series:
    """Return one measure of `MEASURES` (µs) per row of `timings`."""
    since, until = MEASURES[name]
    column = frame["first_us" if until == "first_token" else "done_us"]
    return column if since == "sent" else column + frame["lag_us"]


def ranked(values: pl.Series, quantiles: tuple[float, ...]) -> list[int | None]:
    """Return the values (µs, nulls left out) at `quantiles` by `RANK`, and the greatest; None without values.

    >>> ranked(pl.Series([30, 10, 20, None]), (0.5, 0.9))
    [20, 30, 30]
    """
    known = values.drop_nulls().to_numpy()
    if not len(known):
        return [None] * (len(quantiles) + 1)
    places = [max(math.ceil(q * len(known)) - 1, 0) for q in quantiles] + [len(known) - 1]
    # Selecting a few ranks takes a fraction of the time and memory that sorting all would.
    return [int(v) for v in np.partition(known, sorted(set(places)))[places]]


def quantiles(frame: pl.DataFrame, inside: pl.Series | None = None) -> dict[str, dict[str, float | int | None]]:
    """Return, per measure, the number of values and their quantiles and maximum in seconds (None without values).

    `frame` is of `timings`; requests that did not end well, or are not `inside` (a mask), have no latency.
    """
    good = frame["outcome"] == "ok" if inside is None else (frame["outcome"] == "ok") & inside
    result: dict[str, dict[str, float | int | None]] = {}
    for name in MEASURES:
        column = measure_us(frame, name).filter(good)
        *values, longest = ranked(column, QUANTILES)
        row: dict[str, float | int | None] = {"n": len(column) - column.null_count()}
        row |= {f"p{round(q * 100)}_s": _seconds(value) for q, value in zip(QUANTILES, values, strict=True)}
        row["max_s"] = _seconds(longest)
        result[name] = row
    return result


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / US_PER_S


def by_window(frame: pl.DataFrame, windows: Mapping[str, tuple[int | None, int | None]]) -> dict[str, Any]:
    """Return `quantiles` and outcomes of `timings` for each named window [begin, end) of due instants (None: open)."""
    result: dict[str, Any] = {}
    for name, window in windows.items():
        inside = within(frame["due_us"], *window)
        result[name] = {"outcomes": outcomes(frame["outcome"].filter(inside)), **quantiles(frame, inside)}
    return result


def within(due_us: pl.Series, begin_us: int | None, end_us: int | None) -> pl.Series:
    """Return which instants lie in [begin, end), as a mask; None: open."""
    mask = pl.repeat(True, len(due_us), eager=True) if begin_us is None else due_us >= begin_us
    return mask if end_us is None else mask & (due_us < end_us)


def outcomes(column: pl.Series) -> dict[str, int]:
    """Return how many requests ended in which way, most frequent first."""
    counts = np.bincount(column.to_physical().to_numpy(), minlength=len(OUTCOMES)).tolist()
    found = ((name, n) for name, n in zip(OUTCOMES, counts, strict=True) if n)
    return dict(sorted(found, key=lambda item: (-item[1], item[0])))


def errors(requests: pl.LazyFrame) -> list[dict[str, Any]]:
    """Return failures by outcome, status, kind and name of the error's class, most frequent first: at most ten rows."""
    failed = requests.filter(pl.col("outcome") != "ok")
    text = pl.col("error_text")
    name = pl.when(text.str.contains(_CLASS_NAME)).then(text).alias("error_class")
    keys = [pl.col("outcome").cast(pl.String), pl.col("http_status"), pl.col("error_kind"), name]
    order = ["n", "outcome", "http_status", "error_kind", "error_class"]
    counted = failed.group_by(keys).len("n").sort(order, descending=[True, *[False] * 4]).head(10)
    return counted.collect(engine="streaming").to_dicts()


def over_time(frame: pl.DataFrame, bin_us: int) -> pl.DataFrame:
    """Return p50 and p95 of the time to first token per bin of due instants, from due and from sent, in seconds."""
    names = ("ttft_from_due", "ttft_from_sent")
    good = frame["outcome"] == "ok"
    start = (frame["due_us"] // bin_us * bin_us).alias("start_us")
    columns = [start, *(measure_us(frame, name).alias(name) for name in names)]
    return (
        pl.DataFrame([column.filter(good) for column in columns])
        .group_by("start_us")
        .agg(
            (pl.col(name).quantile(q, RANK) / US_PER_S).alias(f"{name}_p{round(q * 100)}")
            for name in names
            for q in (0.5, 0.95)
        )
        .sort("start_us")
    )
