"""EventBridge through an SQS queue: state changes that the platform tells by itself, each at least once.

The queue and the rule that fills it are the user's; making them is a write, and this collector never writes. A message
is deleted from the queue one poll after it was read, when its rows are on disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from loadgen.collect.alarms import history_rows, inward, parse_instant_us
from loadgen.collect.anchors import SAGEMAKER
from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, Reading, Row
from loadgen.collect.redaction import said
from loadgen.collect.rows import observation
from loadgen.collect.scaling import AlarmBook
from loadgen.collect.variant import Watched, variant_of
from traces.clock import to_datetime
from traces.units import US_PER_MS, US_PER_S

_BATCH = 10
_BATCHES_AT_MOST = 20


class Events:
    """Reads the queue until it is empty. Messages come twice and out of order; the same content is the same row."""

    name = "eventbridge"
    kept_us: int | None = 0
    permissions: ClassVar = (
        Permission(
            "sqs", "receive_message", ("sqs:ReceiveMessage",), "state changes as the platform tells them", ("{queue}",)
        ),
        Permission("sqs", "delete_message_batch", ("sqs:DeleteMessage",), "that the queue empties", ("{queue}",)),
    )

    def __init__(self, api: Api, watched: Watched, queue_url: str, period_us: int, alarms: AlarmBook) -> None:
        self.period_us = period_us
        self._api = api
        self._watched = watched
        self._queue_url = queue_url
        self._alarms = alarms
        self._read: list[str] = []
        self._counts: dict[str, tuple[int, int]] = {}

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return the rows of the messages that wait; what the last poll read is deleted first."""
        await self._delete()
        reading = Reading()
        for _ in range(_BATCHES_AT_MOST):
            answer = await self._api.call(
                "receive_message", QueueUrl=self._queue_url, MaxNumberOfMessages=_BATCH, WaitTimeSeconds=0
            )
            messages = answer.data.get("Messages") or []
            for message in messages:
                self._read.append(str(message.get("ReceiptHandle")))
                event = event_of(message.get("Body"))
                if event is not None:
                    reading.observations += self._rows(event, answer)
            if not messages:
                break
        return reading

    async def _delete(self) -> None:
        while self._read:
            part, rest = self._read[:_BATCH], self._read[_BATCH:]
            entries = [{"Id": str(place), "ReceiptHandle": handle} for place, handle in enumerate(part)]
            await self._api.call("delete_message_batch", QueueUrl=self._queue_url, Entries=entries)
            self._read = rest

    def _rows(self, event: Mapping[str, Any], answer: Answer) -> list[Row]:
        at_us = event_time_us(event.get("time"))
        detail = event.get("detail")
        if at_us is None or at_us < self._watched.since_us or not isinstance(detail, Mapping):
            return []
        if event.get("detail-type") == "CloudWatch Alarm State Change":
            rows = alarm_rows(detail, answer, self._watched.resource)
            return [inward(row) for row in rows] if detail.get("alarmName") in self._alarms.inward else rows
        if detail.get("EndpointName") != self._watched.endpoint:
            return []
        return endpoint_rows(event, at_us, self._watched, answer, self._counts)


def queue_arn(url: str, region: str | None) -> str:
    """Return the ARN of the queue at an address.

    >>> queue_arn("https://sqs.us-east-1.amazonaws.com/123456789012/events", "us-east-1")
    'arn:aws:sqs:us-east-1:123456789012:events'
    """
    _, account, name = url.rsplit("/", 2)
    return f"arn:aws:sqs:{region or '*'}:{account}:{name}"


def event_of(body: Any) -> Mapping[str, Any] | None:
    """Return the event that a message's body holds, also where a topic wrapped it; `None` where there is none."""
    for _ in range(2):
        try:
            document = msgspec.json.decode(str(body))
        except msgspec.MsgspecError:
            return None
        if not isinstance(document, dict):
            return None
        if "detail-type" in document:
            return document
        body = document.get("Message")
    return None


def event_time_us(time: Any) -> int | None:
    """Return an envelope's time: an ISO instant, or epoch milliseconds as one documented sample shows it.

    >>> event_time_us("2026-07-01T10:00:00Z") == event_time_us("1782900000000") == 1_782_900_000_000_000
    True
    """
    if isinstance(time, int | float) or str(time).isdecimal():
        return int(time) * US_PER_MS
    return parse_instant_us(time)


def alarm_rows(detail: Mapping[str, Any], answer: Answer, resource: str) -> list[Row]:
    """Return the rows of an alarm's change; they say what the alarm's history says, under this source's name."""
    state = detail.get("state")
    if not isinstance(state, Mapping):
        return []
    at_us = parse_instant_us(state.get("timestamp"))
    new = {
        "stateValue": state.get("value"),
        "stateReason": state.get("reason"),
        "stateReasonData": state.get("reasonData"),
    }
    item = {
        "AlarmName": detail.get("alarmName"),
        "HistoryItemType": "StateUpdate",
        "Timestamp": None if at_us is None else to_datetime(at_us),
        "HistoryData": {"newState": new},
    }
    return [{**row, "source": "eventbridge"} for row in history_rows(item, {}, answer, resource)]


def endpoint_rows(
    event: Mapping[str, Any], at_us: int, watched: Watched, answer: Answer, counts: dict[str, tuple[int, int]]
) -> list[Row]:
    """Return the rows of an endpoint's change: an update's start, more instances, or a plain fact.

    `counts` keeps the newest instance count seen, by variant, with its time: an event that comes late changes nothing.
    """
    detail = event["detail"]
    identity = _identity(event)
    facts = {
        "event_id": event.get("id"),
        "detail_type": event.get("detail-type"),
        "status": detail.get("EndpointStatus"),
        "failure_reason": said(detail["FailureReason"]) if detail.get("FailureReason") else None,
    }
    end_us = at_us + US_PER_S
    rows = [
        observation(
            SAGEMAKER["event.other"], watched.resource, identity, answer, lo_us=at_us, hi_us=end_us, detail=facts
        )
    ]
    variant = variant_of(detail, watched.variant) or {}
    desired, current = variant.get("DesiredInstanceCount"), variant.get("CurrentInstanceCount")
    shrinking = isinstance(desired, int) and isinstance(current, int) and desired < current
    for status in _listed(variant.get("VariantStatus")):
        start_us = event_time_us(status.get("StartTime"))
        message = said(status.get("StatusMessage") or "")
        falling = shrinking or message.startswith("Terminating") or watched.component is not None
        if status.get("Status") == "Updating" and start_us is not None and not falling:
            update = {"status": "Updating", "status_message": message}
            key = f"variant-status:{start_us}"
            rows.append(
                observation(SAGEMAKER["event.variant"], watched.resource, key, answer, at_us=start_us, detail=update)
            )
    if isinstance(current, int) and watched.component is None:
        before = counts.get(watched.variant)
        if before is None or at_us > before[1]:
            counts[watched.variant] = (current, at_us)
        if before is not None and at_us > before[1] and current > before[0]:
            # The count rose some time before the event told it.
            change = {"from": before[0], "to": current}
            key = f"current:{before[0]}->{current}:{at_us}"
            rows.append(
                observation(SAGEMAKER["event.count"], watched.resource, key, answer, hi_us=end_us, detail=change)
            )
    return rows


def _listed(value: Any) -> list[Mapping[str, Any]]:
    """Return a list of objects, also where one stands alone, as the documented samples have it."""
    found = value if isinstance(value, list) else [value]
    return [one for one in found if isinstance(one, Mapping)]


def _identity(event: Mapping[str, Any]) -> str:
    """Return the same text for the same change: it may be sent several times, under ids of its own each time."""
    content = {key: event.get(key) for key in ("detail-type", "resources", "detail")}
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:32]
