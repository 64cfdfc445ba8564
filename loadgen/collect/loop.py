"""The collection as a whole: all sources side by side, a flush each interval, an end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial

from loadgen.collect.journal import Journal
from loadgen.collect.offsets import Offsets
from loadgen.collect.platform import Platform
from loadgen.collect.redaction import redact
from loadgen.collect.rows import sample
from loadgen.collect.watch import watch
from traces.clock import CLOCK_SNAPSHOT, ClientClock, EndpointClock, clock_snapshot

# Whoever waits for our end (a replay) loses patience some time after the tail.
_LAST_READ_S = 12.0
_POLL_ENDS_S = 6.0
_LAST_TRIES = 4
_LAST_PAUSE_S = 1.0


class Collection:
    """Runs the sources until the load has ended and the tail has passed, then reads everything once more.

    `flush_s` is client time, `tail_us` endpoint time.
    """

    def __init__(
        self,
        platforms: Sequence[Platform],
        journal: Journal,
        *,
        clock: ClientClock,
        endpoint_clock: EndpointClock,
        offsets: Offsets,
        flush_s: float,
        tail_us: int,
        say: Callable[[str], None],
        seed: int = 0,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._endpoint_clock = endpoint_clock
        self._offsets = offsets
        self._resource = ", ".join(platform.resource for platform in platforms)
        self._flush_s = flush_s
        self._tail_s = tail_us / 1e6 / endpoint_clock.time_scale
        self._say = say
        self._stopping = asyncio.Event()
        self._disk_trouble = False
        self._offset_bounds: dict[str, tuple[int, int]] = {}
        self._watches = [
            watch(
                source,
                platform.name,
                journal,
                clock,
                endpoint_clock,
                say=say,
                random_source=random.Random(f"{seed}:{source.name}"),
                lead_us=offsets.lead_us,
            )
            for platform in platforms
            for source in platform.sources()
        ]

    async def run(self, load_ended: asyncio.Event, stop_now: asyncio.Event, on_ready: Callable[[], None]) -> None:
        """Collect; `on_ready` is called once every source has been tried. Returns when all is written.

        `load_ended` lets the tail begin; `stop_now` leaves out the rest of the tail and the last reading.
        """
        flusher = asyncio.create_task(self._flush_for_ever())
        polls = [asyncio.create_task(watched.run(self._stopping)) for watched in self._watches]
        ready = asyncio.create_task(self._announce(on_ready))
        try:
            await _either(load_ended, stop_now)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._tail_s):
                    await stop_now.wait()
            await self._end(polls, stop_now)
        finally:
            for task in [flusher, ready, *polls]:
                task.cancel()
            await asyncio.gather(flusher, ready, *polls, return_exceptions=True)
            for watched in self._watches:
                watched.finish()
            await self._flush()

    async def _announce(self, on_ready: Callable[[], None]) -> None:
        for watched in self._watches:
            await watched.attempted.wait()
        on_ready()

    async def _end(self, polls: list[asyncio.Task[None]], stop_now: asyncio.Event) -> None:
        """Let polls under way end, then read everything a last time, both within bounds and unless told to stop."""
        self._stopping.set()
        stop = asyncio.create_task(stop_now.wait())
        try:
            for work, patience_s in ((partial(_settle, polls), _POLL_ENDS_S), (self._last_read, _LAST_READ_S)):
                if stop_now.is_set():
                    return
                task = asyncio.create_task(work())
                await asyncio.wait({task, stop}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        finally:
            stop.cancel()

    async def _last_read(self) -> None:
        # One after the other: what an earlier source tells (the alarms' names) a later one uses.
        waiting = [watched for watched in self._watches if not watched.given_up]
        for number in range(_LAST_TRIES):
            for watched in waiting:
                await watched.once()
            waiting = [watched for watched in waiting if watched.failing]
            if not waiting:
                return
            await asyncio.sleep(_LAST_PAUSE_S * 2**number / self._endpoint_clock.time_scale)

    async def _flush_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._flush_s)
            await self._flush()

    async def _flush(self) -> None:
        """Write what is new, with a heartbeat: where heartbeats end, the collector ended."""
        now_us = self._clock.now_us()
        beat = sample(
            "collector",
            "heartbeat",
            resource=self._resource,
            start_us=self._endpoint_clock.to_endpoint_us(now_us),
            value=1.0,
            received_us=now_us,
        )
        self._journal.add("samples", beat)
        for service, (offset_us, received_us) in self._offsets.drain().items():
            row = sample(
                "collector",
                "clock_offset_us",
                resource=service,
                start_us=self._endpoint_clock.to_endpoint_us(received_us),
                value=offset_us,
                received_us=received_us,
            )
            self._journal.add("samples", row)
        bounds = self._offsets.bounds()
        if bounds != self._offset_bounds:
            self._offset_bounds = bounds
            self._journal.note(CLOCK_SNAPSHOT, clock_snapshot(bounds))
        batch = self._journal.cut()
        writing = asyncio.ensure_future(asyncio.to_thread(self._journal.write, batch))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.gather(writing, return_exceptions=True)
            self._journal.restore(batch)
            raise
        except OSError as error:
            self._journal.restore(batch)
            if not self._disk_trouble:
                self._say(
                    f"cannot write to the run directory ({redact(str(error))}); keeping the rows and trying again"
                )
            self._disk_trouble = True
        else:
            self._disk_trouble = False


async def _settle(polls: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*polls, return_exceptions=True)


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
