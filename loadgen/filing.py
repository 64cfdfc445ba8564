"""Where a run is filed: a new run directory with its manifest, or one that is gone on with."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec

from loadgen.endpoints.base import shown_address
from loadgen.intake import Cut
from loadgen.scenario import Scenario
from loadgen.scenario_file import build_scenario
from traces.clock import EndpointClock
from traces.errors import BadInputError
from traces.manifest import Manifest
from traces.mirror import is_remote
from traces.run import RunDir

_PACKAGES = ("ramptrace", "locust", "gevent", "geventhttpclient", "polars", "botocore")
_CLOCK_TOLERANCE_US = 1_000_000


def new_run(scenario: Scenario, path: Path | None, cut: Cut, clock: EndpointClock | None, now_us: int) -> RunDir:
    """Make the run directory: at `path`, or `<time>-<name>` under the scenario's directory."""
    if path is None:
        refuse_remote(scenario.run.directory)
    name = new_name(scenario)
    manifest = Manifest(
        run_id=f"{name}-{token_hex(3)}",
        name=scenario.name,
        condition=scenario.run.condition,
        emulated=clock is not None,
        created_us=now_us,
        clock=clock or EndpointClock(),
        trace=cut.used,
        laps=cut.laps,
        scenario=filed_scenario(scenario),
        versions=versions(),
        flush_s=scenario.replay.flush_us / 1e6,
    )
    return RunDir.create(path or _free_path(Path(scenario.run.directory) / name), manifest)


def new_name(scenario: Scenario) -> str:
    """Return `<time>-<name>`, the name of a run that begins now."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{_plain_name(scenario.name)}"


def refuse_remote(location: str) -> None:
    """Raise `BadInputError` for a place in S3: whoever writes a run there keeps the copy, and here nobody does."""
    if is_remote(location):
        raise BadInputError(
            f"{location}: a run is written to a local directory here; name one, and `ramptrace mirror` copies it there"
        )


def stopped_run(path: Path) -> tuple[RunDir, Manifest, Scenario]:
    """Return a run that was stopped or killed before its end, its manifest and its scenario.

    Raises `BadInputError` for anything that cannot be gone on with.
    """
    run = RunDir.open(path)
    manifest = run.manifest()
    if manifest.state == "finished":
        raise BadInputError(f"{path}: the run is finished, nothing is left to send; start a new one")
    if manifest.part is not None:
        raise BadInputError(f"{path}: holds only what worker {manifest.part} sent; merge it with `ramptrace merge`")
    if manifest.workers:
        raise BadInputError(
            f"{path}: its load was sent by {len(manifest.workers)} workers, and such a run cannot be gone on with; "
            "start a new one"
        )
    if manifest.trace is None or not (path / "trace.parquet").is_file():
        raise BadInputError(f"{path}: there is no trace.parquet to go on with; start a new run")
    return run, manifest, build_scenario(manifest.scenario, origin=f"{path}/run.json")


def with_address(scenario: Scenario, url: str | None, path: Path) -> Scenario:
    """Return a filed scenario with the target's whole address: `run.json` keeps no query, since it may be a key.

    Raises `BadInputError` where `url` is needed and not given, or is another target's.
    """
    filed = scenario.target.url
    if url is None:
        if filed is None or not filed.endswith("?***"):
            return scenario
        raise BadInputError(f"{path}: run.json does not keep the query of {filed}; give the address with --target")
    if shown_address(url) != filed:
        raise BadInputError(f"--resume goes on with the run's own target, {filed}; it is not {shown_address(url)}")
    return msgspec.structs.replace(scenario, target=msgspec.structs.replace(scenario.target, url=url))


def same_clock(manifest: Manifest, found: EndpointClock | None, path: Path) -> None:
    """Raise `BadInputError` when the endpoint's clock is not the one that the run was begun with."""
    if not manifest.emulated and found is None:
        return
    known = manifest.clock
    if found is not None and manifest.emulated and found.time_scale == known.time_scale:
        off_us = abs(known.to_client_us(found.endpoint_epoch_us) - found.client_epoch_us)
        if off_us <= known.error_us + found.error_us + _CLOCK_TOLERANCE_US:
            return
    raise BadInputError(
        f"{path}: the endpoint's clock is not the one that the run was begun with (another emulator, or restarted); "
        "start a new run"
    )


def filed_scenario(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario as the manifest keeps it: what the target's query says may be a key."""
    document: dict[str, Any] = msgspec.to_builtins(scenario)
    if scenario.target.url is not None:
        document["target"]["url"] = shown_address(scenario.target.url)
    return document


def versions() -> dict[str, str]:
    """Return the versions of what takes part in a replay."""
    found = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _plain_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".")[:60] or "run"


def _free_path(path: Path) -> Path:
    number = 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
