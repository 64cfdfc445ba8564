"""How long an alarm over metric periods takes by its own rules, whatever the endpoint: the floor of detection."""

from __future__ import annotations


def window_part(period: int, datapoints: int, phase: int, *, partial_breaches: bool) -> int:
    """Return the time from the onset until the last needed period has closed; lags and evaluation come on top.

    `phase`: how long before the onset its period had begun. The period of the onset breaches itself when
    base + (burst − base) (period − phase) / period exceeds the threshold (average statistic); then it counts as the
    first of the `datapoints`, else the one after it does.

    >>> window_part(60, 3, 10, partial_breaches=False), window_part(60, 3, 10, partial_breaches=True)
    (230, 170)
    >>> window_part(60, 3, 59, partial_breaches=False), window_part(60, 3, 59, partial_breaches=True)
    (181, 121)
    >>> window_part(10, 3, 9, partial_breaches=False), window_part(10, 3, 9, partial_breaches=True)
    (31, 21)
    """
    if partial_breaches:
        return datapoints * period - phase % period
    return (period - phase) % period + datapoints * period


def window_range(period: int, datapoints: int) -> tuple[int, int]:
    """Return the least and the greatest window part over all phases, the onset's own period breaching or not.

    >>> window_range(60, 3), window_range(10, 3)
    ((120, 240), (20, 40))
    """
    return (datapoints - 1) * period, (datapoints + 1) * period
