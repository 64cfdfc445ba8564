"""Windows of a run in which its latencies cannot be trusted, since the client itself was late. Pure.

The client's lag and the error of its first-token instants rise together (both are the time for which its loop does
not get round to a socket), so a window's lag says whether its latencies mean anything.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import polars as pl

from traces.units import format_duration

PREDECESSOR_UNFINISHED = "predecessor_unfinished"
"""Why a turn was not sent: the run ended while the turn before it was still under way."""

UNOFFERED = ("interrupted", "aborted", "run_time", PREDECESSOR_UNFINISHED)
"""Reasons for not sending that are not the load generator's: ended on purpose, or the server did not answer."""

_MOST_WINDOWS = 50_000
_MOST_INTERVALS = 200
_LATE_SHARE = 0.01


class Untrusted(msgspec.Struct, frozen=True, kw_only=True):
    """`intervals` [{start_us, end_us, why}] in client µs since 1970, and the share of the run that they cover.

    `stalled`: in at least half of the windows the client's own loop stood still.
    """

    intervals: list[dict[str, Any]]
    share: float
    stalled: bool = False


def find_untrusted(requests: pl.LazyFrame, stalls: pl.LazyFrame, *, window_us: int, limit_us: int) -> Untrusted:
    """Return the windows in which the client was too late for its latencies to mean anything.

    That is: over 1 % of requests went out later than `limit_us`, or any was not sent that was to be, or the client's
    loop stood still for longer than the limit.

    `requests` is a Request table. `stalls` has `begin_us`, `end_us` (client µs) and `stall_us`, the loop's worst
    latency between the two. Long runs have wider windows, so that there are at most 50,000 of them.
    """
    due = pl.col("due").dt.epoch("us")
    first, last = requests.select(due.min().alias("first"), due.max().alias("last")).collect().row(0)
    if first is None:
        return Untrusted(intervals=[], share=0.0)
    width = max(window_us, -(-(last - first + 1) // _MOST_WINDOWS))
    late = _late(requests, width, limit_us)
    still = _still(stalls, width, limit_us, first // width, last // width)
    bad = pl.concat([late, still]).group_by("window").agg(pl.col("lag_us", "stall_us", "lost").max()).sort("window")
    found = bad.collect().to_dicts()
    windows = last // width - first // width + 1
    still_too = sum(window["stall_us"] > 0 for window in found)
    return Untrusted(
        intervals=_joined(found, width),
        share=round(len(found) / windows, 6),
        stalled=bool(found) and 2 * still_too >= len(found),
    )


def _late(requests: pl.LazyFrame, width: int, limit_us: int) -> pl.LazyFrame:
    lag = (pl.col("sent") - pl.col("due")).dt.total_microseconds()
    lost = (pl.col("outcome") == "not_sent") & ~pl.col("error_kind").is_in(UNOFFERED).fill_null(value=False)
    return (
        requests.group_by((pl.col("due").dt.epoch("us") // width).alias("window"))
        .agg(
            (lag > limit_us).sum().alias("late"),
            lag.count().alias("sent"),
            lag.max().fill_null(0).alias("lag_us"),
            lost.sum().cast(pl.Int64).alias("lost"),
        )
        .filter((pl.col("late") > _LATE_SHARE * pl.col("sent")) | (pl.col("lost") > 0))
        .select(
            "window",
            pl.when(pl.col("late") > _LATE_SHARE * pl.col("sent")).then("lag_us").otherwise(0).alias("lag_us"),
            pl.lit(0, pl.Int64).alias("stall_us"),
            "lost",
        )
    )


def _still(stalls: pl.LazyFrame, width: int, limit_us: int, first: int, last: int) -> pl.LazyFrame:
    begin, end = pl.col("begin_us") // width, pl.col("end_us") // width
    return (
        stalls.filter(pl.col("stall_us") > limit_us)
        .select(pl.int_ranges(begin, end + 1).alias("window"), pl.lit(0, pl.Int64).alias("lag_us"), "stall_us")
        .explode("window")
        .filter(pl.col("window").is_between(first, last))
        .with_columns(pl.lit(0, pl.Int64).alias("lost"))
    )


def _joined(windows: list[dict[str, int]], width: int) -> list[dict[str, Any]]:
    """Join windows that touch; when there are too many intervals left, also those with the smallest gaps."""
    starts = [window["window"] for window in windows]
    gaps = sorted((b - a for a, b in pairwise(starts) if b - a > 1), reverse=True)
    nearest = gaps[_MOST_INTERVALS - 1] if len(gaps) >= _MOST_INTERVALS else 1
    groups: list[list[dict[str, int]]] = []
    for window in windows:
        if groups and window["window"] - groups[-1][-1]["window"] <= nearest:
            groups[-1].append(window)
        else:
            groups.append([window])
    return [
        {
            "start_us": group[0]["window"] * width,
            "end_us": (group[-1]["window"] + 1) * width,
            "why": _why(group),
        }
        for group in groups
    ]


def _why(group: list[dict[str, int]]) -> str:
    lag, stall = max(window["lag_us"] for window in group), max(window["stall_us"] for window in group)
    lost = sum(window["lost"] for window in group)
    parts = []
    if lag:
        parts.append(f"requests went out up to {format_duration(lag)} late")
    if stall:
        parts.append(f"the client's loop stood still for {format_duration(stall)}")
    if lost:
        parts.append(f"{lost} not sent")
    return ", ".join(parts)
