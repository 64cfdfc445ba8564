"""What Kubernetes objects, events and watches make of a scale-out; all samples are made up after published ones."""

import asyncio
import json

import pytest

from loadgen.collect.base import Answer, Reading
from loadgen.collect.kube_client import GoneError, refused
from loadgen.collect.kube_events import Events
from loadgen.collect.kube_nodes import NodeClaims, Nodes
from loadgen.collect.kube_pods import Pods, Workload
from loadgen.collect.kube_scaling import Deployments, Endpoints, Scalers, summary
from loadgen.collect.kube_times import go_duration_us, pull_of, stamp
from loadgen.collect.kube_watch import ObjectStream
from traces.clock import to_us

US = 1_000_000
T0 = 1_782_900_000 * US  # 2026-07-01T10:00:00Z
TOLD = Answer({}, T0, T0 + US)


def at(seconds: int) -> str:
    return f"2026-07-01T10:{seconds // 60:02d}:{seconds % 60:02d}Z"


def workload(*, serves: bool = False) -> Workload:
    return Workload("default/deployment/vllm", "vllm", None, serves=serves, since_us=T0 - 60 * US)


def pod(**status) -> dict:
    return {
        "metadata": {
            "name": "vllm-7f-x2",
            "uid": "u1",
            "creationTimestamp": at(1),
            "labels": {"pod-template-hash": "7f"},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "serve"}]},
        "status": status,
    }


def event(reason: str, message: str, seconds: int, *, uid: str | None = None, kind: str = "Pod", **more) -> dict:
    about = {"kind": kind, "name": "vllm-7f-x2" if kind == "Pod" else "vllm", "uid": "u1"}
    if kind == "Pod":
        about["fieldPath"] = "spec.containers{serve}"
    return {
        "metadata": {"uid": uid or f"e-{reason}-{seconds}", "creationTimestamp": at(seconds)},
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "firstTimestamp": at(seconds),
        "lastTimestamp": at(seconds),
        "eventTime": None,
        "count": 1,
    } | more


def told(*events: dict, work: Workload | None = None, scalers: dict | None = None) -> dict[str, dict]:
    """Return the rows that events make, by anchor and method."""
    work = work or workload()
    Pods(work).seen(None, pod(), TOLD)
    reader, rows = Events(work, scalers or {}), {}
    for item in events:
        for row in reader.seen(None, item, TOLD).observations:
            rows[row["native_id"]] = row
    return {f"{row['anchor']}:{row['method']}": row for row in rows.values()}


def bounds(row: dict) -> tuple[float | None, float | None]:
    return tuple(None if row[side] is None else (to_us(row[side]) - T0) / US for side in ("lo", "hi"))


@pytest.mark.parametrize(
    ("message", "own_us", "whole_us", "size"),
    [
        (
            'Successfully pulled image "r/v:1" in 5m33.12s (5m40.5s including waiting). Image size: 17700000000 bytes.',
            333_120_000,
            340_500_000,
            17_700_000_000,
        ),
        ('Successfully pulled image "r/v:1" in 912ms (912ms including waiting)', 912_000, 912_000, None),
        ('Successfully pulled image "r/v:1" in 1m2.25s', 62_250_000, None, None),
        ("Successfully pulled image r/v:1", None, None, None),
    ],
)
def test_pulled_messages_of_every_kubelet(message, own_us, whole_us, size) -> None:
    found = pull_of(message)
    if own_us is None:
        assert found is None
        return
    assert (found.cached, found.own_us, found.whole_us, found.image_bytes) == (False, own_us, whole_us, size)


@pytest.mark.parametrize(
    "message",
    [
        'Container image "r/v:1" already present on machine',
        'Container image "r" already present on machine and can be accessed by the pod',
    ],
)
def test_an_image_that_was_there(message: str) -> None:
    rows = told(event("Pulled", message, 20))
    assert bounds(rows["pull_started:event"]) == bounds(rows["pull_finished:event"]) == (20, 21)
    assert json.loads(rows["pull_finished:event"]["detail"])["mode"] == "cached"


def test_events_before_their_pod_are_told_with_the_pod_even_when_no_other_event_comes() -> None:
    work = workload()
    reader, pods = Events(work, {}), Pods(work)
    message = 'Successfully pulled image "r/v:1" in 5s (5s including waiting)'
    assert reader.seen(None, event("Pulling", 'Pulling image "r/v:1"', 15), TOLD).observations == []
    assert reader.seen(None, event("Pulled", message, 20), TOLD).observations == []
    rows = pods.seen(None, pod(), TOLD).observations
    assert {"pull_started", "pull_finished"} <= {row["anchor"] for row in rows}
    again = pods.seen(pod(), pod(), TOLD).observations
    assert not {"pull_started", "pull_finished"} & {row["anchor"] for row in again}


def test_what_waits_makes_room_for_what_is_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadgen.collect.kube_events._WAITING_AT_MOST", 3)
    work = workload()
    reader, pods = Events(work, {}), Pods(work)
    for number in range(5):
        other = event("Pulled", "Container image already present on machine", 20, uid=f"other-{number}")
        reader.seen(None, other | {"involvedObject": other["involvedObject"] | {"uid": f"u-other-{number}"}}, TOLD)
    reader.seen(None, event("Pulled", "Container image already present on machine", 20), TOLD)
    assert "pull_finished" in {row["anchor"] for row in pods.seen(None, pod(), TOLD).observations}


@pytest.mark.parametrize(
    ("kind", "reason", "message"),
    [
        ("HorizontalPodAutoscaler", "SuccessfulRescale", "New size: 3; reason: pods metric above target"),
        ("ScaledObject", "KEDAScaleTargetActivated", "Scaled apps/v1.Deployment default/vllm from 0 to 1"),
    ],
)
def test_a_decision_before_its_scaler_is_told_with_the_scaler(kind: str, reason: str, message: str) -> None:
    work, names = workload(), {}
    reader, scalers = Events(work, names), Scalers(work, names, kind)
    assert reader.seen(None, event(reason, message, 5, kind=kind), TOLD).observations == []
    scaler = {"metadata": {"name": "vllm"}, "spec": {"scaleTargetRef": {"name": "vllm"}}}
    (row,) = scalers.seen(None, scaler, TOLD).observations
    assert (row["anchor"], bounds(row)) == ("decision", (5, 6))
    assert scalers.seen(scaler, scaler, TOLD).observations == []


def test_a_pull_is_dated_by_its_end_and_its_own_length() -> None:
    rows = told(
        event("Pulling", 'Pulling image "r/v:1"', 10),
        event("Pulled", 'Successfully pulled image "r/v:1" in 40s (1m15s including waiting). Image size: 9 bytes.', 85),
    )
    lo, hi = bounds(rows["pull_started:event"])
    assert (lo, hi) == (pytest.approx(44.999), 46)
    assert bounds(rows["pull_finished:event"]) == (85, 86)
    assert rows["pull_finished:reported"]["duration_us"] == 40 * US
    assert json.loads(rows["pull_started:event"]["detail"])["queued_us"] == 35 * US


def test_a_failed_attempt_makes_the_first_begin_uncertain() -> None:
    again = event("Pulling", "Pulling image", 10, uid="p", count=2, lastTimestamp=at(50))
    rows = told(
        event("Pulling", "Pulling image", 10, uid="p"),
        event("Failed", "Failed to pull image: rpc error", 30),
        again,
        event("Pulled", "Successfully pulled image in 20s (20s including waiting)", 70),
    )
    assert bounds(rows["pull_started:event"]) == (10, 31)
    assert "pull_finished:reported" not in rows
    assert json.loads(rows["pull_finished:event"]["detail"])["attempts"] == 2


def test_an_image_faster_than_any_node_is_lazy() -> None:
    rows = told(
        event("Pulled", "Successfully pulled image in 1.2s (1.2s including waiting). Image size: 17700000000 bytes.", 9)
    )
    assert json.loads(rows["pull_finished:event"]["detail"])["mode"] == "lazy?"
    rows = told(
        event("ImageStreaming", "Image is backed by image streaming.", 8),
        event("Pulled", "Successfully pulled image in 1.2s", 9),
    )
    assert json.loads(rows["pull_finished:event"]["detail"])["mode"] == "lazy"


def test_microsecond_event_times_are_kept() -> None:
    rows = told(event("Pulled", "already present on machine", 20, eventTime="2026-07-01T10:00:20.250000Z"))
    assert bounds(rows["pull_finished:event"]) == (20.25, pytest.approx(20.250001))


def test_decisions_of_autoscalers() -> None:
    rows = told(
        event("SuccessfulRescale", "New size: 3; reason: pods metric above target", 5, kind="HorizontalPodAutoscaler"),
        event("ScalingReplicaSet", "Scaled up replica set vllm-7f from 1 to 3", 6, kind="Deployment"),
        scalers={"vllm": "HorizontalPodAutoscaler"},
    )
    row = rows["decision:event"]
    assert bounds(row) in {(5, 6), (6, 7)}
    keda = told(
        event("KEDAScaleTargetActivated", "Scaled apps/v1.Deployment default/vllm from 0 to 1", 5, kind="ScaledObject"),
        scalers={"vllm": "ScaledObject"},
    )["decision:event"]
    assert json.loads(keda["detail"])["from"] == 0
    assert keda["scaling_id"] == f"vllm@{T0 // US + 5}"
    # The older wording, and another workload's.
    older = told(event("ScalingReplicaSet", "Scaled up replica set vllm-7f to 3 from 1", 6, kind="Deployment"))
    assert json.loads(older["decision:event"]["detail"]) == {"from": 1, "replica_set": "vllm-7f", "to": 3}
    down = event("ScalingReplicaSet", "Scaled down replica set vllm-7f from 3 to 1", 6, kind="Deployment")
    assert told(down) == {}


def test_a_pods_own_stamps() -> None:
    init = {
        "name": "model-download",
        "state": {"terminated": {"exitCode": 0, "startedAt": at(20), "finishedAt": at(60)}},
    }
    other = {"name": "wait", "state": {"terminated": {"exitCode": 0, "startedAt": at(18), "finishedAt": at(19)}}}
    main = {"name": "serve", "restartCount": 0, "state": {"running": {"startedAt": at(70)}}}
    status = {
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(15)},
            {"type": "Ready", "status": "True", "lastTransitionTime": at(99)},
            {"type": "ContainersReady", "status": "False", "lastTransitionTime": at(1)},
        ],
        "initContainerStatuses": [other, init],
        "containerStatuses": [main],
    }
    rows = {
        row["anchor"]: row for row in Pods(workload()).seen(None, pod(**status), TOLD).observations if row["anchor"]
    }
    assert {anchor: bounds(row) for anchor, row in rows.items()} == {
        "launched": (15, 16),
        "download_started": (20, 21),
        "download_finished": (60, 61),
        "container_started": (70, 71),
        "ready": (70, 100),
        "in_service": (99, 100),
    }
    served = Pods(workload(serves=True)).seen(None, pod(**status), TOLD).observations
    assert bounds(next(row for row in served if row["anchor"] == "in_service")) == (99, None)


def test_pods_from_before_are_left_out_and_first_readiness_counts() -> None:
    old = pod()
    old["metadata"]["creationTimestamp"] = "2026-07-01T09:00:00Z"
    assert Pods(workload()).seen(None, old, TOLD).observations == []
    kind = Pods(workload())
    ready = lambda s: pod(conditions=[{"type": "Ready", "status": "True", "lastTransitionTime": at(s)}])  # noqa: E731
    kind.seen(None, ready(50), TOLD)
    again = kind.seen(None, ready(300), TOLD).observations
    assert bounds(next(row for row in again if row["anchor"] == "in_service")) == (50, 51)


def test_nodes_and_claims_tell_of_the_machine() -> None:
    work = workload()
    node = {
        "metadata": {"name": "n1", "uid": "n", "creationTimestamp": at(30)},
        "spec": {"providerID": "aws:///us-east-1a/i-0abc"},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(33)}]},
    }
    with_gpu = json.loads(json.dumps(node))
    with_gpu["status"]["allocatable"] = {"nvidia.com/gpu": "4"}
    kind = Nodes(work)
    assert kind.seen(None, node, TOLD).observations
    rows = kind.seen(node, with_gpu, Answer({}, T0 + 40 * US, T0 + 45 * US)).observations
    found = {json.loads(row["detail"])["milestone"]: row for row in rows}
    assert bounds(found["node-accelerator"]) == (40, 45)
    assert bounds(found["node-ready"]) == (33, 34)
    assert {row["anchor"] for row in rows} == {None}
    claim = {
        "metadata": {"name": "c", "uid": "c", "creationTimestamp": at(3)},
        "status": {"conditions": [{"type": "Launched", "status": "True", "lastTransitionTime": at(5)}]},
    }
    milestones = [json.loads(r["detail"])["milestone"] for r in NodeClaims(work).seen(None, claim, TOLD).observations]
    assert milestones == ["nodeclaim-created", "nodeclaim-launched"]


def test_slices_say_who_is_sent_traffic() -> None:
    work = workload(serves=True)
    slice_ = lambda ready: {  # noqa: E731
        "metadata": {"name": "s", "uid": "s"},
        "endpoints": [{"conditions": {"ready": ready}, "targetRef": {"uid": "u1"}}],
    }
    kind = Endpoints(work)
    assert kind.seen(slice_(False), slice_(True), Answer({}, T0, T0 + 9 * US)).observations == []
    # The pod is known only later: nothing more may come from the slice, so its row comes with the pod.
    (row,) = (r for r in Pods(work).seen(None, pod(), TOLD).observations if r["anchor"] == "in_service")
    assert (row["source"], row["unit_id"], bounds(row)) == ("kubernetes:endpointslices", "vllm-7f-x2", (0, 9))
    assert kind.seen(slice_(True), slice_(True), TOLD).observations == []


def test_snapshots_hold_no_secrets() -> None:
    secret = "hf_thisMustNeverBeWrittenAnywhere0000"
    probe = {"periodSeconds": 5, "httpGet": {"httpHeaders": [{"name": "Authorization", "value": secret}]}}
    container = {"name": "serve", "image": "i", "env": [{"name": "T", "value": secret}], "readinessProbe": probe}
    deployment = {"metadata": {"name": "vllm"}, "spec": {"template": {"spec": {"containers": [container]}}}}
    assert secret not in json.dumps(summary(deployment))
    reading = Deployments(workload(), None).seen(None, deployment, TOLD)
    assert secret not in json.dumps(reading.snapshots)
    scaler = {
        "metadata": {"name": "k", "annotations": {"x": secret}},
        "spec": {"scaleTargetRef": {"name": "vllm"}, "triggers": [{"type": "redis", "metadata": {"password": secret}}]},
    }
    reading = Scalers(workload(), {}, "ScaledObject").seen(None, scaler, TOLD)
    assert secret not in json.dumps(reading.snapshots)
    assert "redis" in json.dumps(reading.snapshots)


# the watch


class Recorder:
    """A kind that notes what it is shown."""

    def __init__(self) -> None:
        self.seen_: list[tuple] = []

    def seen(self, old, new, told) -> Reading:
        version = lambda item: None if item is None else item["metadata"]["resourceVersion"]  # noqa: E731
        self.seen_.append((version(old), version(new), told.sent_us))
        return Reading()

    def gone(self, old, told) -> Reading:
        self.seen_.append((old["metadata"]["uid"], "gone", told.sent_us))
        return Reading()


class Script:
    """An API that lists and watches as a script says."""

    def __init__(self, lists, watches) -> None:
        self.lists, self.watches, self.asked = list(lists), list(watches), []

    async def get(self, path, query=None) -> Answer:
        items, version = self.lists.pop(0)
        sent = len(self.asked)
        self.asked.append("list")
        return Answer({"metadata": {"resourceVersion": version}, "items": items}, sent, sent)

    async def watch(self, path, query):
        self.asked.append(query["resourceVersion"])
        for change in self.watches.pop(0):
            if isinstance(change, Exception):
                raise change
            yield Answer(change, 0, 0)


def item(uid: str, version: str) -> dict:
    return {"metadata": {"uid": uid, "resourceVersion": version}}


def change(kind: str, uid: str, version: str) -> dict:
    return {"type": kind, "object": item(uid, version)}


def follow(script: Script, kind: Recorder, times: int) -> list[BaseException | None]:
    stream = ObjectStream("s", script, "/api/v1/pods", kind, period_us=US)

    async def run() -> list[BaseException | None]:
        ended: list[BaseException | None] = []
        for _ in range(times):
            try:
                await stream.follow(lambda _reading: None)
                ended.append(None)
            except Exception as error:
                ended.append(error)
        return ended

    return asyncio.run(run())


def test_a_watch_goes_on_from_where_it_ended() -> None:
    kind = Recorder()
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "20"}}}
    script = Script([([item("a", "5")], "10")], [[change("MODIFIED", "a", "12"), bookmark], []])
    assert follow(script, kind, 2) == [None, None]
    assert script.asked == ["list", "10", "20"]
    assert [seen[:2] for seen in kind.seen_] == [(None, "5"), ("5", "12")]


def test_late_and_duplicate_events_change_nothing() -> None:
    kind = Recorder()
    twice = [change("MODIFIED", "a", "12"), change("MODIFIED", "a", "12"), change("MODIFIED", "a", "11")]
    follow(Script([([item("a", "5")], "10")], [twice]), kind, 1)
    assert [seen[:2] for seen in kind.seen_] == [(None, "5"), ("5", "12")]


@pytest.mark.parametrize(
    "gone",
    [
        refused(410, "too old resource version", "/api/v1/pods"),
        {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}},
    ],
)
def test_forgotten_history_is_listed_anew(gone) -> None:
    kind = Recorder()
    script = Script([([item("a", "5"), item("b", "6")], "10"), ([item("a", "15")], "20")], [[gone], []])
    first, second = follow(script, kind, 2)
    assert isinstance(first, GoneError)
    assert second is None
    assert script.asked == ["list", "10", "list", "20"]
    # What changed meanwhile did so after the first list was asked for; what is missing is gone.
    assert kind.seen_[2:] == [("5", "15", 0), ("b", "gone", 0)]


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "expired"), (403, "denied"), (429, "throttled"), (500, "unreachable"), (400, "malformed")],
)
def test_failures_are_typed(status: int, reason: str) -> None:
    assert refused(status, "m", "/p").reason == reason


def test_stamps_and_durations() -> None:
    assert stamp("2026-07-01T10:00:00Z") == (T0, T0 + US)
    assert stamp("2026-07-01T10:00:00.123456789Z").lo_us == T0 + 123_456
    assert stamp("nonsense") is stamp(None) is stamp("2026-07-01T10:00:00") is None
    assert go_duration_us("1h0m0.5s") == 3_600_500_000
