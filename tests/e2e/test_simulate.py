"""Simulated runs: published start-up times, truth within bounds, and what a fit, a sweep and an advice say of them."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median

import msgspec
import polars as pl
import pytest

from analysis.advise import advise
from analysis.analyse import analyse_run
from analysis.pareto import front
from analysis.profile import fit_profile
from loadgen.emulator import virtual_collect
from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.outcome import Objective, demand_of, evaluate
from loadgen.emulator.profiles import names, profile, published_s, with_settings
from loadgen.emulator.virtual import prepare, simulate, start_of
from loadgen.scenario_file import build_scenario
from loadgen.strict_toml import convert_strictly
from tests.random_scale_outs import held
from traces.errors import BadInputError
from traces.run import RunDir, write_parquet
from traces.synth import Lengths, Step, synthesise

pytestmark = pytest.mark.timeout(240)

RANDOM_RUNS = 30


def ramptrace(*arguments, folder):
    command = [sys.executable, "-P", "-m", "ramptrace", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def plan(endpoint: EmulatorConfig, trace="corpus:reference-burst", condition="x"):
    document = {
        "trace": {"path": str(trace)},
        "target": {"kind": "sagemaker", "endpoint_name": "demo", "region": "us-east-1"},
        "collect": {"endpoint_name": "demo", "region": "us-east-1"},
        "run": {"condition": condition},
        "emulator_model": msgspec.to_builtins(endpoint),
    }
    return prepare(build_scenario(document, origin="test"))


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("cached", [False, True])
def test_bundled_profiles_give_the_published_start_up_times(tmp_path, name, cached):
    endpoint = with_settings(profile(name), {"startup": {"image_cache": cached}})
    found = analyse_run(simulate(plan(endpoint), tmp_path / "run", 0).path)
    assert found.manifest.emulated
    assert found.fidelity["verdict"] == "VALID"
    assert found.scale_outs[0].startup_us / 1e6 == pytest.approx(published_s(name)[cached], rel=0.03)


def test_bounds_of_random_scale_outs_hold_the_truth(tmp_path):
    found = [held(seed, tmp_path / str(seed)) for seed in range(RANDOM_RUNS)]
    checks = [check for run in found for check in run.checks]
    assert all(run.exact for run in found)
    assert len(checks) > 10 * RANDOM_RUNS
    outside = [check for check in checks if not check.holds]
    assert len(outside) <= 0.01 * len(checks), outside


def test_readings_left_out_would_have_shown_nothing(tmp_path, monkeypatch):
    endpoint = with_settings(profile("sagemaker-customer-2"), {"startup": {"image_cache": False}})
    shown = []
    for name in ("skipping", "every"):
        if name == "every":
            monkeypatch.setattr(virtual_collect.VirtualCollector, "_would_show_nothing", lambda *_: False)
        run = simulate(plan(endpoint), tmp_path / name, 7)
        rows = run.scan("observations").collect().sort("response_received")
        rows = rows.unique(["source", "native_id"], keep="last").drop("request_sent", "response_received")
        shown.append(rows.sort("source", "native_id"))
    assert shown[0].equals(shown[1])
    assert shown[0].height > 20


def test_the_same_seed_gives_the_same_run(tmp_path):
    tables = []
    for name in ("a", "b"):
        run = simulate(plan(profile("sagemaker-qwen3-8b")), tmp_path / name, 3)
        tables.append([run.scan(table).collect().sort(pl.all()) for table in ("observations", "requests", "samples")])
    assert all(a.equals(b) for a, b in zip(*tables, strict=True))


def test_a_fitted_model_predicts_other_sizes(tmp_path):
    truth = with_settings(
        profile("sagemaker-qwen3-8b"),
        {
            "startup": {
                "transfer_mb_per_s": 310.0,
                "pull_work_per_byte": 2.4,
                "download_share": 0.4,
                "provisioning_s": 95.0,
                "provisioning_jitter_s": 4.0,
                "transfer_spread": 0.03,
                "weights_s": 0.0,
                "weights_s_per_gb": 2.2,
                "cold_page_cache_s": 6.0,
            },
            "serving": {"slots_per_instance": 3},
            "scaling": {"target": 3.0},
        },
    )
    trace = synthesise(
        [Step(length_s=120, rate_per_s=0.6), Step(length_s=1100, rate_per_s=1.6)],
        Lengths(median=500, sigma=0.5, high=2000),
        Lengths(median=70, sigma=0.4, high=300),
        1,
    )
    write_parquet(tmp_path / "load.parquet", trace)
    runs = []
    for cached in (False, True):
        endpoint = with_settings(truth, {"startup": {"image_cache": cached}})
        runs.append(simulate(plan(endpoint, tmp_path / "load.parquet", f"{cached}"), tmp_path / f"{cached}", 1).path)
    document = fit_profile(runs, image_gb=None, model_gb=None, image_cache=None)
    fitted = convert_strictly(document["emulator_model"], EmulatorConfig, origin="fit")
    for name in ("transfer_mb_per_s", "pull_work_per_byte", "download_share", "provisioning_s"):
        interval = document["intervals"]["startup"][name]
        assert interval["lo"] <= interval["value"] <= interval["hi"]
        assert interval["value"] == pytest.approx(getattr(truth.startup, name), rel=0.1)
    load = plan(truth, tmp_path / "load.parquet").load
    demand = demand_of(load)
    for image_gb, model_gb in ((10.0, 8.0), (25.0, 30.0), (6.0, 16.0)):
        for cached in (False, True):
            sizes = {"startup": {"image_gb": image_gb, "model_gb": model_gb, "image_cache": cached}}
            measured, predicted = (
                median(
                    evaluate(
                        with_settings(endpoint, sizes), load, demand, Objective(), start_us=start_of(k), seed=k
                    ).time_to_capacity_s
                    for k in range(20, 25)
                )
                for endpoint in (truth, fitted)
            )
            assert predicted == pytest.approx(measured, rel=0.1)


@pytest.fixture(scope="module")
def slow_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slow")
    done = ramptrace(
        "simulate", "--profile", "sagemaker-qwen3-8b", "--image-cache", "off", "--run-dir", "run", "--json",
        folder=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "run", json.loads(done.stdout)


def test_the_command_files_a_run_like_any_other(slow_run):
    run, printed = slow_run
    entry = printed["runs"][0]
    assert (entry["emulated"], entry["condition"]) == (True, "image-cache-off")
    assert entry["scale_outs"][0]["startup_s"] == pytest.approx(525, rel=0.03)
    assert RunDir.open(run).manifest().simulated == {"seed": 0, "profile": "sagemaker-qwen3-8b"}
    assert (run / "truth.parquet").is_file()


def test_a_fit_is_saved_and_tried_on_the_runs_own_load(slow_run, tmp_path):
    done = ramptrace(
        *("simulate", "--fit", slow_run[0], "-o", "own.toml"), *("--run-dir", "tried", "--json"), folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["fit"]["intervals"]["startup"]["provisioning_s"]["method"] == "prior"
    observed, simulated = (found["check"][name]["startup_s"] for name in ("observed", "simulated"))
    assert simulated[0] == pytest.approx(observed, rel=0.05)
    again = ramptrace("simulate", "--profile", "own.toml", "--run-dir", "again", "--json", folder=tmp_path)
    assert again.returncode == 0, again.stderr


def test_a_sweep_ranks_variants_and_draws_them(tmp_path):
    done = ramptrace(
        "simulate", "--profile", "sagemaker-qwen3-8b", "--sweep", "image-cache=off,on", "--sweep", "min-instances=1,3",
        "--seeds", "3", "--price", "2", "--run-dir", "sweep", "--json",
        folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    points = {point["name"]: point for point in json.loads(done.stdout)["sweep"]["points"]}
    cold, warm = points["image-cache off, min-instances 1"], points["image-cache on, min-instances 1"]
    saved = cold["time_to_capacity_s"]["p50"] - warm["time_to_capacity_s"]["p50"]
    assert saved == pytest.approx(267, abs=12)
    assert points["image-cache on, min-instances 3"]["time_to_capacity_s"]["p95"] == 0
    assert warm["pareto"]
    assert not cold["pareto"]
    assert (tmp_path / "sweep" / "pareto.svg").read_text().startswith("<svg")
    assert pl.read_parquet(tmp_path / "sweep" / "sweep.parquet").height == 4


def test_a_model_that_needs_no_more_units_gives_no_advice(slow_run, tmp_path):
    class Idle:
        """A simulator in which the first units are enough."""

        def predict(self, _run, _window_us, documents, changes, **_more):
            return {name: [{"time_to_capacity_s": 0.0, "horizon_s": 600.0}] * len(documents) for name in changes}

    asked = {"image_gb": None, "model_gb": None, "image_cache": None, "draws": 2, "ttft_s": 2.0, "price_per_hour": None}
    with pytest.raises(BadInputError, match="cannot tell what would help"):
        advise(tmp_path / slow_run[0], Idle(), **asked)


def test_advice_ranks_levers_and_says_what_stands_in_the_way(slow_run, tmp_path):
    done = ramptrace("advise", slow_run[0], "--draws", "8", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    levers = {lever["name"]: lever for lever in found["levers"]}
    effect = levers["image cache"]["effect"]["time_to_capacity_s"]
    assert effect["p05"] <= effect["p50"] <= effect["p95"]
    assert effect["p05"] - 30 < -267 < effect["p95"] + 30
    assert levers["image cache"]["precondition"]["holds"] == "holds"
    for name in ("data cache", "warm pool"):
        assert levers[name]["precondition"]["holds"] == "fails"
        assert levers[name]["alternative"]
    assert "metrics resolution" not in levers, "the alarm's period is 10 s already"
    applying = [lever for lever in found["levers"] if lever["applies"]]
    ranked = [lever["effect"]["time_to_capacity_s"]["p50"] for lever in applying]
    assert ranked == sorted(ranked)
    assert all(lever["evidence"] for lever in found["levers"])
    text = ramptrace("advise", slow_run[0], "--draws", "4", folder=tmp_path)
    assert "EMULATED" in text.stdout
    assert "instead: " in text.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--profile", "sagemaker-qwen3"], 'did you mean "sagemaker-qwen3-8b"'),
        (["--sweep", "image-cash=on,off"], 'did you mean "image-cache"'),
        (["--sweep", "image-cache=maybe"], "expected on or off"),
        (["--sweep", "min-instances"], "expected AXIS=VALUE"),
        (["--fit", "nowhere"], "not a run directory"),
        (["--fit", "nowhere", "--sweep", "target=2"], "two steps"),
    ],
)
def test_bad_input_is_one_line(tmp_path, arguments, told):
    done = ramptrace("simulate", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_front_is_what_nothing_beats():
    points = [(1.0, 5.0, 2.0), (2.0, 5.0, 1.0), (2.0, 6.0, 2.0), (float("inf"), 9.0, 0.5), (1.0, 5.0, 2.0)]
    assert front(points) == [True, True, False, True, True]
