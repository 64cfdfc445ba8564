"""The doctor before ECS, EC2 Auto Scaling, Kubernetes and plain units: what is seen, what denied, what missing."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from loadgen.collect.doctor import Diagnosis, examine
from loadgen.collect.platform import Finding
from loadgen.scenario import CollectSection
from tests.emulators import start_emulator
from tests.loadgen.collect.running import CREDENTIALS

PHASES = ["emission", "evaluation", "decision", "provisioning", "pull", "download", "start", "weights"]
PHASES += ["registration", "recovery"]
WATCHED = {
    "ecs": {"ecs": {"cluster": "demo", "service": "demo"}},
    "ec2": {"ec2": {"group": "demo"}},
    "kubernetes": {"kubernetes": {"deployment": "demo", "service": "demo", "url": "URL"}},
}
TROUBLE = """
[emulator_model.scaling]
policy = "none"
[emulator_model.cluster]
node_scaler = "cluster-autoscaler"
[emulator_model.faults]
denied = {denied}
"""


def examined(
    platform: str, monkeypatch: pytest.MonkeyPatch, model: Path | None = None, *, probed: bool = False
) -> Diagnosis:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    keys = (CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"])
    with start_emulator(platform=platform, credentials=keys, time_scale=20, scenario=model) as url:
        tables = msgspec.json.decode(msgspec.json.encode(WATCHED[platform]).replace(b"URL", url.encode()))
        aws = {"region": "us-east-1", "endpoint_url": url} if platform != "kubernetes" else {}
        probe = {"probe": {"units": {"a": url, "b": "http://127.0.0.1:9"}}} if probed else {}
        section = msgspec.convert({**aws, **tables, **probe}, CollectSection)
        return asyncio.run(examine(section, url, lambda _line: None))


def topics(found: Diagnosis) -> dict[str, Finding]:
    """Return the findings by topic; of several about one topic the worst."""
    order = ("ok", "unknown", "warn", "fail")
    return {f.topic: f for f in sorted(found.findings, key=lambda f: order.index(f.status))}


def test_a_service_on_ecs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined("ecs", monkeypatch)
    told, seen = topics(found), {view.phase: view for view in found.phases}
    assert not found.failed
    assert list(seen) == PHASES
    assert {seen[phase].sight for phase in ("decision", "provisioning", "pull", "download", "weights")} == {"measured"}
    assert seen["registration"].sight == "bounded"
    assert told["identity"].text == "arn:aws:iam::***:user/emulated"
    assert {f.status for topic, f in told.items() if topic.startswith("permission ")} == {"ok"}
    assert told["scaling limits"].text == "1 to 3 units"
    assert told["container log"].text == "/ecs/demo"
    assert told["capacity provider"].text == "demo-machines, of the group demo-machines"
    assert told["clock"].status == "ok"


def test_a_group_on_ec2(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined("ec2", monkeypatch)
    told, seen = topics(found), {view.phase: view for view in found.phases}
    assert not found.failed
    assert list(seen) == PHASES
    assert (seen["provisioning"].sight, seen["pull"].sight) == ("measured", "invisible")
    assert "probe_port" in str(seen["pull"].advice)
    assert told["metric resolution"].text == "10 s"
    assert told["permission autoscaling:DescribePolicies"].status == "ok"


def test_a_deployment_on_kubernetes_and_units_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined("kubernetes", monkeypatch, probed=True)
    told = topics(found)
    views, of_units = found.phases[: len(PHASES)], found.phases[len(PHASES) :]
    seen = {view.phase: view for view in views}
    assert not found.failed
    assert list(seen) == [view.phase for view in of_units] == PHASES
    measured = ("decision", "provisioning", "pull", "download", "start", "weights", "registration")
    assert {seen[phase].sight for phase in measured} == {"measured"}
    assert told["identity"].text.startswith("emulated at http://127.0.0.1:")
    allowed = {topic for topic, f in told.items() if topic.startswith("permission ") and f.status == "ok"}
    assert {"permission pods (get, list, watch)", "permission pods/log (get)"} <= allowed
    assert told["permission scaledobjects (get, list, watch)"].text == "the cluster has none"
    assert told["scaling policies"].text == "horizontalpodautoscaler-demo"
    assert (told["unit a"].text, told["unit b"].text) == ("ready", "unreachable")
    assert {view.phase: view.sight for view in of_units}["weights"] == "bounded"
    assert told["clock"].status == "ok"


CASES = {
    "ecs": ("elbv2:DescribeTargetHealth", "ecs:DescribeTasks"),
    "ec2": ("ec2:DescribeInstances", "autoscaling:DescribeScalingActivities"),
    "kubernetes": ("kubernetes:nodes", "kubernetes:events"),
}
TOPICS = {
    "elbv2:DescribeTargetHealth": "elasticloadbalancing:DescribeTargetHealth",
    "kubernetes:nodes": "nodes (get, list, watch)",
    "kubernetes:events": "events (get, list, watch)",
}


@pytest.mark.parametrize("platform", CASES)
def test_what_is_denied_and_what_is_missing(platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A denied read that only blurs is a warning, one that blinds a failure; without a policy nothing scales."""
    blurs, blinds = CASES[platform]
    model = tmp_path / "model.toml"
    model.write_text(TROUBLE.format(denied=msgspec.json.encode([blurs, blinds]).decode()))
    found = examined(platform, monkeypatch, model)
    told, seen = topics(found), {view.phase: view for view in found.phases}
    assert found.failed
    for denied, status in ((blurs, "warn"), (blinds, "fail")):
        finding = told[f"permission {TOPICS.get(denied, denied)}"]
        assert (finding.status, finding.text) == (status, "denied")
        assert "without it not seen" in str(finding.advice)
    assert told["scaling policies"].status == "fail"
    if platform == "kubernetes":
        assert "events" in str(seen["pull"].advice)
        assert seen["pull"].sight == seen["decision"].sight == "bounded"
        assert "nodes" in str(seen["provisioning"].advice)
        assert [f.text for topic, f in told.items() if topic.startswith("node group ")] == ["1 ready, 0 to 3 nodes"]
    else:
        assert seen["emission"].sight == "invisible"
