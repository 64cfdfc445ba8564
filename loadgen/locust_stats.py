"""Locust's own statistics, made fit for long runs: finer percentiles, and histories that do not grow for ever."""

from __future__ import annotations

from typing import Any

import locust.stats

PRUNE_S = 10.0
"""How often to prune."""

_KEEP_S = 60  # its "current" rates look back 12 s
_HISTORY_POINTS = 1000


def three_digits(response_time_ms: float) -> float:
    """Return a response time rounded to three significant digits; Locust's own buckets have two at best.

    >>> [three_digits(ms) for ms in (0.1234, 4.567, 45.67, 1049, 14_999)]
    [0.123, 4.57, 45.7, 1050, 15000]
    """
    if response_time_ms < 1:
        return round(response_time_ms, 3)
    if response_time_ms < 10:
        return round(response_time_ms, 2)
    if response_time_ms < 100:
        return round(response_time_ms, 1)
    digits = len(str(int(response_time_ms))) - 3
    return int(round(response_time_ms, -digits))


def install() -> None:
    """Make Locust count response times in buckets of three significant digits."""
    locust.stats.bucket_response_time = three_digits


def prune(stats: Any) -> None:
    """Cut what Locust keeps per second to the last minute, and thin its chart's points to at most 1,000.

    Every other point is dropped when there are too many, so that the report's chart still spans the whole run.
    """
    for entry in [stats.total, *stats.entries.values()]:
        for per_second in (entry.num_reqs_per_sec, entry.num_fail_per_sec):
            if len(per_second) > 2 * _KEEP_S:
                newest = max(per_second)
                for second in [second for second in per_second if second <= newest - _KEEP_S]:
                    del per_second[second]
    if len(stats.history) > _HISTORY_POINTS:
        del stats.history[1::2]
