"""The collection as a whole: all sources side by side, a flush each interval, an end in good order."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from functools import partial

from loadgen.collect.journal import Journal
from loadgen.collect.offsets import Offsets
from loadgen.collect.platform import Platform
from loadgen.collect.rows import sample
from loadgen.collect.watch import watch
from traces.clock import CLOCK_SNAPSHOT, ClientClock, EndpointClock, clock_snapshot
from traces.errors import BadInputError

# Whoever waits for our end (a replay) loses patience some time after the tail.
_LAST_READ_S = 12.0
_POLL_ENDS_S = 6.0
_LAST_TRIES = 4
_LAST_PAUSE_S = 1.0
# On a full disk: how slowly it is tried again, and for how long at the end.
_SLOWEST_FLUSH_S = 10.0
_LAST_SPACE_S = 8.0


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
        self._refusals = 0
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

        `load_ended` lets the tail begin; `stop_now` leaves out the rest of the tail and the last reading. Raises
        `BadInputError` when rows could not be written to the end: on a full disk they wait for space as long as the
        collection lasts, and a little longer.
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
            refused = await self._flush()
        deadline = time.monotonic() + _LAST_SPACE_S
        while refused is not None and not stop_now.is_set() and time.monotonic() < deadline:
            await asyncio.sleep(min(self._flush_s, _LAST_PAUSE_S))
            refused = await self._flush()
        if refused is not None:
            raise BadInputError(
                f"{self._journal.path}: the last {self._journal.waiting} rows could not be written "
                f"({refused.strerror}); those written before are whole. Free some space there and collect again"
            )

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
            await asyncio.sleep(min(self._flush_s * 2**self._refusals, max(self._flush_s, _SLOWEST_FLUSH_S)))
            await self._flush()

    async def _flush(self) -> OSError | None:
        """Write what is new, with a heartbeat: where heartbeats end, the collector ended. Return what the disk refused.

        What could not be written is kept, and written with what comes next.
        """
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
            self._say_refused(error)
            return error
        if self._refusals:
            self._say("the run directory can be written again; the rows kept meanwhile are in it")
        self._refusals = 0
        return None

    def _say_refused(self, error: OSError) -> None:
        """Say when the trouble begins, and then less and less often: it grows dearer."""
        self._refusals += 1
        if self._refusals.bit_count() > 1:
            return
        lost = f", {self._journal.lost} are lost already" if self._journal.lost else ""
        self._say(
            f"cannot write to {self._journal.path} ({error.strerror}); keeping {self._journal.waiting} rows in memory"
            f"{lost}, and trying again: free some space there"
        )


async def _settle(polls: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*polls, return_exceptions=True)


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
