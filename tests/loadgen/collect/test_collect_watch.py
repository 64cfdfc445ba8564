"""One source under watch: gaps open and close, the pace slows and recovers, denial gives up."""

import asyncio
import random
from pathlib import Path

import polars as pl
import pytest

from loadgen.collect.base import DeniedError, MalformedError, Reading, SourceUnreachableError, Take, ThrottledError
from loadgen.collect.journal import Journal
from loadgen.collect.watch import StreamWatch, Watch
from traces.clock import ClientClock, EndpointClock
from traces.manifest import Manifest
from traces.run import RunDir


class Script:
    """A source that does what it is told, poll by poll."""

    name = "scripted"
    period_us = 1_000_000
    kept_us = 0
    permissions = ()

    def __init__(self, *steps: Exception | Reading) -> None:
        self.steps = list(steps)
        self.polls = 0

    async def poll(self, now_us: int) -> Reading:
        self.polls += 1
        step = self.steps.pop(0) if self.steps else Reading()
        if isinstance(step, Exception):
            raise step
        return step


class Telling:
    """A stream that does what it is told each time it is opened; then it stays silent."""

    name = "telling"
    period_us = 10_000
    kept_us = 0
    permissions = ()

    def __init__(self, *openings: list[Reading | Exception]) -> None:
        self.openings = list(openings)
        self.opened = 0

    async def follow(self, take: Take) -> None:
        self.opened += 1
        if not self.openings:
            take(Reading())
            await asyncio.sleep(60)
        for step in self.openings.pop(0):
            if isinstance(step, Exception):
                raise step
            take(step)


class World:
    def __init__(self, path: Path) -> None:
        self.run = RunDir.create(path, Manifest(run_id="r"))
        self.journal = Journal(self.run)
        self.said: list[str] = []

    def watch(self, source: Script, time_scale: float = 1.0) -> Watch:
        clock = EndpointClock(time_scale=time_scale)
        return Watch(
            source,
            "sagemaker",
            self.journal,
            ClientClock(),
            clock,
            say=self.said.append,
            random_source=random.Random(0),
        )

    def stream(self, source: Telling) -> StreamWatch:
        return StreamWatch(
            source,
            "sagemaker",
            self.journal,
            ClientClock(),
            EndpointClock(),
            say=self.said.append,
            random_source=random.Random(0),
        )

    def gaps(self) -> pl.DataFrame:
        self.journal.write(self.journal.cut())
        return self.run.scan("gaps").collect()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "run")


async def _polls(watch: Watch, count: int) -> list[float]:
    periods = []
    for _ in range(count):
        await watch.once()
        periods.append(watch.cadence.period_s)
    return periods


def test_throttling_slows_down_and_leaves_one_gap(world: World) -> None:
    watch = world.watch(Script(Reading(), ThrottledError("slow"), ThrottledError("slow"), Reading()))
    assert asyncio.run(_polls(watch, 6)) == [1, 2, 4, 2, 1, 1]
    (gap,) = world.gaps().rows(named=True)
    assert (gap["source"], gap["reason"]) == ("scripted", "throttled")
    assert gap["start"] < gap["end"]
    assert len(world.said) == 1


def test_another_reason_is_another_gap(world: World) -> None:
    watch = world.watch(Script(Reading(), ThrottledError("a"), SourceUnreachableError("b"), Reading()))
    asyncio.run(_polls(watch, 4))
    first, second = world.gaps().rows(named=True)
    assert (first["reason"], second["reason"]) == ("throttled", "unreachable")
    assert first["start"] < first["end"] == second["start"] < second["end"]


def test_a_gap_that_never_closed_has_no_end(world: World) -> None:
    watch = world.watch(Script(Reading(), ThrottledError("slow"), ThrottledError("slow")))
    asyncio.run(_polls(watch, 3))
    assert world.gaps().is_empty()
    watch.finish()
    watch.finish()
    assert world.gaps()["end"].to_list() == [None]


def test_denial_gives_up_with_one_line(world: World) -> None:
    source = Script(DeniedError("not authorized"))
    watch = world.watch(source)
    asyncio.run(asyncio.wait_for(watch.run(asyncio.Event()), 5))
    assert (watch.given_up, source.polls) == (True, 1)
    gaps = world.gaps()
    assert gaps["reason"].to_list() == ["denied"]
    assert gaps["end"].to_list() == [None]
    assert len(world.said) == 1
    assert "not authorized" in world.said[0]


def test_a_denied_part_does_not_give_up(world: World) -> None:
    watch = world.watch(Script(Reading(failures=[DeniedError("model")])))
    assert asyncio.run(_polls(watch, 2)) == [1, 1]
    assert not watch.given_up
    assert world.gaps()["reason"].to_list() == ["denied"]


def test_anything_unexpected_is_a_gap_and_the_source_goes_on(world: World) -> None:
    source = Script(ZeroDivisionError("oops"), KeyError("x"), Reading())
    watch = world.watch(source)
    asyncio.run(_polls(watch, 3))
    assert source.polls == 3
    assert set(world.gaps()["reason"]) == {"malformed"}


def test_a_partial_reading_is_kept_and_its_failure_is_a_gap(world: World) -> None:
    partial = Reading(snapshots={"alarms": {}}, failures=[MalformedError("cut at 500 series")])
    asyncio.run(_polls(world.watch(Script(partial)), 2))
    assert world.gaps()["detail"].to_list() == ["cut at 500 series"]
    assert "alarms" in world.run.snapshots()


def test_periods_are_endpoint_time(world: World) -> None:
    assert world.watch(Script(), time_scale=20).cadence.period_s == pytest.approx(0.05)
    assert world.watch(Script(), time_scale=10_000).cadence.period_s == pytest.approx(0.02)


async def _follow(watch: StreamWatch, seconds: float) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(watch.run(stop))
    await asyncio.sleep(seconds)
    stop.set()
    await asyncio.wait_for(running, 5)


def test_a_stream_that_ends_or_fails_is_opened_again_and_its_gap_closes(world: World) -> None:
    source = Telling([Reading(snapshots={"a": 1})], [Reading(), SourceUnreachableError("reset")], [KeyError("x")])
    watch = world.stream(source)
    asyncio.run(_follow(watch, 0.5))
    assert source.opened == 4
    assert watch.attempted.is_set()
    gaps = world.gaps()
    assert gaps["reason"].to_list() == ["unreachable", "malformed"]
    assert gaps["end"].null_count() == 0
    assert world.run.snapshots() == {"a": 1}


def test_a_denied_stream_is_given_up(world: World) -> None:
    source = Telling([DeniedError("not authorized")])
    watch = world.stream(source)
    asyncio.run(asyncio.wait_for(watch.run(asyncio.Event()), 5))
    assert (watch.given_up, source.opened) == (True, 1)
    assert world.gaps()["end"].to_list() == [None]
