"""ECS, EC2 Auto Scaling and Kubernetes: a replay with its collector, attributed, held to the emulator's ground truth;
and what the emulators speak, read by the real clients.

Requests are few and long, so that time can run 100 times faster.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import aiobotocore.session
import polars as pl
import pytest

from analysis.analyse import RunAnalysis, analyse_run
from tests.emulators import start_emulator
from tests.truth import true_length
from traces.clock import to_us
from traces.run import RunDir, write_parquet
from traces.synth import Lengths, Step, synthesise

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

QUIET_S, BURST_S, TIME_SCALE = 40.0, 330.0, 100
KEYS = ("AKIDTEST", "secret-for-tests")
MODEL = """
[emulator_model.scaling]
low_datapoints = 600  # nothing scales in while the clients look
[emulator_model.serving]
token_s = 0.2
token_full_batch_s = 0.25
prefill_base_s = 0.5
queue_timeout_s = 900.0
[emulator_model.startup]
image_cache = false
image_gb = 5.0
model_gb = 6.0
provisioning_s = 45.0
"""
TROUBLE = """
[emulator_model.cluster]
download = "init-container"
pull_queue_s = 9.0
node_scaler = "cluster-autoscaler"
[emulator_model.faults]
failed_pulls = 1
throttled_share = 0.1
gone_share = 0.3
duplicate_share = 0.5
late_s = 3.0
watch_lasts_s = 40.0
"""
WATCHED = {
    "ecs": '[collect.ecs]\ncluster = "demo"\nservice = "demo"',
    "ec2": '[collect.ec2]\ngroup = "demo"',
    "kubernetes": '[collect.kubernetes]\ndeployment = "demo"\nservice = "demo"\nurl = "{url}"',
}
CASES = {
    "ecs": ("ecs", ""),
    "ec2": ("ec2", ""),
    "kubernetes": ("kubernetes", ""),
    "kubernetes-troubled": ("kubernetes", TROUBLE),
}
SCENARIO = """
name = "{name}"
[trace]
path = "trace.parquet"
[target]
url = "{url}"
[replay]
lead = "500ms"
drain = "1m"
[collect]
region = "us-east-1"
endpoint_url = "{url}"
tail = "400s"
{watched}
[emulator]
url = "{url}"
"""


class Measured(NamedTuple):
    analysis: RunAnalysis
    truth: dict[tuple[str | None, str], int]
    url: str
    folder: Path


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Measure a case once; its emulator goes on until the module ends."""
    made, emulators = {}, []

    def get(name: str) -> Measured:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            platform, trouble = CASES[name]
            (folder / "emulator.toml").write_text(f'[emulator_model]\nplatform = "{platform}"\n{MODEL}{trouble}')
            emulator = start_emulator(
                credentials=KEYS,
                time_scale=TIME_SCALE,
                seed=3,
                scenario=folder / "emulator.toml",
                truth=folder / "truth.parquet",
            )
            url = emulator.__enter__()
            emulators.append(emulator)
            made[name] = measure(name, folder, url)
        return made[name]

    yield get
    for emulator in emulators:
        emulator.__exit__(None, None, None)


def measure(name: str, folder: Path, url: str) -> Measured:
    steps = [Step(length_s=QUIET_S, rate_per_s=0.08), Step(length_s=BURST_S, rate_per_s=0.5)]
    trace = synthesise(steps, Lengths(median=300, sigma=0.5, high=2000), Lengths(median=60, sigma=0.4, high=150), 1)
    write_parquet(folder / "trace.parquet", trace)
    watched = WATCHED[CASES[name][0]].format(url=url)
    (folder / "scenario.toml").write_text(SCENARIO.format(name=name, url=url, watched=watched))
    command = [sys.executable, "-P", "-m", "ramptrace", "replay", "scenario.toml", "--run-dir", "run", "--json"]
    environment = os.environ | {"AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": KEYS[1]}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    # A busy machine may be late; what the platform did is what is measured here.
    assert done.returncode in {0, 5}, done.stderr
    summary = json.loads(done.stdout)
    assert summary["collector"]["state"] == "finished", summary["collector"]
    analysis = analyse_run(folder / "run")
    return Measured(
        analysis, true_instants(folder / "truth.parquet", analysis.scale_outs[0].marginal_unit), url, folder
    )


def true_instants(path: Path, marginal: str | None) -> dict[tuple[str | None, str], int]:
    """Return when each unit's anchors were, and the first decision and the one that asked for the marginal unit.

    An autoscaler may ask for the units of one scale-out in several steps; those after the first are staging.
    """
    rows = pl.read_parquet(path).sort("at").to_dicts()
    found: dict[tuple[str | None, str], int] = {}
    for row in rows:
        found.setdefault((row["unit_id"], row["anchor"]), to_us(row["at"]))
    found[marginal, "first_decision"] = found[None, "decision"]
    step = next(row["scaling_id"] for row in rows if row["unit_id"] == marginal)
    asked = next(row for row in rows if row["anchor"] == "decision" and row["scaling_id"] == step)
    found[None, "decision"] = found[marginal, "decision"] = to_us(asked["at"])
    return found


@pytest.mark.parametrize("name", CASES)
def test_every_anchor_and_phase_holds_the_truth(measured, name: str) -> None:
    found, truth, *_ = measured(name)
    first = found.scale_outs[0]
    assert (first.units_before, first.censored) == (1, False)
    outside = []
    for anchor in first.anchors:
        at = truth.get((anchor.unit_id, anchor.anchor))
        if at is not None and not (anchor.lo_us or 0) <= at <= (anchor.hi_us or 2**62):
            outside.append((anchor.anchor, anchor.unit_id, anchor.lo_us, at, anchor.hi_us, anchor.sources))
    for row in first.phases:
        length = true_length(truth, row.phase, first.marginal_unit)
        if length is not None and row.lo_us is not None and not row.lo_us <= length <= row.hi_us:
            outside.append((row.phase, row.lo_us, length, row.hi_us))
    assert outside == []
    parts = [row.critical_us for row in first.phases if row.parent is None]
    assert sum(parts) == first.time_to_capacity_us


@pytest.mark.parametrize("name", ["ecs", "kubernetes", "kubernetes-troubled"])
def test_pull_is_told_from_provisioning(measured, name: str) -> None:
    phases = {row.phase: row for row in measured(name).analysis.scale_outs[0].phases}
    assert {"provisioning", "pull", "start", "registration"} <= phases.keys()
    assert phases["provisioning"].hi_us - phases["provisioning"].lo_us < 5e6
    # After a failed attempt it is not told when the first one left the node's queue.
    if "troubled" not in name:
        assert phases["pull"].hi_us - phases["pull"].lo_us < 2e6
    # The container fetches the model, or an init container before the pull.
    assert phases["download"].parent == (None if "troubled" in name else "start")


def test_the_wait_for_accelerators_is_told(measured) -> None:
    (finding,) = [f for f in measured("kubernetes").analysis.findings if f.code == "accelerator-wait"]
    assert "2 node(s)" in finding.text


def test_ec2_shows_the_machine_and_the_rest_as_one(measured) -> None:
    phases = [row.phase for row in measured("ec2").analysis.scale_outs[0].phases if row.critical_us > 5_000_000]
    assert phases[:3] == ["detection", "provisioning", "pull+download+start+registration"]


def test_trouble_is_a_gap_and_nothing_comes_twice(measured) -> None:
    found = measured("kubernetes-troubled")
    rows = pl.read_parquet(found.folder / "run/observations/*.parquet")
    told = rows.group_by("source", "native_id", "anchor", "lo", "hi", "unit_id", "detail").len()
    assert told["len"].max() == 1
    gaps = pl.read_parquet(found.folder / "run/gaps/*.parquet")
    assert gaps.filter(pl.col("source").str.starts_with("kubernetes:")).height
    assert "emulated-secret-value" not in "".join(
        path.read_text(errors="replace") for path in (found.folder / "run").rglob("*.json")
    )


# what the emulators speak


def call(url: str, service: str, operation: str, **members):
    async def answer():
        session = aiobotocore.session.get_session()
        client = session.create_client(
            service,
            region_name="us-east-1",
            endpoint_url=url,
            aws_access_key_id=KEYS[0],
            aws_secret_access_key=KEYS[1],
        )
        async with client as opened:
            return await getattr(opened, operation)(**members)

    return asyncio.run(answer())


def aws(url: str, *arguments: str):
    command = shutil.which("aws")
    if command is None:
        pytest.skip("the aws command is not installed")
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": KEYS[0],
        "AWS_SECRET_ACCESS_KEY": KEYS[1],
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    flags = ["--endpoint-url", url, "--region", "us-east-1", "--output", "json"]
    done = subprocess.run(
        [command, *arguments, *flags], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ecs_clients(measured) -> None:
    _, truth, url, _ = measured("ecs")
    arns = call(url, "ecs", "list_tasks", cluster="demo", serviceName="demo", maxResults=2)
    assert len(arns["taskArns"]) == 2
    assert arns["nextToken"]
    unit = next(unit for unit, anchor in truth if anchor == "in_service")
    (task,) = call(url, "ecs", "describe_tasks", cluster="demo", tasks=[unit])["tasks"]
    assert to_us(task["pullStartedAt"]) == truth[unit, "pull_started"] // 1000 * 1000
    machines = [task["containerInstanceArn"]]
    (machine,) = call(url, "ecs", "describe_container_instances", cluster="demo", containerInstances=machines)[
        "containerInstances"
    ]
    assert to_us(machine["registeredAt"]) == truth[unit, "launched"] // 1000 * 1000
    (service,) = aws(url, "ecs", "describe-services", "--cluster", "demo", "--services", "demo")["services"]
    group = service["loadBalancers"][0]["targetGroupArn"]
    health = aws(url, "elbv2", "describe-target-health", "--target-group-arn", group)["TargetHealthDescriptions"]
    assert {"healthy"} <= {found["TargetHealth"]["State"] for found in health}
    definition = call(url, "ecs", "describe_task_definition", taskDefinition=service["taskDefinition"])
    assert definition["taskDefinition"]["containerDefinitions"][0]["logConfiguration"]["logDriver"] == "awslogs"
    with pytest.raises(Exception, match="ClusterNotFoundException"):
        call(url, "ecs", "list_tasks", cluster="other")


def test_ec2_clients(measured) -> None:
    _, truth, url, _ = measured("ec2")
    units = {unit for unit, anchor in truth if anchor == "launched"}
    (group,) = call(url, "autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=["demo"])[
        "AutoScalingGroups"
    ]
    assert {i["InstanceId"] for i in group["Instances"]} >= set()
    activities = aws(url, "autoscaling", "describe-scaling-activities", "--auto-scaling-group-name", "demo")
    told = " ".join(activity["Description"] for activity in activities["Activities"])
    assert all(unit in told for unit in units)
    assert "triggered policy" in activities["Activities"][0]["Cause"]
    ids = [instance["InstanceId"] for instance in group["Instances"]][:1]
    for found in (
        call(url, "ec2", "describe_instances", InstanceIds=ids),
        call(url, "ec2", "describe_instances", Filters=[{"Name": "instance-id", "Values": ids}]),
        aws(url, "ec2", "describe-instances", "--instance-ids", *ids),
    ):
        (instance,) = found["Reservations"][0]["Instances"]
        assert (instance["InstanceId"], instance["State"]["Name"]) == (ids[0], "running")
    with pytest.raises(Exception, match="ValidationError"):
        call(url, "autoscaling", "describe_scaling_activities", AutoScalingGroupName="other")


def test_cluster_autoscalers_status_on_the_wire(measured) -> None:
    _, truth, url, folder = measured("kubernetes-troubled")

    async def read() -> str:
        from kubernetes_asyncio import client

        settings = client.Configuration()
        settings.host = url
        async with client.ApiClient(settings) as api:
            field = "metadata.name=cluster-autoscaler-status"
            for attempt in range(20):
                try:
                    found = await client.CoreV1Api(api).list_namespaced_config_map("kube-system", field_selector=field)
                    break
                except client.ApiException as error:
                    # One call in ten is throttled here, and this client does not try again.
                    if error.status != 429 or attempt == 19:
                        raise
            (item,) = found.items
            return item.data["status"]

    assert asyncio.run(read()).startswith("time: ")
    rows = RunDir.open(folder / "run").scan("observations").collect()
    told = rows.filter(pl.col("source") == "kubernetes:autoscaler-status")
    milestones = {json.loads(detail)["milestone"] for detail in told["detail"]}
    assert {"node-group-scaling", "node-group-ready"} <= milestones
    assert not told["verified"].any()
    assert told.select("source", "native_id").is_unique().all()
    # The group was asked for machines before the last new unit ran on one.
    asked = told.filter(pl.col("native_id").str.contains(":InProgress@"))["lo"].max()
    assert asked is not None
    assert to_us(asked) < max(at for (_, anchor), at in truth.items() if anchor == "launched")


def test_kubernetes_clients(measured) -> None:
    _, truth, url, _ = measured("kubernetes")

    async def read() -> None:
        from kubernetes_asyncio import client, watch

        settings = client.Configuration()
        settings.host = url
        async with client.ApiClient(settings) as api:
            core = client.CoreV1Api(api)
            pods = await core.list_namespaced_pod("default", label_selector="app=demo", limit=1)
            assert len(pods.items) == 1
            nodes = await core.list_node()
            assert any("nvidia.com/gpu" in node.status.allocatable for node in nodes.items)
            deployment = await client.AppsV1Api(api).read_namespaced_deployment("demo", "default")
            assert deployment.spec.selector.match_labels == {"app": "demo"}
            scalers = await client.AutoscalingV2Api(api).list_namespaced_horizontal_pod_autoscaler("default")
            assert scalers.items[0].status.desired_replicas >= 1
            slices = await client.DiscoveryV1Api(api).list_namespaced_endpoint_slice("default")
            assert slices.items[0].address_type == "IPv4"
            reasons = set()
            async for event in watch.Watch().stream(core.list_namespaced_event, "default", timeout_seconds=1):
                reasons.add(event["object"].reason)
            assert {"SuccessfulRescale", "Pulling", "Pulled", "Started", "Scheduled"} <= reasons
            unit = next(unit for unit, anchor in truth if anchor == "in_service")
            log = await core.read_namespaced_pod_log(unit, "default", timestamps=True)
            assert "Application startup complete." in log
            claims = await client.CustomObjectsApi(api).list_cluster_custom_object("karpenter.sh", "v1", "nodeclaims")
            assert claims["items"]
            with pytest.raises(client.ApiException) as refused:
                await core.read_namespaced_pod("none", "default")
            assert refused.value.status == 404

    asyncio.run(read())
