"""Whether a run can be trusted: how well the load generator held its own schedule. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl

from loadgen.scenario import VerdictSection

VALID, DEGRADED, INVALID = "VALID", "DEGRADED", "INVALID"

PREDECESSOR_UNFINISHED = "predecessor_unfinished"
"""Why a turn was not sent: the run ended while the turn before it was still under way."""

NOT_OFFERED = ("interrupted", PREDECESSOR_UNFINISHED)
"""Reasons for not sending that are not the load generator's: the user stopped, or the server did not answer."""

_BUSY_SHARE, _FULL_SHARE = 0.05, 0.8

_QUANTILES = {"lag_p50_ms": 0.5, "lag_p99_ms": 0.99, "lag_p999_ms": 0.999, "lag_max_ms": 1.0}


class Fidelity(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's verdict is formed from. Lags in client ms; `connect_p99_ms` is of connections opened when due.

    `cpu_share` and `cpu_wait_share`: shares of the run in which the sending thread ran, and waited for a processor.
    """

    rows_planned: int
    rows_sent: int
    not_sent: dict[str, int]
    lags_ms: pl.Series
    max_abs_error_per_s: int
    worst_second: int | None
    hub_latency_p99_ms: float | None
    connect_p99_ms: float | None
    cpu_share: float | None = None
    cpu_wait_share: float | None = None
    time_scale: float


def verdict(fidelity: Fidelity, limits: VerdictSection) -> dict[str, Any]:
    """Return the verdict: `status` VALID, DEGRADED or INVALID, the `reasons` with a remedy each, and the figures.

    Rows that a stop by the user left unsent were not due to be sent any more: they degrade a run, since it is not
    the whole trace, but do not make what was measured before invalid.
    """
    lag = {name: _quantile(fidelity.lags_ms, q) for name, q in _QUANTILES.items()}
    judged = [
        _judge_lag(lag["lag_p99_ms"], fidelity, limits),
        _judge_not_sent(fidelity, limits),
        _judge_stop(fidelity),
        _judge_undelivered(fidelity),
        _judge_account(fidelity),
    ]
    found = [item for item in judged if item is not None]
    levels = {level for level, _ in found}
    return {
        "status": INVALID if INVALID in levels else DEGRADED if found else VALID,
        "reasons": [reason for _, reason in found],
        **lag,
        "rows_planned": fidelity.rows_planned,
        "rows_sent": fidelity.rows_sent,
        "not_sent": fidelity.not_sent,
        "offered_vs_delivered": {
            "max_abs_error_per_s": fidelity.max_abs_error_per_s,
            "worst_second": fidelity.worst_second,
        },
        "hub_latency_p99_ms": fidelity.hub_latency_p99_ms,
        "connect_p99_ms": fidelity.connect_p99_ms,
        "cpu_share": fidelity.cpu_share,
        "cpu_wait_share": fidelity.cpu_wait_share,
        "time_scale": fidelity.time_scale,
        "clock": "client",
    }


def _quantile(lags_ms: pl.Series, q: float) -> float | None:
    value = lags_ms.quantile(q, interpolation="higher")
    return None if value is None else round(value, 3)


def _judge_lag(p99_ms: float | None, fidelity: Fidelity, limits: VerdictSection) -> tuple[str, str] | None:
    if p99_ms is None or p99_ms <= limits.degraded_lag_p99_ms:
        return None
    invalid = p99_ms > limits.invalid_lag_p99_ms
    limit = limits.invalid_lag_p99_ms if invalid else limits.degraded_lag_p99_ms
    return (
        INVALID if invalid else DEGRADED,
        f"99 % of requests were sent at most {p99_ms:.1f} ms late, the limit is {limit:g} ms; "
        + _remedy(p99_ms, fidelity),
    )


def _remedy(p99_ms: float, fidelity: Fidelity) -> str:
    hub, connect = fidelity.hub_latency_p99_ms or 0.0, fidelity.connect_p99_ms or 0.0
    waited, ran = fidelity.cpu_wait_share or 0.0, fidelity.cpu_share or 0.0
    if waited > _BUSY_SHARE:
        return (
            f"other work on this machine kept the load generator waiting for a processor {waited:.0%} of the time: "
            "give it a core of its own"
        )
    if ran > _FULL_SHARE:
        return f"the load generator used its core {ran:.0%} of the time: lower the rate or the time scale"
    if hub >= p99_ms / 4:
        return "this machine was busy: give the load generator a core of its own, or lower the rate or the time scale"
    if connect >= p99_ms / 4:
        return (
            f"opening connections took up to {connect:.0f} ms (p99): check the path to the target and its accept queue"
        )
    return "requests waited for max_in_flight or were prepared too late: raise the cap, or lengthen replay.lead"


def _judge_not_sent(fidelity: Fidelity, limits: VerdictSection) -> tuple[str, str] | None:
    lost = {reason: count for reason, count in fidelity.not_sent.items() if reason not in NOT_OFFERED}
    share = sum(lost.values()) / fidelity.rows_planned if fidelity.rows_planned else 0.0
    if share <= limits.degraded_not_sent_share:
        return None
    level = INVALID if share > limits.invalid_not_sent_share else DEGRADED
    causes = ", ".join(f"{reason}: {count}" for reason, count in sorted(lost.items()))
    return level, f"{share:.2%} of the rows were not sent ({causes}); raise max_in_flight or leave it at 0"


def _judge_stop(fidelity: Fidelity) -> tuple[str, str] | None:
    count = fidelity.not_sent.get("interrupted", 0)
    if not count:
        return None
    return DEGRADED, f"stopped before its end: {count} rows were no longer sent; run it again for the whole trace"


def _judge_undelivered(fidelity: Fidelity) -> tuple[str, str] | None:
    """Judge attempts of which no byte got onto a connection: the schedule was held, the load was not delivered."""
    count = fidelity.rows_planned - fidelity.rows_sent - sum(fidelity.not_sent.values())
    if count <= 0 or not fidelity.rows_sent:
        return None
    reason = (
        f"{count} of {fidelity.rows_planned} requests never reached the target: no connection could be made; "
        "lag and latency are of the others only, check that it was up"
    )
    return DEGRADED, reason


def _judge_account(fidelity: Fidelity) -> tuple[str, str] | None:
    if not fidelity.rows_sent:
        return INVALID, "nothing was sent; check the target and the window"
    return None
