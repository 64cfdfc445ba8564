"""What a configuration says about a start, a component's readings, single instances' metrics, the view of it all."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from loadgen.collect import sagemaker_view
from loadgen.collect.aws import Permission
from loadgen.collect.base import Answer
from loadgen.collect.component_state import ComponentState
from loadgen.collect.doctor import needed_policies
from loadgen.collect.facts import detailed_observability, download_place, facts
from loadgen.collect.image_size import Image, parse_image
from loadgen.collect.instance_metrics import Instances, instance_metrics, instance_rows
from loadgen.collect.platform import ClusterRule
from loadgen.collect.policy import policies
from loadgen.collect.redaction import kept
from loadgen.collect.rows import sample
from loadgen.collect.scaling import takes_away
from loadgen.collect.variant import Watched
from loadgen.scenario import CollectSection, EcsSection
from traces.clock import to_us

OLD, NEW = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)
US = 1_000_000


@pytest.mark.parametrize(
    ("container", "place"),
    [
        ({"ModelDataUrl": "s3://b/m.tar.gz"}, "platform"),
        ({"ModelDataSource": {"S3DataSource": {}}, "Environment": {"HF_MODEL_ID": "/opt/ml/model"}}, "platform"),
        ({"Environment": {"HF_MODEL_ID": "Qwen/Qwen3-8B"}}, "container"),
        ({"Environment": {"OPTION_MODEL_ID": "s3://bucket/qwen/"}}, "container"),
        ({"Environment": {"SM_VLLM_MODEL": "/opt/ml/model"}}, "none"),
        ({"Image": "x"}, "none"),
        ({}, "unknown"),
    ],
)
def test_who_downloads_the_model(container: dict[str, Any], place: str) -> None:
    assert download_place({"PrimaryContainer": container}, None) == place
    assert download_place({"Containers": [container]}, None) == place


def test_a_components_artifact_is_downloaded_by_the_platform() -> None:
    component = {"Specification": {"Container": {"ArtifactUrl": "s3://x", "Environment": {"HF_MODEL_ID": "a/b"}}}}
    assert download_place(None, component) == "platform"
    assert download_place(None, {"Specifications": [{"Container": {"Environment": {"HF_MODEL_ID": "a/b"}}}]}) == (
        "container"
    )


def test_defaults_depend_on_when_a_configuration_was_made() -> None:
    assert detailed_observability({}, OLD) is False
    assert detailed_observability({}, NEW) is True
    assert detailed_observability({"EnableDetailedObservability": False}, NEW) is False
    assert detailed_observability({}, None) is None
    config = {"CreationTime": OLD, "ProductionVariants": [{"VariantName": "v", "InstanceType": "ml.g6.2xlarge"}]}
    found = facts(config, None, None, "v")
    assert (found["config_era"], found["image_caching_expected"]) == ("before-2026-06", None)
    config["CreationTime"] = NEW
    assert facts(config, None, None, "v")["image_caching_expected"] is True
    config["ProductionVariants"] = [{"VariantName": "v", "InstanceType": "ml.m5.large"}]
    assert facts(config, None, None, "v")["image_caching_expected"] is False


class Component:
    """An API that answers with one component after another."""

    def __init__(self, *runtimes: dict[str, Any]) -> None:
        self.runtimes = list(runtimes)
        self.at_us = 0

    async def call(self, operation: str, **asked: Any) -> Answer:
        self.at_us += 1_000
        runtime = self.runtimes.pop(0)
        document = {
            "InferenceComponentName": asked["InferenceComponentName"],
            "InferenceComponentStatus": "InService",
            "RuntimeConfig": runtime,
            "Specification": {"Container": {"Environment": {"HF_TOKEN": "hunter2"}}},
        }
        return Answer(document, self.at_us, self.at_us + 100)


def test_copies_change_between_two_readings() -> None:
    api = Component(
        {"DesiredCopyCount": 0, "CurrentCopyCount": 0},
        {"DesiredCopyCount": 1, "CurrentCopyCount": 0, "PlacementStatus": []},
        # Eventual consistency: a reading that goes backwards is kept as it is.
        {"DesiredCopyCount": 0, "CurrentCopyCount": 0},
        {
            "DesiredCopyCount": 1,
            "CurrentCopyCount": 1,
            "PlacementStatus": [{"InstanceType": "ml.g6.2xlarge", "CurrentCopyCount": 1}],
        },
    )
    source = ComponentState(api, Watched("e", "v", 0, "c"), 1)  # type: ignore[arg-type]
    readings = [asyncio.run(source.poll(0)) for _ in range(4)]
    anchors = [[row["anchor"] for row in reading.observations] for reading in readings]
    assert anchors == [[], ["decision"], [None], ["decision", "in_service"]]
    row = readings[1].observations[0]
    assert (to_us(row["lo"]), to_us(row["hi"]), row["source"]) == (1_000, 2_100, ComponentState.name)
    assert "hunter2" not in str(kept(readings[0].snapshots["describe-inference-component-first"]))


def point(unit: str, metric: str, start_s: int, value: float) -> dict[str, Any]:
    start = {"start_us": start_s * US, "period_us": 10 * US, "received_us": 1}
    return sample("cloudwatch", metric, resource="r", unit_id=unit, value=value, **start)


def test_first_datapoints_enclose_first_service_and_keep_what_they_were() -> None:
    first: dict[tuple[str, str], Any] = {}
    points = [
        point("i-1", "CPUUtilization", 100, 0.0),
        point("i-1", "Invocations", 190, 0.0),
        point("i-1", "Invocations", 200, 3.0),
        point("i-1", "ModelLatency", 230, 9e6),
    ]
    rows = instance_rows(points, "r", first)
    assert [(r["anchor"], r["lo"] and to_us(r["lo"]) // US, r["hi"] and to_us(r["hi"]) // US) for r in rows] == [
        ("launched", None, 110),
        ("first_served", 200, None),
        ("first_served", None, 240),
    ]
    # A later window without them must not move them.
    assert instance_rows([point("i-1", "Invocations", 600, 1.0)], "r", first) == rows


def test_a_copys_metrics_are_asked_for_by_instance_and_container() -> None:
    (query, *_) = instance_metrics(Watched("e", "v", 0, "c"), Instances(["i-0abc-77"], 10))
    assert query.dimensions == {"InferenceComponentName": "c", "InstanceId": "i-0abc", "ContainerId": "77"}
    (query, *_) = instance_metrics(Watched("e", "v"), Instances(["i-0abc"], 10))
    assert query.dimensions == {"EndpointName": "e", "VariantName": "v", "InstanceId": "i-0abc"}
    assert instance_metrics(Watched("e", "v"), Instances()) == []


def test_images_of_private_registries_only() -> None:
    name = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/lmi@sha256:ab12"
    assert parse_image(name) == Image("123456789012", "team/lmi", None, "sha256:ab12")
    assert parse_image("docker.io/vllm/vllm-openai:v0.14") is parse_image(None) is None


@pytest.mark.parametrize(
    ("name", "policy", "away"),
    [
        ("TargetTracking-x-AlarmHigh-1", {"PolicyType": "TargetTrackingScaling"}, False),
        ("TargetTracking-x-AlarmLow-1", {"PolicyType": "TargetTrackingScaling"}, True),
        ("a", {"StepScalingPolicyConfiguration": {"StepAdjustments": [{"ScalingAdjustment": -1}]}}, True),
        ("a", {"StepScalingPolicyConfiguration": {"StepAdjustments": [{"ScalingAdjustment": 2}]}}, False),
        ("a", {}, False),
    ],
)
def test_alarms_that_take_capacity_away(name: str, policy: dict[str, Any], away: bool) -> None:
    assert takes_away(name, policy) is away


def test_policies_name_what_is_called_and_nothing_else() -> None:
    needed = [
        Permission("s", "a", ("s:A",), "", ("arn:{partition}:s:{region}:{account}:x/{endpoint}",)),
        Permission("s", "b", ("s:B",), ""),
        Permission("t", "c", ("t:C", "s:B"), ""),
        ClusterRule("", ("pods",), ("get", "list"), ""),
        ClusterRule("", ("nodes",), ("get", "list"), ""),
        ClusterRule("", ("events",), ("get",), "", namespace="mine"),
        ClusterRule("", ("configmaps",), ("get",), "", namespace="theirs", names=("status",)),
    ]
    found = policies(needed, {"partition": "aws", "region": "r", "endpoint": "demo"})
    scoped, broad = sorted(found["iam"]["Statement"], key=lambda s: s["Resource"], reverse=True)
    assert (scoped["Action"], scoped["Resource"]) == (["s:A"], ["arn:aws:s:r:*:x/demo"])
    assert (broad["Action"], broad["Resource"]) == (["s:B", "t:C"], ["*"])
    assert len({s["Sid"] for s in found["iam"]["Statement"]}) == 2
    assert [
        (role["kind"], role["metadata"].get("namespace"), role["rules"]) for role in found["kubernetes"]["items"]
    ] == [
        ("ClusterRole", None, [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]}]),
        ("Role", "mine", [{"apiGroups": [""], "resources": ["events"], "verbs": ["get"]}]),
        (
            "Role",
            "theirs",
            [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["status"]}],
        ),
    ]
    assert set(policies(needed[:1], {})) == {"iam"}


def test_policies_of_two_platforms_do_not_lend_each_other_names() -> None:
    """Tasks log to groups of their own, which the policy of an endpoint beside them does not narrow down."""
    section = CollectSection(region="r", endpoint_name="e", ecs=EcsSection(cluster="c", service="s"))
    by_action: dict[str, set[str]] = {}
    for statement in needed_policies(section)["iam"]["Statement"]:
        for action in statement["Action"]:
            by_action.setdefault(action, set()).update(statement["Resource"])
    groups = {f"arn:aws:logs:r:*:log-group:{name}" for name in ("*", "/aws/sagemaker/*")}
    assert by_action["logs:FilterLogEvents"] == groups
    assert by_action["ecs:DescribeServices"] == {"arn:aws:ecs:r:*:service/c/s"}
    assert by_action["sagemaker:DescribeEndpoint"] == {"arn:aws:sagemaker:r:*:endpoint/e"}


def test_the_view_says_what_stands_in_the_way() -> None:
    nothing = {finding.topic: finding.status for finding in sagemaker_view.findings({})}
    assert nothing["scaling limits"] == nothing["alarms"] == "fail"
    stuck = {"scalable-targets": {"ScalableTargets": [{"MinCapacity": 2, "MaxCapacity": 2}]}}
    assert "no scale-out" in sagemaker_view.findings(stuck)[0].text
    sights = {view.phase: view.sight for view in sagemaker_view.phases({})}
    assert sights["download"] == "bounded"
    assert sights["emission"] == "invisible"
    good = {"endpoint-facts": {"detailed_observability": True, "enhanced_metrics": True}}
    assert {v.phase: v.sight for v in sagemaker_view.phases(good)}["download"] == "measured"
    assert all(
        view.advice or view.sight != "invisible" or view.phase == "evaluation" for view in sagemaker_view.phases({})
    )
