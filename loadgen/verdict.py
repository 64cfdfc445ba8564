"""Whether a run can be trusted: how well the load generator held its own schedule. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from loadgen.scenario import VerdictSection
from loadgen.windows import UNOFFERED, Untrusted

VALID, DEGRADED, INVALID = "VALID", "DEGRADED", "INVALID"

_BUSY_SHARE, _FULL_SHARE = 0.05, 0.8
_MORE_CORES = "add workers with a core each (--workers N), or lower the rate or the time scale"


class ClientState(msgspec.Struct, frozen=True, kw_only=True):
    """How what sent the load fared: its loop's latency, the connections opened when due, and the processor.

    `cpu_share` and `cpu_wait_share`: shares of the run in which the sending thread ran, and waited for a processor.
    `resent` counts the requests sent again on a new connection, since the idle one had been closed unread.
    """

    hub_latency_p99_us: int | None = None
    resent: int = 0
    connect_p99_us: int | None = None
    cpu_share: float | None = None
    cpu_wait_share: float | None = None


class Fidelity(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's verdict is formed from. Lags in client ms; `connect_p99_ms` is of connections opened when due.

    `rows_killed` may have been sent or not. `cpu_share` and `cpu_wait_share`: shares of the run in which the sending
    thread ran, and waited for a processor. `clock_error_ms` bounds how far workers' clocks were off the master's.
    """

    rows_planned: int
    rows_sent: int
    not_sent: dict[str, int]
    lag_ms: dict[str, float | None]
    offered_vs_delivered: dict[str, int | None]
    untrusted: Untrusted
    hub_latency_p99_ms: float | None
    connect_p99_ms: float | None
    cpu_share: float | None = None
    cpu_wait_share: float | None = None
    warm_up_rows: int = 0
    rows_killed: int = 0
    aborted: str | None = None
    max_in_flight: int = 0
    broken_workers: list[str] = []
    clock_error_ms: float = 0.0
    time_scale: float


def verdict(fidelity: Fidelity, limits: VerdictSection) -> dict[str, Any]:
    """Return the verdict: `status` VALID, DEGRADED or INVALID, the `reasons` with a remedy each, and the figures.

    Rows that a stop on purpose left unsent were not due to be sent any more: an interruption degrades a run, since it
    is not the whole trace, but does not make what was measured before invalid.
    """
    judged = [
        _judge_workers(fidelity),
        _judge_lag(fidelity, limits),
        _judge_windows(fidelity, limits),
        _judge_processor(fidelity, limits),
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
        **fidelity.lag_ms,
        "clock_error_ms": fidelity.clock_error_ms,
        "rows_planned": fidelity.rows_planned,
        "rows_sent": fidelity.rows_sent,
        "warm_up_rows": fidelity.warm_up_rows,
        "aborted": fidelity.aborted,
        "not_sent": fidelity.not_sent,
        "offered_vs_delivered": fidelity.offered_vs_delivered,
        "untrusted": fidelity.untrusted.intervals,
        "untrusted_share": fidelity.untrusted.share,
        "hub_latency_p99_ms": fidelity.hub_latency_p99_ms,
        "connect_p99_ms": fidelity.connect_p99_ms,
        "cpu_share": fidelity.cpu_share,
        "cpu_wait_share": fidelity.cpu_wait_share,
        "time_scale": fidelity.time_scale,
        "clock": "client",
    }


def _judge_workers(fidelity: Fidelity) -> tuple[str, str] | None:
    if not fidelity.broken_workers:
        return None
    return INVALID, "not every worker did its share: " + "; ".join(fidelity.broken_workers)


def _judge_lag(fidelity: Fidelity, limits: VerdictSection) -> tuple[str, str] | None:
    """Judge the lag against the schedule that is common to all workers: their clocks' error adds to it."""
    own_ms, error_ms = fidelity.lag_ms["lag_p99_ms"], fidelity.clock_error_ms
    if own_ms is None or own_ms + error_ms <= limits.degraded_lag_p99_ms:
        return None
    invalid = own_ms + error_ms > limits.invalid_lag_p99_ms
    limit = limits.invalid_lag_p99_ms if invalid else limits.degraded_lag_p99_ms
    level, widened = INVALID if invalid else DEGRADED, ""
    if error_ms:
        widened = f" with the error of the workers' clocks, {error_ms:.1f} ms,"
    if own_ms <= limit < own_ms + error_ms:
        remedy = "bring master and workers closer together, or raise the limit if their common rhythm matters less"
    else:
        remedy = _remedy(own_ms, fidelity)
    return level, f"p99 lag {own_ms:.1f} ms{widened} exceeds {limit:g} ms; {remedy}"


def _judge_windows(fidelity: Fidelity, limits: VerdictSection) -> tuple[str, str] | None:
    share = fidelity.untrusted.share
    if share <= limits.degraded_untrusted_share:
        return None
    return (
        INVALID if share > limits.invalid_untrusted_share else DEGRADED,
        f"latencies cannot be trusted in {share:.1%} of the run's windows; "
        + _remedy(limits.invalid_lag_p99_ms, fidelity, stalled=fidelity.untrusted.stalled),
    )


def _judge_processor(fidelity: Fidelity, limits: VerdictSection) -> tuple[str, str] | None:
    ran = fidelity.cpu_share
    if ran is None or ran <= limits.degraded_cpu_share:
        return None
    return DEGRADED, f"the load generator used its core {ran:.0%} of the time: it is saturated; {_MORE_CORES}"


def _remedy(p99_ms: float, fidelity: Fidelity, *, stalled: bool = False) -> str:
    hub, connect = fidelity.hub_latency_p99_ms or 0.0, fidelity.connect_p99_ms or 0.0
    waited, ran = fidelity.cpu_wait_share or 0.0, fidelity.cpu_share or 0.0
    if fidelity.max_in_flight and hub < p99_ms / 4:
        return f"requests waited for the cap of {fidelity.max_in_flight} in flight: raise it, or leave it out"
    if waited > _BUSY_SHARE:
        return (
            f"other work on this machine kept the load generator waiting for a processor {waited:.0%} of the time: "
            "give it a core of its own"
        )
    if ran > _FULL_SHARE:
        return f"the load generator used its core {ran:.0%} of the time: {_MORE_CORES}"
    if stalled or hub >= p99_ms / 4:
        return f"this machine was busy: give the load generator a core of its own, or {_MORE_CORES}"
    if connect >= p99_ms / 4:
        return (
            f"opening connections took up to {connect:.0f} ms (p99): check the path to the target and its accept queue"
        )
    return (
        f"more was due at once than one core can send, or it was prepared too late: {_MORE_CORES}, "
        "or lengthen replay.lead"
    )


def _judge_not_sent(fidelity: Fidelity, limits: VerdictSection) -> tuple[str, str] | None:
    lost = {reason: count for reason, count in fidelity.not_sent.items() if reason not in UNOFFERED}
    share = sum(lost.values()) / fidelity.rows_planned if fidelity.rows_planned else 0.0
    if share <= limits.degraded_not_sent_share:
        return None
    level = INVALID if share > limits.invalid_not_sent_share else DEGRADED
    causes = ", ".join(f"{reason}: {count}" for reason, count in sorted(lost.items()))
    return level, f"{share:.2%} of the rows were not sent ({causes}); raise max_in_flight or leave it at 0"


def _judge_stop(fidelity: Fidelity) -> tuple[str, str] | None:
    count = fidelity.not_sent.get("interrupted", 0) + fidelity.not_sent.get("aborted", 0)
    if fidelity.aborted is not None:
        return DEGRADED, f"aborted: {fidelity.aborted}; {count} rows were no longer sent"
    if not count:
        return None
    return DEGRADED, f"stopped before its end: {count} rows were no longer sent; go on with `ramptrace replay --resume`"


def _judge_undelivered(fidelity: Fidelity) -> tuple[str, str] | None:
    """Judge attempts of which no byte got onto a connection: the schedule was held, the load was not delivered."""
    known = fidelity.rows_sent + sum(fidelity.not_sent.values()) + fidelity.rows_killed
    count = fidelity.rows_planned - known
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
