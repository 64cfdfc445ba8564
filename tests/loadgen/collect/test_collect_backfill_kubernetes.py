"""A scale-out on Kubernetes that nobody watched: what the cluster still keeps of it."""

import asyncio

import pytest

from loadgen.collect.backfill import Told, _read
from loadgen.collect.journal import Journal
from tests.loadgen.collect.virtual_platforms import EPOCH_US, US, Collected, collect, drawn
from traces.clock import EndpointClock
from traces.manifest import Manifest
from traces.run import RunDir


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> tuple[Collected, RunDir, dict[str, Told]]:
    """A scale-out, and a reading of it by sources that were not there when it happened."""
    live = collect("kubernetes", 1)
    run = RunDir.create(
        tmp_path_factory.mktemp("past") / "run", Manifest(run_id="r", created_us=1, clock=EndpointClock())
    )
    _, section, poll_us = drawn("kubernetes", 1)
    platform = Collected(live.world, section, poll_us).platform
    journal = Journal(run)

    async def read() -> dict[str, Told]:
        await platform.open(None)
        told = {}
        for source in platform.sources():
            now_us = live.world.present_us
            span_us = (EPOCH_US - 300 * US, now_us)
            told[source.name] = await _read(source, platform, journal, span_us=span_us, now_us=now_us, clock=live.world)
        return told

    told = asyncio.run(read())
    journal.write(journal.cut())
    return live, run, told


def test_every_anchor_that_is_still_kept_is_found(past: tuple[Collected, RunDir, dict[str, Told]]) -> None:
    live, run, _ = past
    rows = run.scan("observations").collect()
    wanted = {"decision", "launched", "pull_started", "pull_finished", "container_started", "ready"}
    assert wanted <= set(rows["anchor"])
    # What is told twice is told alike: the same rows as those of the watch, but for what was only seen to change.
    seen = {(key, row["lo"], row["hi"]) for key, row in live.rows.items()}
    stamped = rows.filter(rows["source"] == "kubernetes:pods")
    assert stamped.height > 3
    assert {((r["source"], r["native_id"]), r["lo"], r["hi"]) for r in stamped.rows(named=True)} <= seen


def test_each_source_says_how_much_is_left(past: tuple[Collected, RunDir, dict[str, Told]]) -> None:
    _, run, told = past
    assert told["kubernetes:events"].kept == "all"
    assert told["kubernetes:pods"].kept == "part"
    assert "still exist" in str(told["kubernetes:pods"].detail)
    assert told["kubernetes:scaledobjects"].kept == "nothing"
    assert run.scan("gaps").collect().is_empty()
