"""The collector in virtual time: its own sources, watches and journal, at the pace and with the jitter of the real one.

A reading between which and the one before nothing changed on the platform would be dropped row by row; it is left out,
and only its instant kept, as a lower bound for the next change. Nothing is left out where calls may be throttled.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from typing import cast

import polars as pl

from loadgen.collect.base import Source
from loadgen.collect.component_state import ComponentState
from loadgen.collect.endpoint_state import EndpointState
from loadgen.collect.events import Events
from loadgen.collect.journal import Journal
from loadgen.collect.metrics import Metrics
from loadgen.collect.promql import PromApi
from loadgen.collect.sagemaker import sources
from loadgen.collect.trail import Trail
from loadgen.collect.variant import Watched
from loadgen.collect.watch import Watch
from loadgen.emulator.config import Faults
from loadgen.emulator.virtual_platform import VirtualPlatform, VirtualProm, at_once
from loadgen.scenario import CollectSection
from traces.clock import CLOCK_SNAPSHOT, ClientClock, EndpointClock, clock_snapshot
from traces.run import RunDir, ShardWriter
from traces.schema import Sample
from traces.units import US_PER_S

HEARTBEAT_US = 5 * US_PER_S
_JITTER = 0.1
_LAST_TRIES = 4
_ALWAYS_READ = (Metrics.name, ComponentState.name, Events.name, Trail.name)


class _Clock:
    """The client's clock: the platform's present."""

    def __init__(self, platform: VirtualPlatform) -> None:
        self._platform = platform

    def now_us(self) -> int:
        return self._platform.now_us


class VirtualCollector:
    """Polls a model from `begin_us` on and files what it sees in a run directory."""

    def __init__(
        self, run: RunDir, platform: VirtualPlatform, section: CollectSection, watched: Watched, seed: int
    ) -> None:
        self._run, self._platform, self._resource = run, platform, watched.resource
        self._journal = Journal(run)
        self._begin_us = platform.instant_us
        self._read_us: dict[str, int] = {}
        prom = cast("PromApi", VirtualProm(platform))
        found = sources(section, platform, prom, watched, {})
        clock = cast("ClientClock", _Clock(platform))
        self._chances = [random.Random(f"{seed}:{source.name}") for source in found]
        self._watches = [
            Watch(
                cast("Source", source),
                "sagemaker",
                self._journal,
                clock,
                EndpointClock(),
                say=_hush,
                random_source=chance,
                lead_us=platform.offsets.lead_us,
            )
            for source, chance in zip(found, self._chances, strict=True)
        ]

    def collect(self, until_us: int) -> None:
        """Poll every source at its pace up to `until_us`, then everything once more, and write it."""
        for at_us, watch in self._polls(until_us):
            self._platform.begin(at_us)
            if not self._would_show_nothing(watch, at_us):
                at_once(watch.once())
        for watch in self._watches:
            for number in range(_LAST_TRIES):
                self._platform.begin(until_us + number * US_PER_S)
                if number == 0 or watch.failing:
                    at_once(watch.once())
            watch.finish()
        offsets = clock_snapshot(self._platform.offsets.bounds())
        self._journal.note(CLOCK_SNAPSHOT, offsets)
        self._journal.write(self._journal.cut())
        self._write_heartbeats(until_us)

    def written(self) -> dict[str, int]:
        """Return how many rows each table got."""
        return dict(self._journal.written)

    def _polls(self, until_us: int) -> Iterator[tuple[int, Watch]]:
        due: list[tuple[int, int]] = []
        for number, watch in enumerate(self._watches):
            yield self._begin_us, watch
            phase = self._chances[number].random()
            heapq.heappush(due, (self._begin_us + round(phase * watch.cadence.period_s * US_PER_S), number))
        while due and due[0][0] <= until_us:
            at_us, number = heapq.heappop(due)
            watch = self._watches[number]
            if watch.given_up:
                continue
            yield at_us, watch
            stretch = self._chances[number].uniform(1 - _JITTER, 1 + _JITTER)
            heapq.heappush(due, (at_us + round(watch.cadence.period_s * stretch * US_PER_S), number))

    def _would_show_nothing(self, watch: Watch, at_us: int) -> bool:
        """Tell whether a reading now has nothing new, and note that it was made."""
        model, source = self._platform.model, watch.source
        before_us = self._read_us.get(source.name)
        self._read_us[source.name] = at_us
        if before_us is None or source.name in _ALWAYS_READ or model.config.faults != Faults():
            return False
        self._platform.advance(at_us)
        if model.changed(before_us, at_us):
            return False
        if isinstance(source, EndpointState):
            source.unchanged_at(at_us)
        return True

    def _write_heartbeats(self, until_us: int) -> None:
        at = pl.int_range(self._begin_us, until_us + 1, HEARTBEAT_US, eager=True).cast(pl.Datetime("us", "UTC"))
        frame = pl.DataFrame({"start": at, "received": at}).with_columns(
            source=pl.lit("collector"),
            metric=pl.lit("heartbeat"),
            resource=pl.lit(self._resource),
            unit_id=pl.lit(None, pl.String),
            period_us=pl.lit(0, pl.Int64),
            statistic=pl.lit("Value"),
            value=pl.lit(1.0),
        )
        ShardWriter(self._run, "samples", "collector").write(
            frame.select(pl.Schema(Sample).names()).to_dict(as_series=False)
        )


def _hush(_line: str) -> None:
    """What a live collector tells its user is in the gaps table too."""
