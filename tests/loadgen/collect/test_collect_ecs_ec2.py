"""What ECS tasks, EC2 Auto Scaling activities and target groups make of a scale-out; samples are made up."""

import asyncio
import json

import pytest

from loadgen.collect.anchors import ECS
from loadgen.collect.base import Answer
from loadgen.collect.ec2_activities import activity_rows, cause_of
from loadgen.collect.ec2_groups import Group, GroupState
from loadgen.collect.ecs_service import event_rows, log_streams, with_environments
from loadgen.collect.ecs_tasks import EcsService, task_rows
from loadgen.collect.redaction import REDACTED, kept
from loadgen.collect.scaling import activity_rows as scaling_rows
from loadgen.collect.target_health import TargetHealth
from tests.loadgen.collect.virtual_platforms import collect
from traces.clock import to_datetime, to_us

US = 1_000_000
T0 = 1_782_900_000 * US
TOLD = Answer({}, T0, T0 + US)
ALARM = (
    "At 2026-07-01T10:00:00Z a monitor alarm TargetTracking-g-AlarmHigh-1 in state ALARM triggered policy p changing "
    "the desired capacity from 1 to 3.  At 2026-07-01T10:00:09Z an instance was started in response to a difference "
    "between desired and actual capacity, increasing the capacity from 1 to 3."
)


def at(seconds: float):
    return to_datetime(T0 + round(seconds * US))


def by_anchor(rows) -> dict[str, tuple[float, float]]:
    seconds = lambda value: None if value is None else (to_us(value) - T0) / US  # noqa: E731
    return {row["anchor"]: (seconds(row["lo"]), seconds(row["hi"])) for row in rows if row["anchor"]}


def task(**more) -> dict:
    return {"taskArn": "arn:aws:ecs:us-east-1:1:task/c/0af1", "createdAt": at(1), "lastStatus": "RUNNING"} | more


def service(**more) -> EcsService:
    found = EcsService("c", "s", T0 - 60 * US)
    for name, value in {"target_groups": ["arn:tg"], **more}.items():
        setattr(found, name, value)
    return found


def test_a_tasks_own_instants() -> None:
    found = service(machines={"arn:m": {"ec2InstanceId": "i-1", "registeredAt": at(60)}})
    rows = task_rows(
        task(pullStartedAt=at(70.5), pullStoppedAt=at(170.25), startedAt=at(171), containerInstanceArn="arn:m"),
        TOLD,
        found,
    )
    assert by_anchor(rows) == {
        "launched": (60, 60),
        "pull_started": (70.5, 70.5),
        "pull_finished": (170.25, 170.25),
        "container_started": (170.25, 171),
    }


def test_a_machine_that_was_there_is_no_part_of_the_start() -> None:
    found = service(machines={"arn:m": {"ec2InstanceId": "i-1", "registeredAt": at(-30)}})
    assert "launched" not in by_anchor(task_rows(task(containerInstanceArn="arn:m"), TOLD, found))


def test_without_a_pull_the_image_was_there_or_comes_later() -> None:
    rows = task_rows(task(pullStartedAt=at(5), pullStoppedAt=at(5.2), startedAt=at(6)), TOLD, service())
    assert {json.loads(row["detail"])["mode"] for row in rows} == {"cached-or-lazy"}


def test_who_is_in_service_depends_on_what_checks() -> None:
    running = task(startedAt=at(6))
    assert "in_service" not in by_anchor(task_rows(running, TOLD, service()))
    assert "in_service" not in by_anchor(task_rows(running, TOLD, service(target_groups=[], checked=None)))
    assert by_anchor(task_rows(running, TOLD, service(target_groups=[], checked=False)))["in_service"] == (6, 6)


def test_tasks_from_before_are_left_out_and_failures_told() -> None:
    assert task_rows(task(createdAt=at(-3600)), TOLD, service()) == []
    stopped = task(stoppedAt=at(9), stopCode="TaskFailedToStart", stoppedReason="CannotPullContainerError: no space")
    found = [json.loads(row["detail"]) for row in task_rows(stopped, TOLD, service())]
    assert any(d.get("stop_code") == "TaskFailedToStart" and "no space" in d["reason"] for d in found)


def test_the_end_of_an_ecs_activity_dates_nothing() -> None:
    activity = {
        "ActivityId": "a",
        "StartTime": at(0),
        "EndTime": at(99),
        "StatusCode": "Successful",
        "Description": "Setting desired count to 3.",
    }
    rows = scaling_rows(activity, TOLD, "service/c/s", ECS)
    assert by_anchor(rows) == {"decision": (0, 0)}
    assert json.loads(rows[0]["detail"])["desired"] == 3


def test_service_events_and_log_streams() -> None:
    text = "(service s) was unable to place a task because no container instance met all of its requirements."
    (row,) = event_rows({"id": "1", "createdAt": at(3), "message": text}, TOLD, service())
    assert json.loads(row["detail"])["milestone"] == "service-not-placed"
    options = {"awslogs-group": "/ecs/s", "awslogs-stream-prefix": "ecs"}
    container = {"name": "vllm", "logConfiguration": {"options": options}}
    assert log_streams({"containerDefinitions": [container]}) == {"/ecs/s": "ecs/vllm"}


def test_a_task_definition_keeps_no_secrets() -> None:
    secret = "hf_thisMustNeverBeWrittenAnywhere0000"
    container = {
        "name": "vllm",
        "environment": [{"name": "HF_TOKEN", "value": secret}],
        "secrets": [{"name": "S", "valueFrom": secret}],
        "command": [secret],
        "healthCheck": {"command": [secret], "interval": 5},
        "logConfiguration": {"logDriver": "splunk", "options": {"splunk-token": secret}},
    }
    written = kept(with_environments({"family": "f", "containerDefinitions": [container]}))
    assert secret not in json.dumps(written)
    (found,) = written["containerDefinitions"]
    assert found["healthCheck"]["interval"] == 5
    assert found["Environment"] == {"HF_TOKEN": REDACTED}


def test_both_times_of_a_cause() -> None:
    cause = cause_of(ALARM)
    assert (cause.decided_us, cause.before, cause.desired, cause.started_us) == (T0, 1, 3, T0 + 9 * US)
    assert (cause.alarm, cause.policy) == ("TargetTracking-g-AlarmHigh-1", "p")
    by_hand = cause_of(
        "At 2026-07-01T10:00:00Z a user request explicitly set group desired capacity changing the desired capacity "
        "from 1 to 2.  At 2026-07-01T10:00:04Z an instance was started in response to a difference between desired and "
        "actual capacity, increasing the capacity from 1 to 2."
    )
    assert (by_hand.desired, by_hand.alarm, by_hand.started_us) == (2, None, T0 + 4 * US)
    assert cause_of("something else entirely").decided_us is None


def activity(**more) -> dict:
    return {
        "ActivityId": "a",
        "Description": "Launching a new EC2 instance: i-0123456789abcdef0",
        "Cause": ALARM,
        "StartTime": at(9.1),
        "StatusCode": "PreInService",
    } | more


def test_all_instances_of_a_decision_are_one_decision() -> None:
    other = activity(ActivityId="b", Description="Launching a new EC2 instance: i-0fedcba9876543210")
    rows = [
        row for a in (activity(), other) for row in activity_rows(a, TOLD, "g", balanced=False) if row["scaling_id"]
    ]
    assert len({(row["native_id"], row["lo"], row["hi"], row["detail"]) for row in rows}) == 1
    assert by_anchor(rows) == {"decision": (0, 1)}
    assert rows[0]["unit_id"] is None


def test_an_end_is_a_bound_that_may_hold_a_warm_up() -> None:
    done = activity(StatusCode="Successful", EndTime=at(400))
    rows = activity_rows(done, TOLD, "g", balanced=False)
    assert by_anchor(rows)["in_service"] == (9.1, 400)
    assert next(row["method"] for row in rows if row["anchor"] == "in_service") == "derived"
    assert "in_service" not in by_anchor(activity_rows(done, TOLD, "g", balanced=True))


def test_a_failed_launch_says_why() -> None:
    failed = activity(
        StatusCode="Failed", StatusMessage="We currently do not have sufficient capacity.", EndTime=at(10)
    )
    rows = activity_rows(failed, TOLD, "g", balanced=False)
    (row,) = [row for row in rows if row["native_id"].endswith(":not-scaled")]
    assert "sufficient capacity" in json.loads(row["detail"])["status_message"]


class Scripted:
    """An API that answers as a script says; each answer takes a second."""

    def __init__(self, *answers) -> None:
        self.answers, self.at_us = list(answers), T0

    async def call(self, operation: str, **_: object) -> Answer:
        sent_us, self.at_us = self.at_us, self.at_us + US
        return Answer(self.answers.pop(0), sent_us, self.at_us)


def group(*states: str, **more) -> dict:
    instances = [{"InstanceId": f"i-{k}", "LifecycleState": state} for k, state in enumerate(states)]
    return {"AutoScalingGroups": [{"AutoScalingGroupName": "g", "DesiredCapacity": 1, "Instances": instances} | more]}


def test_lifecycle_states_and_counts() -> None:
    api = Scripted(
        group("InService"), group("InService", "Pending"), group("InService", "Pending:Wait"), group(*["InService"] * 2)
    )
    watched = Group("g", T0)
    source = GroupState(api, watched, US, None)
    rows = [row for _ in range(4) for row in asyncio.run(source.poll(T0)).observations]
    served = [row for row in rows if row["anchor"] == "in_service"]
    assert {(row["unit_id"], by_anchor([row])["in_service"]) for row in served} == {
        ("i-1", (2, 4)),
        (None, (2, 4)),
    }
    assert "lifecycle-Pending:Wait" in {json.loads(row["detail"]).get("milestone") for row in rows}


def test_behind_a_load_balancer_inservice_is_not_yet_in_service() -> None:
    api = Scripted(*(group(*s, TargetGroupARNs=["arn:tg"]) for s in (["InService"], ["InService"] * 2)))
    source = GroupState(api, Group("g", T0), US, None)
    rows = [row for _ in range(2) for row in asyncio.run(source.poll(T0)).observations]
    assert not [row for row in rows if row["anchor"] == "in_service"]


def test_targets_whose_unit_is_not_known_yet_are_told_later() -> None:
    health = lambda *found: {  # noqa: E731
        "TargetHealthDescriptions": [
            {"Target": {"Id": name, "Port": 8000}, "TargetHealth": {"State": state}} for name, state in found
        ]
    }
    known: dict[str, str] = {}
    api = Scripted(
        health(), health(("10.0.0.7", "initial")), health(("10.0.0.7", "healthy")), health(("10.0.0.7", "healthy"))
    )
    source = TargetHealth(
        api,
        US,
        groups=lambda: ["arn:tg"],
        unit_of=lambda target: known.get(target["Id"]),
        signals=ECS,
        resource="r",
    )
    for _ in range(3):
        assert asyncio.run(source.poll(T0)).observations == []
    known["10.0.0.7"] = "0af1"
    rows = asyncio.run(source.poll(T0)).observations
    assert by_anchor(rows) == {"in_service": (1, 3)}


@pytest.mark.parametrize("old", ["unhealthy", "draining"])
def test_a_target_that_comes_back_is_no_new_unit(old: str) -> None:
    health = lambda state: {"TargetHealthDescriptions": [{"Target": {"Id": "i-1"}, "TargetHealth": {"State": state}}]}  # noqa: E731
    source = TargetHealth(
        Scripted(health(old), health("healthy")),
        US,
        groups=lambda: ["arn:tg"],
        unit_of=lambda target: target["Id"],
        signals=ECS,
        resource="r",
    )
    rows = [row for _ in range(2) for row in asyncio.run(source.poll(T0)).observations]
    assert [row["anchor"] for row in rows] == [None]


def test_only_the_services_own_capacity_providers_are_kept() -> None:
    """Without names the operation lists those of everybody in the account."""
    providers = [
        collect("ecs", seed).snapshots["describe-capacity-providers"]["capacityProviders"] for seed in range(4)
    ]
    names = {provider["name"] for listed in providers for provider in listed}
    assert names == {"demo-machines", "FARGATE"}
    assert {len(listed) for listed in providers} == {1}
