"""The virtual driver: a whole run, from the first arrival to the last reading, into a run directory without waiting.

The same model as the live emulator's, asked by the same collector sources at the same pace; only the clock, the network
and the load generator are left out: a request is sent when it is due, and its tokens are received when they are given.
"""

from __future__ import annotations

import random
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import polars as pl
import polars.selectors as cs

from loadgen.collect.session import LOOKBACK_US
from loadgen.collect.variant import Watched
from loadgen.emulator.config import EmulatorConfig, to_us
from loadgen.emulator.virtual_collect import HEARTBEAT_US, VirtualCollector
from loadgen.emulator.virtual_load import Load, load_of
from loadgen.emulator.virtual_model import VirtualModel
from loadgen.emulator.virtual_platform import VirtualPlatform
from loadgen.emulator.virtual_requests import requests_of
from loadgen.intake import Cut, cut_trace, write_trace
from loadgen.scenario import CollectSection, ReplaySection, Scenario
from traces.manifest import Manifest, Stretch
from traces.run import RunDir, write_parquet
from traces.schema import Truth
from traces.units import US_PER_S

EPOCH_US = 1_767_225_600 * US_PER_S
"""2026-01-01T00:00:00Z: simulated runs begin in the minute after it, so that a seed always gives the same run."""

_LEAD_US = 5 * US_PER_S
_MINUTE_US = 60 * US_PER_S
_PACKAGES = ("ramptrace", "botocore", "polars")


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """What is simulated: a scenario's trace and timing against an endpoint."""

    scenario: Scenario
    endpoint: EmulatorConfig
    cut: Cut
    load: Load
    profile: str | None = None


def prepare(scenario: Scenario, profile: str | None = None) -> Simulation:
    """Return a scenario's simulation; its endpoint is `emulator_model` under the names that the scenario uses."""
    cut = cut_trace(scenario)
    load = load_of(cut.frame.collect(), scenario.replay, cut.laps)
    return Simulation(scenario=scenario, endpoint=_endpoint(scenario), cut=cut, load=load, profile=profile)


def start_of(seed: int) -> int:
    """Return when a simulated load starts: where in the minute depends on the seed, since metrics have periods."""
    return EPOCH_US + _MINUTE_US + random.Random(f"{seed}:phase").randrange(_MINUTE_US)


def simulate(plan: Simulation, path: Path, seed: int) -> RunDir:
    """Simulate into a new run directory at `path` and return it, finished."""
    scenario = plan.scenario
    section = scenario.collect or CollectSection(endpoint_name=plan.endpoint.endpoint_name)
    start_us = start_of(seed)
    # What the client stamps, it stamps by its own clock.
    skew_us = to_us(plan.endpoint.faults.clock_skew_s)
    began_us = start_us - skew_us
    manifest = Manifest(
        run_id=path.name,
        name=scenario.name,
        condition=scenario.run.condition,
        emulated=True,
        simulated={"seed": seed, "profile": plan.profile},
        created_us=began_us - _LEAD_US,
        t0_us=began_us,
        trace=plan.cut.used,
        scenario=msgspec.to_builtins(msgspec.structs.replace(scenario, collect=section, emulator_model=plan.endpoint)),
        versions=_versions(),
        flush_s=HEARTBEAT_US / US_PER_S,
        laps=plan.cut.laps,
        stretches=[_stretch(scenario.replay, began_us)],
    )
    run = RunDir.create(path, manifest)
    write_trace(plan.cut.frame, run.path)
    model = VirtualModel(plan.endpoint, seed, start_us, plan.load)
    platform = VirtualPlatform(model, lambda to_us: model.advance(max(to_us, model.now_us)), seed)
    since_us = manifest.created_us - LOOKBACK_US
    watched = Watched(plan.endpoint.endpoint_name, section.variant, since_us, section.inference_component)
    platform.begin(start_us - _LEAD_US)
    collector = VirtualCollector(run, platform, section, watched, seed)
    collector.collect(start_us + plan.load.last_us + section.tail_us)
    end_us = model.finish(drain_us=scenario.replay.drain_us)
    folder = run.path / "requests"
    folder.mkdir()
    requests = requests_of(plan.load, model.queue, start_us, end_us)
    requests = requests.with_columns(cs.datetime() - pl.duration(microseconds=skew_us))
    write_parquet(folder / "worker0-000000.parquet", requests)
    rows = [row.as_row() for row in model.truth()]
    write_parquet(run.path / "truth.parquet", pl.DataFrame(rows, schema=pl.Schema(Truth)))
    for table in ("observations", "samples"):
        run.compact(table)
    manifest.state, manifest.finished_us = "finished", end_us - skew_us
    manifest.collector = {"state": "finished", "exit_code": 0, "rows": collector.written()}
    manifest.verdict = {"status": "VALID", "reasons": []}
    run.write_manifest(manifest)
    return run


def _endpoint(scenario: Scenario) -> EmulatorConfig:
    """Return the endpoint to model, under the names that the scenario calls it by."""
    endpoint = scenario.emulator_model or EmulatorConfig()
    section, target = scenario.collect, scenario.target
    if section is None:
        name, region = target.endpoint_name, target.region
        return msgspec.structs.replace(
            endpoint, endpoint_name=name or endpoint.endpoint_name, region=region or endpoint.region
        )
    return msgspec.structs.replace(
        endpoint,
        endpoint_name=section.endpoint_name or endpoint.endpoint_name,
        variant=section.variant,
        region=section.region or target.region or endpoint.region,
    )


def _stretch(replay: ReplaySection, start_us: int) -> Stretch:
    warm_up_until_us = start_us + replay.warm_up_us if replay.warm_up_us else None
    return Stretch(t0_us=start_us, began_us=start_us, warm_up_until_us=warm_up_until_us)


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
