"""What `ramptrace simulate` does, given its options: runs of several seeds, a sweep, or a fit and its check."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import polars as pl
import tomli_w

from loadgen.emulator.config import TABLE
from loadgen.emulator.levers import apply, variants
from loadgen.emulator.outcome import Objective, demand_of, unit_rate
from loadgen.emulator.profiles import profile
from loadgen.emulator.sweep import sweep
from loadgen.emulator.virtual import Simulation, prepare, simulate
from loadgen.scenario import Scenario
from loadgen.scenario_file import build_scenario, load_scenario
from traces.errors import BadInputError
from traces.run import RunDir, write_atomically, write_parquet

_DEFAULT_TRACE = "corpus:reference-burst"


class Analysis(Protocol):
    """What the analysis does for a simulation: the module `analysis.simulated`."""

    def analysed(self, paths: Sequence[Path]) -> list[Any]:
        """Return the analyses of runs."""
        ...

    def entries(self, found: Sequence[Any]) -> list[dict[str, Any]]:
        """Return their JSON objects."""
        ...

    def texts(self, found: Sequence[Any]) -> str:
        """Return their summaries."""
        ...

    def fit_profile(
        self, paths: Sequence[Path], *, image_gb: float | None, model_gb: float | None, image_cache: bool | None
    ) -> dict[str, Any]:
        """Return the profile that runs tell."""
        ...

    def with_front(self, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return sweep points with their name and whether nothing beats them."""
        ...

    def picture(self, sweep: dict[str, Any], path: Path) -> Path | None:
        """Write the sweep's picture where that is possible."""
        ...


def scenario_of(
    file: str | None, trace: str | None, name: str | None, image_cache: str | None, condition: str | None
) -> Scenario:
    """Return the scenario to simulate: a file's, or the reference burst's, with an endpoint laid over it."""
    if file is None:
        scenario = build_scenario(
            {
                "name": "simulate" if name is None else Path(name).stem,
                "trace": {"path": trace or _DEFAULT_TRACE},
                "target": {"kind": "sagemaker", "endpoint_name": "demo", "region": "us-east-1"},
                "collect": {"endpoint_name": "demo", "region": "us-east-1", "tail": "5m"},
            },
            origin="command line",
        )
    else:
        scenario = load_scenario(file)
        if trace is not None:
            scenario = msgspec.structs.replace(
                scenario, trace=msgspec.structs.replace(scenario.trace, path=trace, format=None)
            )
    endpoint = scenario.emulator_model if name is None else profile(name)
    if image_cache is not None:
        endpoint = apply(endpoint or profile("sagemaker-qwen3-8b"), "image-cache", image_cache)
    if condition is None and scenario.run.condition is None and image_cache is not None:
        condition = f"image-cache-{image_cache}"
    run = msgspec.structs.replace(scenario.run, condition=condition or scenario.run.condition)
    return msgspec.structs.replace(scenario, emulator_model=endpoint, run=run)


def run_folder(scenario: Scenario, given: str | None) -> Path:
    """Return where to file what is simulated; nothing may be there yet."""
    if given is not None:
        folder = Path(given)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise BadInputError(f"{folder}: is there already and not empty; choose another directory with --run-dir")
        return folder
    stamp = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{scenario.name}"
    folder, number = Path(scenario.run.directory) / stamp, 1
    while folder.exists():
        number += 1
        folder = Path(scenario.run.directory) / f"{stamp}-{number}"
    return folder


def simulate_runs(plan: Simulation, folder: Path, seeds: Sequence[int]) -> list[Path]:
    """Simulate one run per seed; a single one lies in the folder itself."""
    paths = [folder] if len(seeds) == 1 else [folder / f"seed-{seed}" for seed in seeds]
    return [simulate(plan, path, seed).path for path, seed in zip(paths, seeds, strict=True)]


def run_sweep(
    plan: Simulation,
    axes: Sequence[tuple[str, Sequence[str]]],
    seeds: Sequence[int],
    objective: Objective,
    *,
    currency: str,
    analysis: Analysis,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Return the sweep as its JSON object: what was held against what, and a point per combination."""
    chosen = variants(plan.endpoint, axes)
    demand = demand_of(plan.load)
    total, done = len(chosen) * len(seeds), 0

    def tick(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    points = sweep(chosen, plan.load, demand, seeds, objective, progress=tick)
    return {
        "emulated": True,
        "trace": plan.cut.used.source,
        "profile": plan.profile,
        "axes": {name: list(values) for name, values in axes},
        "seeds": len(seeds),
        "ttft_s": objective.ttft_s,
        "currency": currency,
        "demand": {
            "onset_s": demand.onset_us / 1e6,
            "requests_per_s": demand.rate_per_s,
            "unit_requests_per_s": unit_rate(plan.endpoint.serving, plan.load),
        },
        "points": analysis.with_front([msgspec.to_builtins(point) for point in points]),
    }


def write_sweep(found: dict[str, Any], folder: Path, analysis: Analysis) -> dict[str, str | None]:
    """Write a sweep's document, table and picture into a folder; returns where each lies."""
    folder.mkdir(parents=True, exist_ok=True)
    document = folder / "sweep.json"
    write_atomically(document, msgspec.json.format(msgspec.json.encode(found), indent=2))
    table = folder / "sweep.parquet"
    write_parquet(table, pl.DataFrame([_flat(point) for point in found["points"]], infer_schema_length=None))
    picture = analysis.picture(found, folder / "pareto.svg")
    return {"json": str(document), "table": str(table), "picture": None if picture is None else str(picture)}


def save_fit(
    runs: Sequence[Path],
    output: Path | None,
    analysis: Analysis,
    *,
    image_gb: float | None,
    model_gb: float | None,
    image_cache: bool | None,
) -> tuple[dict[str, Any], Path]:
    """Fit a profile to measured runs and save it; returns it, as any reader will find it, and where it lies."""
    document = analysis.fit_profile(runs, image_gb=image_gb, model_gb=model_gb, image_cache=image_cache)
    path = output or runs[-1] / "analysis" / "profile.toml"
    if path.suffix != ".toml":
        raise BadInputError(f"{path}: a profile is a .toml file; name it so")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, tomli_w.dumps(document).encode())
    profile(str(path))
    return document, path


def scenario_of_run(run: Path, name: str) -> Scenario:
    """Return the scenario that gives a measured run's own load to the endpoint of a profile."""
    manifest = RunDir.open(run).manifest()
    if not (run / "trace.parquet").is_file():
        raise BadInputError(f"{run}: there is no trace.parquet, so that its load is not known; name a SCENARIO")
    endpoint = profile(name)
    document: dict[str, Any] = {
        "name": f"fitted-{manifest.name}",
        "trace": {"path": str(run / "trace.parquet")},
        "target": {"kind": "sagemaker", "endpoint_name": endpoint.endpoint_name, "region": endpoint.region},
        "collect": {"endpoint_name": endpoint.endpoint_name, "region": endpoint.region, "tail": "5m"},
        "run": {"condition": f"{manifest.condition or manifest.run_id}-fitted"},
        TABLE: msgspec.to_builtins(endpoint),
    }
    replay = manifest.scenario.get("replay") or {}
    kept = {key: replay[key] for key in ("default_input_tokens", "default_output_tokens", "warm_up") if key in replay}
    return build_scenario({**document, "replay": kept}, origin=str(run))


def plan_of(scenario: Scenario, name: str | None) -> Simulation:
    """Return a scenario's simulation."""
    return prepare(scenario, name)


def _flat(point: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": point["name"], **point["values"]}
    for key, value in point.items():
        if key in {"name", "values"}:
            continue
        row |= {f"{key}_{rank}": number for rank, number in value.items()} if isinstance(value, dict) else {key: value}
    return row
