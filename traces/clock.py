"""Clocks: the client's wall clock on a monotonic base, and the affine map to the endpoint's clock.

Two clocks meet in a run. The **client clock** is what the load generator and the collector read (UTC). The
**endpoint clock** is what the platform's timestamps show. On a real platform they differ by an offset that is
measured; under the emulator the endpoint clock also runs `time_scale` times faster. Everything after
`analysis.inputs` is in endpoint time, and this module is the only place that converts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import polars as pl

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class EndpointClock(msgspec.Struct, frozen=True, kw_only=True):
    """The affine map `endpoint = endpoint_epoch + (client - client_epoch) x time_scale`, all in µs since 1970 UTC.

    `error_us` bounds the map's error in client microseconds (half the round trip of the reading that gave it).
    The defaults are the identity: a platform whose clock agrees with the client's.
    """

    client_epoch_us: int = 0
    endpoint_epoch_us: int = 0
    time_scale: float = 1.0
    error_us: int = 0

    def to_endpoint_us(self, client_us: int) -> int:
        """Return the endpoint time of a client instant (µs since 1970).

        >>> EndpointClock(client_epoch_us=100, endpoint_epoch_us=1_000, time_scale=20).to_endpoint_us(103)
        1060
        """
        return self.endpoint_epoch_us + round((client_us - self.client_epoch_us) * self.time_scale)

    def to_client_us(self, endpoint_us: int) -> int:
        """Return the client time of an endpoint instant (µs since 1970), the inverse of `to_endpoint_us`."""
        return self.client_epoch_us + round((endpoint_us - self.endpoint_epoch_us) / self.time_scale)

    def endpoint_expr(self, column: str) -> pl.Expr:
        """Return an expression that maps a client timestamp column (µs, UTC) to endpoint time, keeping its name."""
        offset = (pl.col(column).dt.epoch("us") - self.client_epoch_us).cast(pl.Float64) * self.time_scale
        mapped = offset.round().cast(pl.Int64) + self.endpoint_epoch_us
        return mapped.cast(pl.Datetime("us", "UTC")).alias(column)


CLOCK_SNAPSHOT = "clock-offsets"
"""The snapshot in which a collector keeps the bounds on the offsets that it measured."""


def clock_snapshot(bounds: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """Return the snapshot of measured offsets: service → how far its clock is ahead (µs, not before and not after)."""
    return {service: {"lo_us": lo_us, "hi_us": hi_us} for service, (lo_us, hi_us) in sorted(bounds.items())}


def offset_between(lo_us: int, hi_us: int) -> int:
    """Return the offset to count with: none where the bounds leave room for that, else their middle."""
    return 0 if lo_us <= 0 <= hi_us else (lo_us + hi_us) // 2


def corrected(clock: EndpointClock, snapshot: Any) -> EndpointClock:
    """Return a run's map with the offset that its collector measured, or as it is where nothing was measured.

    Offsets of the services differ a little; all of them lie between the lowest and the highest bound. Where these
    leave room for no offset at all, there is none, only an error; else the middle is taken.

    >>> corrected(EndpointClock(), {"logs": {"lo_us": 89_600_000, "hi_us": 90_200_000}}).to_endpoint_us(0)
    89900000
    >>> corrected(EndpointClock(), {"logs": {"lo_us": -400_000, "hi_us": 200_000}}).error_us
    400000
    """
    found = snapshot.values() if isinstance(snapshot, Mapping) else ()
    bounds = [
        (one["lo_us"], one["hi_us"]) for one in found if isinstance(one, Mapping) and {"lo_us", "hi_us"} <= set(one)
    ]
    if not bounds:
        return clock
    lo_us, hi_us = min(lo for lo, _ in bounds), max(hi for _, hi in bounds)
    offset_us = offset_between(lo_us, hi_us)
    if offset_us == 0 and clock.error_us:
        # An emulator's clock was read far more closely than whole seconds allow.
        return clock
    error_us = math.ceil(max(hi_us - offset_us, offset_us - lo_us) / clock.time_scale)
    return msgspec.structs.replace(
        clock, endpoint_epoch_us=clock.endpoint_epoch_us + offset_us, error_us=clock.error_us + error_us
    )


class ClientClock:
    """UTC instants that never step: one reading of the wall clock, carried forward on the monotonic clock.

    A step of the system's wall clock during a run (NTP, a suspended machine) would otherwise make latencies wrong
    or negative.
    """

    __slots__ = ("_ahead_ns",)

    def __init__(self) -> None:
        self._ahead_ns = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        """Return the present instant in µs since 1970 UTC."""
        return (time.monotonic_ns() + self._ahead_ns) // 1_000

    def us_of_monotonic(self, monotonic_s: float) -> int:
        """Return the instant (µs since 1970 UTC) of a `time.monotonic()` reading."""
        return (round(monotonic_s * 1e9) + self._ahead_ns) // 1_000

    def monotonic_s_of(self, wall_us: int) -> float:
        """Return the `time.monotonic()` reading at which this clock shows `wall_us`."""
        return (wall_us * 1_000 - self._ahead_ns) / 1e9


def to_datetime(us: int) -> datetime:
    """Return the aware UTC datetime of `us` microseconds since 1970, exactly.

    >>> to_datetime(1_500_000).isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    """
    return _EPOCH + timedelta(microseconds=us)


def to_us(instant: datetime) -> int:
    """Return the microseconds since 1970 of an aware datetime, exactly (no float in between)."""
    return (instant - _EPOCH) // timedelta(microseconds=1)
