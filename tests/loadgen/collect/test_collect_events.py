"""EventBridge through SQS, CloudTrail: both forms of time, wrappers, duplicates, and what is nobody's business."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from loadgen.collect.base import Answer
from loadgen.collect.events import Events, alarm_rows, endpoint_rows, event_of, event_time_us
from loadgen.collect.trail import trail_rows
from loadgen.collect.variant import Watched
from tests.loadgen.collect.fake_aws import history_item

ANSWER = Answer({}, 1, 2)
WATCHED = Watched("demo", "AllTraffic")
AT_US = 1_782_900_000_000_000


def deployment(current: int, desired: int, message: str | None = None, **more: Any) -> dict[str, Any]:
    """A deployment state change as the documentation describes it, made anew."""
    variant: dict[str, Any] = {
        "VariantName": "AllTraffic",
        "CurrentInstanceCount": current,
        "DesiredInstanceCount": desired,
    }
    if message:
        variant["VariantStatus"] = {"Status": "Updating", "StatusMessage": message, "StartTime": AT_US // 1000 + 250}
    detail = {"EndpointName": "demo", "EndpointStatus": "UPDATING", "ProductionVariants": [variant]}
    return {
        "id": "e-1",
        "detail-type": "SageMaker Endpoint Deployment State Change",
        "source": "aws.sagemaker",
        "time": "2026-07-01T10:00:00Z",
        "resources": ["arn:aws:sagemaker:us-east-1:1:endpoint/demo"],
        "detail": detail,
        **more,
    }


@pytest.mark.parametrize("time", ["2026-07-01T10:00:00Z", "1782900000000", 1782900000000])
def test_both_documented_forms_of_time(time: Any) -> None:
    assert event_time_us(time) == AT_US


@pytest.mark.parametrize("time", [None, "", "yesterday"])
def test_a_time_that_is_none(time: Any) -> None:
    assert event_time_us(time) is None


def test_a_topics_wrapper_is_taken_off() -> None:
    event = deployment(1, 2)
    assert event_of(json.dumps(event)) == event
    assert event_of(json.dumps({"Type": "Notification", "Message": json.dumps(event)})) == event
    assert event_of("no json") is event_of("[1]") is event_of('{"x": 1}') is None


def test_an_updates_start_is_the_services_own() -> None:
    rows = endpoint_rows(deployment(1, 2, "Launching 1 instance(s)."), AT_US, WATCHED, ANSWER, {})
    (decision,) = [row for row in rows if row["anchor"] == "decision"]
    assert decision["lo"] == decision["hi"] == datetime(2026, 7, 1, 10, 0, 0, 250_000, tzinfo=UTC)
    shrinking = endpoint_rows(deployment(2, 1, "Terminating 1 instance(s)."), AT_US, WATCHED, ANSWER, {})
    assert [row["anchor"] for row in shrinking] == [None]


def test_more_instances_were_there_before_the_event_told_it() -> None:
    counts: dict[str, tuple[int, int]] = {}
    endpoint_rows(deployment(1, 2), AT_US, WATCHED, ANSWER, counts)
    late = endpoint_rows(deployment(1, 1), AT_US - 60_000_000, WATCHED, ANSWER, counts)
    rows = endpoint_rows(deployment(2, 2), AT_US + 5_000_000, WATCHED, ANSWER, counts)
    (served,) = [row for row in rows if row["anchor"] == "in_service"]
    assert served["lo"] is None
    assert served["hi"] == datetime(2026, 7, 1, 10, 0, 6, tzinfo=UTC)
    assert [row["anchor"] for row in late] == [None]


def test_the_same_change_under_another_id_is_the_same_row() -> None:
    first, second = (
        endpoint_rows(deployment(1, 2, id=name, time=time), AT_US, WATCHED, ANSWER, {})[0]["native_id"]
        for name, time in (("a", "2026-07-01T10:00:00Z"), ("b", "2026-07-01T10:00:01Z"))
    )
    assert first == second
    assert endpoint_rows(deployment(2, 2), AT_US, WATCHED, ANSWER, {})[0]["native_id"] != first


def test_an_alarms_event_says_what_its_history_says() -> None:
    item = history_item(AT_US, [(AT_US - 30_000_000, 8.0)])
    state = json.loads(item["HistoryData"])["newState"]
    detail = {
        "alarmName": item["AlarmName"],
        "state": {
            "value": "ALARM",
            "timestamp": "2026-07-01T10:00:00.000+0000",
            "reason": "Threshold Crossed: 1 datapoint was greater than the threshold (5.0).",
            "reasonData": json.dumps(state["stateReasonData"]),
        },
    }
    rows = alarm_rows(detail, ANSWER, "r")
    assert [(row["anchor"], row["source"]) for row in rows] == [("alarm", "eventbridge"), ("breach", "eventbridge")]
    assert alarm_rows({"state": "?"}, ANSWER, "r") == []


class Queue:
    """An SQS that gives each message twice until it is deleted."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.waiting = [{"ReceiptHandle": f"r{n}", "Body": json.dumps(event)} for n, event in enumerate(events)]
        self.deleted: list[str] = []

    async def call(self, operation: str, **asked: Any) -> Answer:
        if operation == "delete_message_batch":
            self.deleted += [entry["ReceiptHandle"] for entry in asked["Entries"]]
            return ANSWER
        messages, self.waiting = self.waiting, []
        return Answer({"Messages": messages} if messages else {}, 1, 2)


def test_messages_are_deleted_one_poll_after_they_were_read() -> None:
    class Policies:
        inward: frozenset[str] = frozenset()

    queue = Queue(deployment(1, 2), deployment(1, 2), {"detail-type": "x", "detail": {"EndpointName": "other"}})
    events = Events(queue, WATCHED, "http://q/1/e", 1, Policies())  # type: ignore[arg-type]
    reading = asyncio.run(events.poll(AT_US))
    assert len({row["native_id"] for row in reading.observations}) == 1
    assert queue.deleted == []
    assert asyncio.run(events.poll(AT_US)).observations == []
    assert queue.deleted == ["r0", "r1", "r2"]


def call(name: str, asked: dict[str, Any], invoked_by: str = "sagemaker.amazonaws.com") -> dict[str, Any]:
    document = {
        "userIdentity": {"invokedBy": invoked_by, "arn": "arn:aws:sts::1:assumed-role/secret-role"},
        "requestParameters": asked,
        "sourceIPAddress": "203.0.113.9",
    }
    return {
        "EventId": f"{name}-1",
        "EventName": name,
        "EventTime": datetime(2026, 7, 1, 10, tzinfo=UTC),
        "CloudTrailEvent": json.dumps(document),
    }


def test_the_trail_dates_the_change_of_capacity_and_the_pull_to_the_second() -> None:
    (decision,) = trail_rows(call("UpdateEndpointWeightsAndCapacities", {"endpointName": "demo"}), WATCHED, ANSWER)
    assert (decision["anchor"], (decision["hi"] - decision["lo"]).total_seconds()) == ("decision", 1.0)
    (pull,) = trail_rows(call("BatchGetImage", {"repositoryName": "lmi"}), WATCHED, ANSWER)
    assert (pull["anchor"], pull["verified"]) == ("pull_started", False)
    assert "secret-role" not in str(pull)
    assert "203.0.113.9" not in str(pull)


@pytest.mark.parametrize(
    "event",
    [
        call("UpdateEndpointWeightsAndCapacities", {"endpointName": "other"}),
        call("BatchGetImage", {"repositoryName": "lmi"}, invoked_by="ecs.amazonaws.com"),
        call("DeleteEverything", {}),
        {"EventName": "BatchGetImage", "EventId": "x", "EventTime": "soon"},
        {},
    ],
)
def test_the_trail_of_others_is_left_out(event: dict[str, Any]) -> None:
    assert trail_rows(event, WATCHED, ANSWER) == []
