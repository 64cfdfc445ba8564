"""How often to call: a token bucket per API, and a period that grows when a service objects and recovers after."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

CALLS_PER_S = 5.0
"""Most calls per second and API, in endpoint time: polite beside other users of the same account's quota."""

_MAX_STRETCH = 16.0


class TokenBucket:
    """Lets `rate` calls per second pass, and at most one second's worth at once.

    A caller that comes too early is told how long to wait; its token is already taken, so callers pass in order.
    """

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = max(1.0, rate)
        self._now = now
        self._tokens = self._burst
        self._at = now()

    def take(self) -> float:
        """Take one token and return how many seconds to wait before the call."""
        now = self._now()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - 1.0
        self._at = now
        return max(0.0, -self._tokens / self._rate)


class Limiter:
    """One token bucket per API (service and operation), shared by all sources."""

    def __init__(self, calls_per_s: float) -> None:
        self._rate = calls_per_s
        self._buckets: dict[str, TokenBucket] = {}

    async def wait(self, api: str) -> None:
        """Return when a call of `api` may go out."""
        bucket = self._buckets.get(api)
        if bucket is None:
            bucket = self._buckets[api] = TokenBucket(self._rate)
        pause = bucket.take()
        if pause > 0:
            await asyncio.sleep(pause)


class Cadence:
    """The period of one source: doubles with each failure, up to 16 times, and halves with each success.

    >>> cadence = Cadence(2.0)
    >>> cadence.failed(), cadence.failed(), cadence.succeeded(), cadence.succeeded(), cadence.succeeded()
    (4.0, 8.0, 4.0, 2.0, 2.0)
    """

    def __init__(self, period_s: float) -> None:
        self._base_s = period_s
        self._stretch = 1.0

    @property
    def period_s(self) -> float:
        """The present period in client time."""
        return self._base_s * self._stretch

    def failed(self) -> float:
        """Slow down, and return the new period."""
        self._stretch = min(_MAX_STRETCH, self._stretch * 2)
        return self.period_s

    def succeeded(self) -> float:
        """Recover, and return the new period."""
        self._stretch = max(1.0, self._stretch / 2)
        return self.period_s
