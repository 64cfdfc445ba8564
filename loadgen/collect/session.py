"""One collection from start to end: attached to a replay's run, or alone with a run of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import aiohttp
import msgspec
import polars as pl

from loadgen.collect.aws import is_loopback
from loadgen.collect.emulator_clock import read_endpoint_clock
from loadgen.collect.journal import Journal
from loadgen.collect.loop import Collection
from loadgen.collect.opening import opened
from loadgen.collect.platform import Say
from loadgen.collect.rows import gap
from loadgen.scenario import CollectSection
from traces.clock import ClientClock, EndpointClock, to_us
from traces.errors import BadInputError, UnreachableError
from traces.manifest import Manifest
from traces.run import RunDir
from traces.units import US_PER_S

LOOKBACK_US = 300 * US_PER_S
"""How far before the run's start events still count (endpoint time): a scale-out may be under way already."""


@dataclass(slots=True)
class Ending:
    """How the signals and the parent ask a collection to end."""

    load_ended: asyncio.Event
    stop_now: asyncio.Event
    interrupted: bool = False

    def ask(self) -> None:
        """End the load's part; asked again, stop at once."""
        if self.interrupted:
            self.stop_now.set()
        self.interrupted = True
        self.load_ended.set()


async def attach(run_dir: Path, *, say: Say, on_ready: Callable[[], None]) -> dict[str, int]:
    """Collect into a replay's run until the load ends (SIGTERM, or the end of standard input) and the tail passed.

    Everything comes from the run's manifest, which stays the replay's. Returns how many rows each table got.
    """
    run = RunDir.open(run_dir)
    manifest = run.manifest()
    section = _section_of(manifest, run_dir)
    ending = _ending()
    _watch_parent(ending.load_ended)
    written, _ = await collect_into(
        run, section, ClientClock(), manifest.clock, ending, flush_s=manifest.flush_s, say=say, on_ready=on_ready
    )
    return written


async def alone(
    section: CollectSection,
    *,
    run_dir: Path | None,
    directory: str,
    condition: str | None,
    emulator_url: str | None,
    duration_us: int | None,
    say: Say,
) -> tuple[Path, dict[str, int], bool]:
    """Collect into a new run for `duration_us` of endpoint time, or until interrupted.

    Returns the run's path, the rows written by table, and whether it was interrupted.
    """
    clock = ClientClock()
    endpoint_clock, emulated = await find_endpoint_clock(section, emulator_url, clock)
    ending = _ending()
    created_us = clock.now_us()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(created_us // US_PER_S))
    name = f"collect-{section.label}"
    run_id = f"{stamp}-{name}"
    manifest = Manifest(
        run_id=run_id,
        name=name,
        condition=condition,
        emulated=emulated,
        created_us=created_us,
        clock=endpoint_clock,
        scenario={"collect": msgspec.to_builtins(section)},
        versions=versions(),
        flush_s=section.flush_us / US_PER_S,
    )
    started: list[RunDir] = []

    def start_run() -> RunDir:
        started.append(RunDir.create(run_dir or Path(directory) / run_id, manifest))
        where = "until Ctrl-C" if duration_us is None else f"for {duration_us / US_PER_S:g} s of endpoint time"
        say(f"collecting from {section.label} into {started[0].path} {where}")
        return started[0]

    timer = asyncio.create_task(_end_after(duration_us, endpoint_clock, ending.load_ended))
    # The tail follows a load; here there is none.
    section = msgspec.structs.replace(section, tail="0")
    try:
        written, run = await collect_into(
            start_run, section, clock, endpoint_clock, ending, flush_s=manifest.flush_s, say=say, on_ready=lambda: None
        )
    except BaseException:
        # The disk may be full: then the manifest stays as it was, and what went wrong is what counts.
        with contextlib.suppress(OSError):
            _file_end(started, manifest, clock, ending)
        raise
    finally:
        timer.cancel()
    manifest.collector = {"rows": written}
    _file_end(started, manifest, clock, ending)
    try:
        for table in written:
            run.compact(table)
    except OSError as error:
        # A merged table needs its size once more. Its shards are as good to read.
        say(f"{run.path}: the tables stay in many small files ({error.strerror})")
    return run.path, written, ending.interrupted


def _file_end(started: list[RunDir], manifest: Manifest, clock: ClientClock, ending: Ending) -> None:
    """Write into the manifest how the collection ended, if it began."""
    manifest.state = "interrupted" if ending.interrupted else "finished"
    manifest.finished_us = clock.now_us()
    for run in started:
        run.write_manifest(manifest)


async def collect_into(
    run: RunDir | Callable[[], RunDir],
    section: CollectSection,
    clock: ClientClock,
    endpoint_clock: EndpointClock,
    ending: Ending,
    *,
    flush_s: float,
    say: Say,
    on_ready: Callable[[], None],
) -> tuple[dict[str, int], RunDir]:
    """Check the platform, then collect; returns the rows written by table, and the run.

    A run that does not exist yet is made only once the checks passed.
    """
    before = run.snapshots() if isinstance(run, RunDir) else {}
    created_us = run.manifest().created_us if isinstance(run, RunDir) else 0
    since_us = endpoint_clock.to_endpoint_us(created_us or clock.now_us()) - LOOKBACK_US
    async with opened(section, clock, endpoint_clock, since_us=since_us, before=before, say=say) as (platforms, aws):
        run = run if isinstance(run, RunDir) else run()
        journal = Journal(run)
        _note_pause(run, journal, clock)
        collection = Collection(
            platforms,
            journal,
            clock=clock,
            endpoint_clock=endpoint_clock,
            offsets=aws.offsets,
            flush_s=flush_s,
            tail_us=section.tail_us,
            say=say,
        )
        await collection.run(ending.load_ended, ending.stop_now, on_ready)
    return dict(journal.written), run


def _section_of(manifest: Manifest, run_dir: Path) -> CollectSection:
    document = manifest.scenario.get("collect")
    if not document:
        raise BadInputError(f"{run_dir}: its scenario has no [collect]; there is nothing to attach a collector to")
    try:
        return msgspec.convert(document, CollectSection)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{run_dir}: [collect] in its manifest cannot be read ({error})") from error


async def find_endpoint_clock(
    section: CollectSection, emulator_url: str | None, clock: ClientClock
) -> tuple[EndpointClock, bool]:
    """Return the endpoint clock, and whether the platform is emulated."""
    url = emulator_url or (section.endpoint_url if is_loopback(section.endpoint_url) else None)
    if url is None:
        return EndpointClock(), False
    try:
        found = await read_endpoint_clock(url, clock)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise UnreachableError(f"{url}: no answer ({error}); check that `ramptrace emulate` runs there") from error
    if found is None and emulator_url is not None:
        raise BadInputError(f"{url}: no emulator there; give the address that `ramptrace emulate` printed")
    return found or EndpointClock(), found is not None


def _note_pause(run: RunDir, journal: Journal, clock: ClientClock) -> None:
    """File the time since an earlier collector's last heartbeat, if there was one, as a gap of the whole collector."""
    beats = run.scan("samples").filter((pl.col("source") == "collector") & (pl.col("metric") == "heartbeat"))
    last = beats.select(pl.col("received").max()).collect().item()
    if last is not None:
        journal.add("gaps", gap("collector", "stopped", to_us(last), clock.now_us(), "no collector was running"))


def _ending() -> Ending:
    ending = Ending(asyncio.Event(), asyncio.Event())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.ask)
    return ending


def _watch_parent(gone: asyncio.Event) -> None:
    """Set `gone` at the end of standard input: the parent closed it, or died."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        try:
            while os.read(0, 4096):
                pass
        except OSError:
            pass
        # The loop may be closed by then: the collection has ended before its parent did.
        if not loop.is_closed():
            loop.call_soon_threadsafe(gone.set)

    threading.Thread(target=wait, name="parent", daemon=True).start()


async def _end_after(duration_us: int | None, endpoint_clock: EndpointClock, ended: asyncio.Event) -> None:
    if duration_us is not None:
        await asyncio.sleep(duration_us / US_PER_S / endpoint_clock.time_scale)
        ended.set()


def versions() -> dict[str, str]:
    """Return the versions of what a collection depends on."""
    found = {}
    for name in ("ramptrace", "aiobotocore", "botocore", "aiohttp", "polars"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
