"""One source under watch: polled at its own pace, its failures kept as gaps, its trouble nobody else's."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from loadgen.collect.base import DeniedError, MalformedError, Reading, Source, SourceError, Stream
from loadgen.collect.journal import Journal
from loadgen.collect.pacing import Cadence
from loadgen.collect.redaction import said
from loadgen.collect.rows import gap
from traces.clock import ClientClock, EndpointClock

_SHORTEST_PERIOD_S = 0.02
_JITTER = 0.1
_RETRY_US = 5_000_000


class _OpenGap(NamedTuple):
    start_us: int
    reason: str
    detail: str


class _Kept:
    """What every watch keeps of its source: its pace, its gaps, and what was said of it.

    A gap is one row, from the last good reading to the next one. It is written when it closes, or by `finish`, without
    an end. A denied source is given up; its gap has no end.
    """

    def __init__(
        self,
        source: Source | Stream,
        platform: str,
        journal: Journal,
        clock: ClientClock,
        endpoint_clock: EndpointClock,
        *,
        say: Callable[[str], None],
        random_source: random.Random,
        lead_us: Callable[[], int] = lambda: 0,
    ) -> None:
        self._lead_us = lead_us
        self.attempted = asyncio.Event()
        self.given_up = False
        self._name = source.name
        self._platform = platform
        self._journal = journal
        self._clock = clock
        self._endpoint_clock = endpoint_clock
        self._say = say
        self._random = random_source
        period_s = source.period_us / 1e6 / endpoint_clock.time_scale
        retry_s = max(_SHORTEST_PERIOD_S, _RETRY_US / 1e6 / endpoint_clock.time_scale)
        self.cadence = Cadence(max(_SHORTEST_PERIOD_S, period_s), retry_s)
        self._good_us = clock.now_us()
        self._gap: _OpenGap | None = None
        self._said: set[str] = set()

    @property
    def failing(self) -> bool:
        """Whether the newest reading failed, and may do better when it is tried again."""
        return self._gap is not None and not self.given_up

    def _failures(self, error: Exception) -> list[SourceError]:
        """Return the failure that an exception is; a denied source is given up."""
        if isinstance(error, SourceError):
            self.given_up = isinstance(error, DeniedError)
            return [error]
        # A strange answer, or an adapter's bug, must not end the collection.
        return [MalformedError(f"{self._name}: {type(error).__name__}: {said(error)}")]

    def _file(self, failures: list[SourceError]) -> None:
        """Turn failures into gaps and a slower pace, or their absence into the end of a gap and a quicker one."""
        now_us = self._clock.now_us()
        passing = [failure for failure in failures if not isinstance(failure, DeniedError)]
        for failure in failures:
            if isinstance(failure, DeniedError):
                self._journal.add("gaps", gap(self._name, failure.reason, self._good_us, None, str(failure)))
                what = "gives up" if self.given_up else "goes on without that part"
                self._tell(f"{self._name} {what}: {failure}; see the permissions a read-only collector needs")
        if passing:
            self.cadence.failed()
            self._open(passing[0], now_us)
        elif not self.given_up:
            self._close(now_us)
            self._good_us = now_us
            self.cadence.succeeded()

    def _open(self, failure: SourceError, now_us: int) -> None:
        if self._gap is not None and self._gap.reason == failure.reason:
            return
        # Another reason begins another gap, where the one before ends.
        start_us = self._good_us if self._gap is None else now_us
        self._close(now_us)
        self._gap = _OpenGap(start_us, failure.reason, str(failure))
        self._tell(f"{self._name}: {failure.reason} ({failure}); trying again more slowly")

    def finish(self) -> None:
        """File a gap that has not closed."""
        self._close(None)

    def _close(self, end_us: int | None) -> None:
        if self._gap is not None:
            start_us, reason, detail = self._gap
            self._journal.add("gaps", gap(self._name, reason, start_us, end_us, detail))
            self._gap = None

    def _tell(self, line: str) -> None:
        """Say each thing once: a storm of errors is one line."""
        if line not in self._said:
            self._said.add(line)
            self._say(line)


class Watch(_Kept):
    """Polls one source until told to stop."""

    def __init__(self, source: Source, *arguments: Any, **more: Any) -> None:
        super().__init__(source, *arguments, **more)
        self.source = source

    async def run(self, stop: asyncio.Event) -> None:
        """Poll now and then once a period, from a random phase on, until `stop` is set or the source is denied."""
        await self.once()
        pause_s = self.cadence.period_s * self._random.random()
        while not self.given_up and not await _within(stop, pause_s):
            began = time.monotonic()
            await self.once()
            period_s = self.cadence.period_s * self._random.uniform(1 - _JITTER, 1 + _JITTER)
            pause_s = max(_SHORTEST_PERIOD_S, period_s - (time.monotonic() - began))

    async def once(self) -> None:
        """Poll once; never raises what the source raises."""
        asked_us = self._clock.now_us()
        try:
            # Asked by a clock that is behind, a service would keep back what is newest.
            now_us = self._endpoint_clock.to_endpoint_us(asked_us) + self._lead_us()
            reading = await self.source.poll(now_us)
            self._journal.take(reading, self._platform)
            failures = reading.failures
        except Exception as error:
            failures = self._failures(error)
        finally:
            self.attempted.set()
        self._file(failures)


class StreamWatch(_Kept):
    """Follows one stream until told to stop, and opens it again when it ends or fails."""

    def __init__(self, source: Stream, *arguments: Any, **more: Any) -> None:
        super().__init__(source, *arguments, **more)
        self.source = source

    async def run(self, stop: asyncio.Event) -> None:
        """Follow until `stop` is set or the stream is denied."""
        stopped = asyncio.create_task(stop.wait())
        try:
            while not self.given_up and not stop.is_set():
                following = asyncio.create_task(self.source.follow(self._take))
                await asyncio.wait({following, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                ended = (await asyncio.gather(following, return_exceptions=True))[0]
                self.attempted.set()
                if stop.is_set():
                    return
                if isinstance(ended, Exception):
                    self._file(self._failures(ended))
                await _within(stop, self.cadence.period_s * self._random.uniform(1 - _JITTER, 1 + _JITTER))
        finally:
            stopped.cancel()

    async def once(self) -> None:
        """Do nothing: what a stream told is taken already."""

    def _take(self, reading: Reading) -> None:
        self._journal.take(reading, self._platform)
        self.attempted.set()
        self._file(reading.failures)


def watch(source: Source | Stream, *arguments: Any, **more: Any) -> Watch | StreamWatch:
    """Return the watch of a source of either kind; the arguments are the watch's own."""
    if isinstance(source, Source):
        return Watch(source, *arguments, **more)
    return StreamWatch(source, *arguments, **more)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but no longer than `seconds`; tell whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
