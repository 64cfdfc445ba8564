"""An inference component from zero: its failures are demand, its copies and instances are seen; doctor and backfill."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from analysis.analyse import analyse_run
from tests.e2e.collecting import Instants, collect_during, instants_of, make_run, outside
from tests.emulators import start_emulator
from tests.loadgen.collect.running import CREDENTIALS, wait_until
from traces.run import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

MODEL = """
[emulator_model]
enhanced_metrics = true
metric_publish_s = 10
[emulator_model.component]
copies_per_instance = 2
[emulator_model.scaling]
min_instances = 0
max_instances = 4
[emulator_model.serving]
token_s = 1.0
token_full_batch_s = 1.1
queue_timeout_s = 3600.0
[emulator_model.startup]
image_cache = false
provisioning_s = 20.0
image_gb = 3.0
model_gb = 2.0
"""


class Collected(NamedTuple):
    run: RunDir
    past: RunDir
    truth: Instants
    told: dict[str, dict]
    doctor: dict
    policy: dict


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Collected:
    folder = tmp_path_factory.mktemp("component")
    (folder / "model.toml").write_text(MODEL)
    truth_file = folder / "truth.parquet"
    keys = (CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"])
    with start_emulator(
        credentials=keys, time_scale=40, seed=2, scenario=folder / "model.toml", truth=truth_file
    ) as url:
        watched = ["--endpoint-name", "demo", "--inference-component", "demo-component", "--region", "us-east-1"]
        watched += ["--endpoint-url", url]
        run = asyncio.run(_collect(url, folder))
        past = _ramptrace("collect", *watched, "--since", "1h", "--run-dir", str(folder / "past"), "--json")
        doctor = _ramptrace("doctor", *watched, "--json")
        policy = _ramptrace("doctor", *watched, "--print-policy")
        wait_until(truth_file.exists, "the truth")
    told = {one["source"]: one for one in past["sources"]}
    truth = instants_of(pl.read_parquet(truth_file))
    return Collected(run, RunDir.open(folder / "past"), truth, told, doctor, policy)


async def _collect(url: str, folder: Path) -> RunDir:
    run = await make_run(url, folder / "run", inference_component="demo-component")
    await collect_during(run, url, requests=12, seconds=9)
    return run


def _ramptrace(*arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ramptrace", *arguments],
        env=os.environ | CREDENTIALS,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_anchor_holds_the_truth(collected: Collected) -> None:
    scale_outs = analyse_run(collected.run.path).scale_outs
    assert scale_outs
    assert outside(scale_outs, collected.truth) == []
    seen = {anchor.anchor for scale_out in scale_outs for anchor in scale_out.anchors}
    assert {"alarm", "decision", "container_started", "load_finished", "in_service"} <= seen


def test_failures_from_zero_are_demand(collected: Collected) -> None:
    failures = collected.run.scan("samples").filter(pl.col("metric") == "NoCapacityInvocationFailures").collect()
    assert failures["value"].sum() > 0
    rows = collected.run.scan("observations").collect()
    decided = rows.filter((pl.col("anchor") == "decision") & pl.col("scaling_id").is_not_null()).sort("lo")
    assert "demo-from-zero" in decided["detail"][0]
    assert json.loads(decided["detail"][0])["desired"] == 1


def test_copies_and_the_instances_beneath_them(collected: Collected) -> None:
    rows = collected.run.scan("observations").collect()
    copies = rows.filter(pl.col("source") == "sagemaker:describe-inference-component")
    assert {"decision", "in_service"} <= set(copies["anchor"])
    beneath = rows.filter((pl.col("source") == "sagemaker:describe-endpoint") & pl.col("anchor").is_not_null())
    # More instances serve nothing by themselves, and nobody decided on them.
    assert set(beneath["anchor"]) == {"launched"}
    assert set(rows["resource"]) == {"inference-component/demo-component"}
    units = rows.filter(pl.col("source") == "logs:first-event")["unit_id"]
    assert all(unit.startswith("i-") and unit.count("-") == 2 for unit in units)
    served = rows.filter(pl.col("anchor") == "first_served")
    for row in served.iter_rows(named=True):
        instants = collected.truth[row["unit_id"], "first_served"]
        assert row["lo"] is None or int(row["lo"].timestamp() * 1e6) <= instants[0]
        assert row["hi"] is None or int(row["hi"].timestamp() * 1e6) >= instants[0]
    assert not served.is_empty()


def test_the_past_is_read_from_what_is_kept(collected: Collected) -> None:
    past = collected.past.scan("observations").collect()
    live = collected.run.scan("observations").collect()
    kept = ["application-autoscaling:activity", "logs:first-event", "logs:pattern", "promql:container_start_time"]
    for source in kept:
        found, seen = (set(rows.filter(pl.col("source") == source)["native_id"]) for rows in (past, live))
        assert seen <= found
    assert collected.told["application-autoscaling:activity"]["kept"] == "all"
    assert collected.told["sagemaker:describe-endpoint"]["kept"] == "nothing"
    assert collected.past.scan("samples").filter(pl.col("source") == "cloudwatch").collect().height > 0
    manifest = collected.past.manifest()
    assert (manifest.state, manifest.emulated) == ("finished", True)
    assert analyse_run(collected.past.path).scale_outs


def test_the_doctor_says_what_will_be_seen(collected: Collected) -> None:
    found = {finding["topic"]: finding for finding in collected.doctor["findings"]}
    assert collected.doctor["ok"]
    assert found["identity"]["text"] == "arn:aws:iam::***:user/emulated"
    assert {f["status"] for topic, f in found.items() if topic.startswith("permission ")} <= {"ok", "unknown"}
    assert found["permission cloudwatch:GetMetricData"]["status"] == "ok"
    assert found["metric resolution"]["text"] == "10 s"
    assert found["model download"]["text"] == "by the platform"
    assert [view["phase"] for view in collected.doctor["phases"]][:4] == [
        "emission",
        "evaluation",
        "decision",
        "provisioning",
    ]
    (scoped,) = [s for s in collected.policy["Statement"] if "sagemaker:DescribeEndpoint" in s["Action"]]
    assert scoped["Resource"] == ["arn:aws:sagemaker:us-east-1:*:endpoint/demo"]
    actions = [action for statement in collected.policy["Statement"] for action in statement["Action"]]
    verbs = ("Describe", "List", "Get", "Filter", "Query")
    assert all(action.split(":")[1].startswith(verbs) for action in actions)
