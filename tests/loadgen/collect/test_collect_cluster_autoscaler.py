"""cluster-autoscaler's status in both of its forms; the samples are made up after published ones."""

import asyncio
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.collect.base import Answer, MalformedError
from loadgen.collect.kube_autoscaler import AutoscalerStatus, groups_of
from loadgen.collect.kube_pods import Workload
from loadgen.collect.kubernetes import Kubernetes
from loadgen.collect.policy import cluster_roles
from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.model import Model
from loadgen.scenario import CollectSection
from tests.loadgen.collect.virtual_platforms import EPOCH_US, Collected, World
from traces.clock import to_us

US = 1_000_000
T0 = 1_782_900_000 * US  # 2026-07-01T10:00:00Z

OLDEST = """Cluster-autoscaler status at 2026-07-01 10:00:33.5 +0000 UTC:
Cluster-wide:
  Health:      Healthy (ready=3 unready=0 notStarted=0 longNotStarted=0 registered=3)
               LastProbeTime:      2026-07-01 10:00:33.1 +0000 UTC
               LastTransitionTime: 2026-07-01 09:00:00 +0000 UTC
  ScaleUp:     InProgress (ready=3 registered=3)
               LastProbeTime:      2026-07-01 10:00:33.1 +0000 UTC
               LastTransitionTime: 2026-07-01 10:00:12.5 +0000 UTC

NodeGroups:
  Name:        cpu
  Health:      Healthy (ready=2 unready=0 registered=2 cloudProviderTarget=2 (minSize=1, maxSize=9))
               LastProbeTime:      0001-01-01 00:00:00 +0000 UTC
               LastTransitionTime: 0001-01-01 00:00:00 +0000 UTC
  ScaleUp:     NoActivity (ready=2 cloudProviderTarget=2)
               LastProbeTime:      0001-01-01 00:00:00 +0000 UTC
               LastTransitionTime: 0001-01-01 00:00:00 +0000 UTC

  Name:        gpu
  Health:      Healthy (ready=1 unready=0 (resourceUnready=0) registered=1 cloudProviderTarget=3 (minSize=0, maxSize=4))
               LastProbeTime:      2026-07-01 10:00:33.123456789 +0000 UTC m=+1081389.237180180
               LastTransitionTime: 2026-07-01 09:00:00.1 +0000 UTC m=+1.5
  ScaleUp:     InProgress (ready=1 cloudProviderTarget=3)
               LastProbeTime:      2026-07-01 10:00:33.123456789 +0000 UTC m=+1081389.237180180
               LastTransitionTime: 2026-07-01 10:00:12.523456789 +0000 UTC m=+1081361.519233711
  ScaleDown:   NoCandidates (candidates=0)
               LastProbeTime:      2026-07-01 10:00:33.123456789 +0000 UTC m=+1081389.237180180
               LastTransitionTime: 2026-07-01 10:00:20 +0000 UTC m=+10.9

"""
NEWER = """time: 2026-07-01 10:00:33.546750398 +0000 UTC
autoscalerStatus: Running
clusterWide:
  health: {status: Healthy, lastProbeTime: "2026-07-01T10:00:33.5Z"}
  scaleUp: {status: Backoff}
nodeGroups:
- name: gpu
  health:
    status: Healthy
    nodeCounts:
      registered: {total: 2, ready: 1, notStarted: 1, unready: {total: 0, resourceUnready: 0}}
      longUnregistered: 0
      unregistered: 0
    cloudProviderTarget: 3
    minSize: 0
    maxSize: 4
    lastTransitionTime: "2026-07-01T09:00:00Z"
  scaleUp:
    status: Backoff
    backoffInfo:
      errorCode: OutOfResource
      errorMessage: "no capacity for token hf_abcdefghijklm in http://u:p@host"
    lastTransitionTime: 2026-07-01T10:00:12.523456789Z
"""


def test_the_text_of_releases_up_to_1_29() -> None:
    cpu, gpu = groups_of(OLDEST)
    assert (cpu.name, cpu.status, cpu.since) == ("cpu", "NoActivity", None)
    assert (gpu.name, gpu.status) == ("gpu", "InProgress")
    assert gpu.since is not None
    assert (gpu.since.lo_us - T0, gpu.since.hi_us - T0) == (12_523_456, 12_523_457)
    assert gpu.counts == {"ready": 1, "target": 3, "min": 0, "max": 4}


@pytest.mark.parametrize("quoted", [True, False])
def test_the_yaml_of_releases_from_1_30_on(quoted: bool) -> None:
    instant = "2026-07-01T10:00:12.523456789Z"
    (gpu,) = groups_of(NEWER.replace(instant, f'"{instant}"') if quoted else NEWER)
    assert (gpu.name, gpu.status, gpu.error_code) == ("gpu", "Backoff", "OutOfResource")
    assert gpu.since is not None
    assert gpu.since.lo_us - T0 == 12_523_456
    assert gpu.counts == {"ready": 1, "target": 3, "min": 0, "max": 4}


def config_map(status: str) -> dict:
    return {"metadata": {"uid": "u", "annotations": {"x": "hf_abcdefghijklm"}}, "data": {"status": status}}


def seen(old: str | None, new: str) -> list[dict]:
    kind = AutoscalerStatus(Workload("default/deployment/vllm", "vllm", None, serves=False, since_us=T0 - 60 * US))
    told = Answer({}, T0 + 40 * US, T0 + 41 * US)
    return kind.seen(None if old is None else config_map(old), config_map(new), told).observations


def test_what_it_dates_and_what_it_keeps() -> None:
    (row,) = seen(None, NEWER)
    assert (row["source"], row["anchor"], row["method"]) == ("kubernetes:autoscaler-status", None, "event")
    assert row["verified"] is False
    assert to_us(row["lo"]) == T0 + 12_523_456
    detail = json.loads(row["detail"])
    assert detail == {
        "milestone": "node-group-backoff", "node_group": "gpu", "error_code": "OutOfResource", "min": 0, "max": 4,
    }  # fmt: skip


def test_a_status_that_stays_is_one_row_and_a_count_that_moves_lies_between_two_readings() -> None:
    (first,) = seen(None, NEWER)
    later = NEWER.replace("ready: 1,", "ready: 2,").replace("10:00:33", "10:00:43")
    status, count = seen(NEWER, later)
    assert status == first
    assert (to_us(count["lo"]), to_us(count["hi"])) == (T0 + 40 * US, T0 + 41 * US)
    assert json.loads(count["detail"]) == {
        "milestone": "node-group-ready", "node_group": "gpu", "from": 1, "to": 2,
    }  # fmt: skip


def test_an_unknown_word_dates_nothing_and_nothing_is_nothing() -> None:
    assert seen(None, NEWER.replace("Backoff", "Dreaming")) == []
    assert seen(None, "") == []
    assert seen(None, "clusterWide: {}") == []


@given(st.text() | st.just(OLDEST).flatmap(lambda t: st.integers(0, len(t)).map(lambda n: t[:n])))
def test_no_status_does_worse_than_be_refused(status: str) -> None:
    try:
        groups = groups_of(status)
    except MalformedError:
        return
    assert all(group.name for group in groups)


def test_the_role_names_the_one_config_map() -> None:
    section = msgspec.convert({"kubernetes": {"deployment": "vllm", "autoscaler_status": "ops/ca"}}, CollectSection)
    world = World(EmulatorConfig(platform="kubernetes"), 1)
    sources = Collected(world, section, US).platform.sources()
    roles = cluster_roles(rule for source in sources for rule in source.permissions)["items"]
    (role,) = (role for role in roles if role["metadata"].get("namespace") == "ops")
    assert (role["kind"], role["rules"]) == ("Role", [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["ca"], "verbs": ["get", "list", "watch"]},
    ])  # fmt: skip
    assert not any("configmaps" in rule["resources"] for other in roles if other is not role for rule in other["rules"])
    without = msgspec.structs.replace(
        section, kubernetes=msgspec.structs.replace(section.kubernetes, autoscaler_status="")
    )
    names = [source.name for source in Collected(world, without, US).platform.sources()]
    assert "kubernetes:autoscaler-status" not in names


@pytest.mark.parametrize("form", ["yaml", "text"])
@pytest.mark.parametrize("capacity_errors", [0, 1])
def test_the_emulated_autoscaler_is_dated_as_it_was(form: str, capacity_errors: int) -> None:
    document = {
        "platform": "kubernetes",
        "scaling": {"min_instances": 1, "max_instances": 2},
        "cluster": {"node_scaler": "cluster-autoscaler", "autoscaler_status": form},
        "startup": {"provisioning_s": 30.0, "image_gb": 0.5, "model_gb": 0.0},
        "faults": {"capacity_errors": capacity_errors, "capacity_retry_s": 20.0},
    }
    section = msgspec.convert({"poll": "4s", "kubernetes": {"deployment": "demo"}}, CollectSection)
    world = World(msgspec.convert(document, EmulatorConfig), 1)
    found = Collected(world, section, 4 * US)
    world.model.advance(EPOCH_US + 5 * US)
    for k in range(16):
        world.model.arrive(world.model.now_us, f"r{k}", 100, 100_000)

    def served(model: Model) -> bool:
        return model.fleet.desired > 1 and not model.fleet.updating

    asyncio.run(found.run(served, 900 * US))
    assert isinstance(found.platform, Kubernetes)
    rows = [row for row in found.rows.values() if row["source"] == "kubernetes:autoscaler-status"]
    by_milestone = {json.loads(row["detail"])["milestone"]: row for row in rows}
    start = max((unit.timeline for unit in world.model.fleet.instances), key=lambda start: start.created_us)
    assert start.machine is not None
    scaling, grown = by_milestone["node-group-scaling"], by_milestone["node-group-ready"]
    assert to_us(scaling["lo"]) <= start.machine.requested_us <= to_us(scaling["hi"])
    assert to_us(grown["lo"]) <= start.machine.joined_us <= to_us(grown["hi"])
    assert ("node-group-backoff" in by_milestone) == bool(capacity_errors)
    events = [json.loads(row["detail"]) for row in found.rows.values() if row["source"] == "kubernetes:events"]
    assert any(detail.get("milestone") == "node-asked-for" for detail in events)
