"""A past stretch read from what the platforms still keep: the observations of an incident, without any load test."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from loadgen.collect.base import Looking, MissingError, Reading, Row, Source, SourceError, Stream
from loadgen.collect.journal import Journal
from loadgen.collect.opening import opened
from loadgen.collect.platform import Platform, Say
from loadgen.collect.redaction import said
from loadgen.collect.rows import gap
from loadgen.collect.session import find_endpoint_clock, versions
from loadgen.scenario import CollectSection
from traces.clock import CLOCK_SNAPSHOT, ClientClock, clock_snapshot, to_datetime, to_us
from traces.errors import BadInputError
from traces.manifest import Manifest
from traces.run import RunDir
from traces.units import US_PER_S, parse_duration_us

_POLLS_AT_MOST = 100
_TRIES = 3


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What one source could still tell of the stretch: `all`, `part` of it, `nothing`, or it `failed`."""

    source: str
    kept: str
    observations: int = 0
    samples: int = 0
    detail: str | None = None


async def backfill(
    section: CollectSection,
    since: str,
    until: str | None,
    *,
    run_dir: Path | None,
    directory: str,
    condition: str | None,
    emulator_url: str | None,
    say: Say,
) -> tuple[Path, list[Told]]:
    """Read the stretch into a new run; `since` and `until` are instants, or how long ago (endpoint time).

    Returns the run's path and what each source could tell.
    """
    clock = ClientClock()
    endpoint_clock, emulated = await find_endpoint_clock(section, emulator_url, clock)
    now_us = endpoint_clock.to_endpoint_us(clock.now_us())
    since_us = instant_of(since, now_us, "--since")
    until_us = now_us if until is None else instant_of(until, now_us, "--until")
    if not since_us < until_us <= now_us:
        raise BadInputError("--since must lie before --until, and --until not in the future")
    name = f"backfill-{section.label}"
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(clock.now_us() // US_PER_S))
    path = run_dir or Path(directory) / f"{stamp}-{name}"
    RunDir.refuse_existing(path)
    scope = {"since_us": since_us, "until_us": until_us}
    async with opened(section, clock, endpoint_clock, say=say, **scope) as (platforms, aws):
        manifest = Manifest(
            run_id=path.name,
            name=name,
            condition=condition,
            emulated=emulated,
            created_us=endpoint_clock.to_client_us(since_us),
            finished_us=endpoint_clock.to_client_us(until_us),
            clock=endpoint_clock,
            scenario={"collect": msgspec.to_builtins(section)},
            versions=versions(),
        )
        run = RunDir.create(path, manifest)
        say(f"reading {section.label} from {to_datetime(since_us):%F %T} to {to_datetime(until_us):%F %T} into {path}")
        journal = Journal(run)
        told = [
            await _read(source, platform, journal, span_us=(since_us, until_us), now_us=now_us, clock=clock)
            for platform in platforms
            for source in platform.sources()
        ]
        journal.note(CLOCK_SNAPSHOT, clock_snapshot(aws.offsets.bounds()))
        journal.write(journal.cut())
    for table in journal.written:
        run.compact(table)
    manifest.state = "finished"
    manifest.collector = {"rows": dict(journal.written), "backfill": msgspec.to_builtins(told)}
    run.write_manifest(manifest)
    return path, told


def instant_of(text: str, now_us: int, option: str) -> int:
    """Return the instant (µs) that a text states: ISO with its zone, or how long before `now_us`.

    >>> instant_of("90s", 1_782_900_000_000_000, "--since") == 1_782_899_910_000_000
    True
    """
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now_us - parse_duration_us(text)
        except BadInputError:
            raise BadInputError(
                f'{option}: "{text}" is neither an instant such as 2026-07-01T10:00:00Z nor a length such as 6h'
            ) from None
    if instant.tzinfo is None:
        raise BadInputError(f"{option}: {text} has no zone; write {text}Z for UTC")
    return to_us(instant)


async def _read(
    source: Source | Stream,
    platform: Platform,
    journal: Journal,
    *,
    span_us: tuple[int, int],
    now_us: int,
    clock: ClientClock,
) -> Told:
    """Read one source's part of the stretch, and file what it does not keep any more as a gap."""
    since_us, until_us = span_us
    started_us = clock.now_us()
    oldest_us = since_us if source.kept_us is None else now_us - source.kept_us
    polled = isinstance(source, Source)
    read = _reader(source, until_us)
    if read is None:
        return Told(source=source.name, kept="nothing", detail="it tells only while it happens")
    found = [0, 0]
    try:
        for _ in range(_POLLS_AT_MOST):
            reading = await _patiently(read)
            reading.observations = [row for row in reading.observations if _in_span(row, span_us)]
            reading.samples = [row for row in reading.samples if since_us <= to_us(row["start"]) <= until_us]
            before = journal.pending()
            journal.take(reading, platform.name)
            new = [after - earlier for after, earlier in zip(journal.pending(), before, strict=True)]
            found = [total + more for total, more in zip(found, new, strict=True)]
            if reading.failures:
                raise reading.failures[0]
            if not any(new) or not polled:
                break
    except MissingError as error:
        return Told(source=source.name, kept="nothing", detail=str(error))
    except SourceError as error:
        journal.add("gaps", gap(source.name, error.reason, started_us, None, str(error)))
        return Told(source=source.name, kept="failed", observations=found[0], samples=found[1], detail=str(error))
    if source.kept_us == 0 and not polled:
        kept = "part" if any(found) else "nothing"
        detail = "of objects that still exist; those deleted since tell nothing"
        return Told(source=source.name, kept=kept, observations=found[0], samples=found[1], detail=detail)
    if source.kept_us == 0:
        return Told(source=source.name, kept="nothing", detail="only the present state is kept, and was read")
    if oldest_us <= since_us:
        return Told(source=source.name, kept="all", observations=found[0], samples=found[1])
    end_us = min(oldest_us, until_us)
    detail = f"kept for {(source.kept_us or 0) / 86_400e6:g} days; expired before {to_datetime(oldest_us):%F %T}"
    to_client_us = _to_client(clock, now_us)
    journal.add("gaps", gap(source.name, "expired", to_client_us(since_us), to_client_us(end_us), detail))
    kept = "part" if oldest_us < until_us else "nothing"
    return Told(source=source.name, kept=kept, observations=found[0], samples=found[1], detail=detail)


def _to_client(clock: ClientClock, now_us: int) -> Any:
    present_us = clock.now_us()
    return lambda endpoint_us: present_us - (now_us - endpoint_us)


def _reader(source: Source | Stream, until_us: int) -> Callable[[], Awaitable[Reading]] | None:
    """Return how a source is read once; `None` for a stream that cannot be."""
    if isinstance(source, Source):
        return partial(source.poll, until_us)
    return source.look if isinstance(source, Looking) else None


async def _patiently(read: Callable[[], Awaitable[Reading]]) -> Reading:
    for attempt in range(_TRIES):
        try:
            return await read()
        except SourceError as error:
            if error.retry_s is None or attempt == _TRIES - 1:
                raise
        except Exception as error:
            # A strange answer, or an adapter's bug, must not end the whole reading.
            raise SourceError(f"{type(error).__name__}: {said(error)}") from error
    raise AssertionError


def _in_span(row: Row, span_us: tuple[int, int]) -> bool:
    ends: Sequence[Any] = [at for at in (row["lo"], row["hi"]) if at is not None]
    return any(span_us[0] <= to_us(at) <= span_us[1] for at in ends)
