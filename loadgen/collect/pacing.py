"""How often to call: a token bucket per API, and a period that grows when a service objects and recovers after."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from loadgen.collect.base import SourceError, ThrottledError

T = TypeVar("T")

CALLS_PER_S = 5.0
"""Most calls per second and API, in endpoint time: polite beside other users of the same account's quota."""

_MAX_STRETCH = 16.0
_ATTEMPTS = 4
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


class TokenBucket:
    """Lets `rate` calls per second pass, and at most one second's worth at once.

    A caller that comes too early is told how long to wait; its token is already taken, so callers pass in order.
    """

    def __init__(self, rate: float, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = self._full_rate = rate
        self._burst = max(1.0, rate)
        self._now = now
        self._tokens = self._burst
        self._at = now()

    def slow_down(self) -> None:
        """Halve the rate, down to a sixteenth: the service objects."""
        self._rate = max(self._full_rate / _MAX_STRETCH, self._rate / 2)

    def recover(self) -> None:
        """Win back a tenth of the full rate: the service answered."""
        self._rate = min(self._full_rate, self._rate + self._full_rate / 10)

    def take(self) -> float:
        """Take one token and return how many seconds to wait before the call."""
        now = self._now()
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate) - 1.0
        self._at = max(now, self._at)
        return max(0.0, -self._tokens / self._rate)


class Limiter:
    """One token bucket per API (service and operation), shared by all sources."""

    def __init__(
        self,
        calls_per_s: float,
        time_scale: float = 1.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = calls_per_s * time_scale
        self._time_scale = time_scale
        self._sleep, self._now = sleep, now
        self._random = random.Random("retries")
        self.calls: Counter[str] = Counter()
        """How often each API was called, tries again included."""
        self._buckets: dict[str, TokenBucket] = {}

    async def wait(self, api: str) -> None:
        """Return when a call of `api` may go out."""
        pause = self._bucket(api).take()
        if pause > 0:
            await self._sleep(pause)

    async def calling(self, api: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return what a call of `api` gives, at the bucket's pace; tried up to four times where that may help.

        Raises the last `SourceError`. The waits between tries grow from a fifth of a second of endpoint time, with
        jitter; one that a service asks for (`retry_s`, client time) is kept to, unless it is too long for a poll.
        """
        for number in range(_ATTEMPTS):
            await self.wait(api)
            self.calls[api] += 1
            try:
                found = await attempt()
            except SourceError as error:
                if isinstance(error, ThrottledError):
                    self._bucket(api).slow_down()
                last = number == _ATTEMPTS - 1
                if last or error.retry_s is None or error.retry_s > _LONGEST_PAUSE_S:
                    raise
                grown_s = _FIRST_PAUSE_S * 2**number * self._random.uniform(0.5, 1.5) / self._time_scale
                await self._sleep(max(error.retry_s, grown_s))
            else:
                self._bucket(api).recover()
                return found
        raise AssertionError

    def _bucket(self, api: str) -> TokenBucket:
        bucket = self._buckets.get(api)
        if bucket is None:
            bucket = self._buckets[api] = TokenBucket(self._rate, self._now)
        return bucket


class Cadence:
    """The period of one source: doubles with each failure, up to 16 times, and halves with each success.

    A source that is read seldom is tried again sooner than its period while it fails: from `retry_s` on.

    >>> cadence = Cadence(2.0)
    >>> cadence.failed(), cadence.failed(), cadence.succeeded(), cadence.succeeded(), cadence.succeeded()
    (4.0, 8.0, 4.0, 2.0, 2.0)
    """

    def __init__(self, period_s: float, retry_s: float | None = None) -> None:
        self._base_s = period_s
        self._retry_s = period_s if retry_s is None else min(period_s, retry_s)
        self._stretch = 1.0
        self._failing = False

    @property
    def period_s(self) -> float:
        """The present period in client time."""
        slowed_s = self._retry_s * self._stretch
        return slowed_s if self._failing else max(self._base_s, slowed_s)

    def failed(self) -> float:
        """Slow down, and return the new period."""
        self._stretch = min(_MAX_STRETCH, self._stretch * 2)
        self._failing = True
        return self.period_s

    def succeeded(self) -> float:
        """Recover, and return the new period."""
        self._stretch = max(1.0, self._stretch / 2)
        self._failing = False
        return self.period_s
