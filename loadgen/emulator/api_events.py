"""What is optional on the platform: the SQS queue of EventBridge's events, CloudTrail, the image's registry, STS."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from loadgen.emulator.alarms import Alarm, HistoryItem
from loadgen.emulator.api import ApiError, Handler, arn, at, page
from loadgen.emulator.autoscaler import ACCOUNT
from loadgen.emulator.config import to_us
from loadgen.emulator.fleet import Change
from loadgen.emulator.message_queue import MessageQueue
from loadgen.emulator.model import EndpointModel
from traces.clock import to_datetime

_LAYERS = 5
_BAD_PAGE = "InvalidNextTokenException"


def receive_message(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return ReceiveMessage's members; it never waits, whatever it is asked."""
    queue = _queue(model, request)
    for key, at_us, body in _events(model):
        queue.send(key, at_us, body)
    messages = queue.receive(model.now_us, request.get("MaxNumberOfMessages", 1))
    return {
        "Messages": [
            {
                "MessageId": message.message_id,
                "ReceiptHandle": message.receipt,
                "MD5OfBody": hashlib.md5(message.body.encode(), usedforsecurity=False).hexdigest(),
                "Body": message.body,
            }
            for message in messages
        ]
        or None
    }


def delete_message_batch(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DeleteMessageBatch's members."""
    queue = _queue(model, request)
    done = {entry["Id"]: queue.delete(entry["ReceiptHandle"]) for entry in request["Entries"]}
    failed = [
        {"Id": entry, "SenderFault": True, "Code": "ReceiptHandleIsInvalid"}
        for entry, known in done.items()
        if not known
    ]
    return {"Successful": [{"Id": entry} for entry, known in done.items() if known], "Failed": failed}


def lookup_events(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return LookupEvents' members, newest first."""
    wanted = {a["AttributeKey"]: a["AttributeValue"] for a in request.get("LookupAttributes", [])}
    seen_us = model.now_us - to_us(model.config.trail_lag_s)
    start, end = request.get("StartTime"), request.get("EndTime")
    found = [
        event
        for at_us, event in _trail(model)
        if at_us <= seen_us
        and wanted.get("EventName", event["EventName"]) == event["EventName"]
        and (start is None or event["EventTime"] >= start)
        and (end is None or event["EventTime"] <= end)
    ]
    found.sort(key=lambda event: (event["EventTime"], event["EventId"]))
    limit = request.get("MaxResults", 50)
    chosen, token = page(found, token=request.get("NextToken"), limit=limit, newest_first=True, bad_token=_BAD_PAGE)
    return {"Events": chosen, "NextToken": token}


def describe_images(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return ECR's DescribeImages' members: the endpoint's image, compressed."""
    name = request["repositoryName"]
    if name != "djl-inference":
        raise ApiError("RepositoryNotFoundException", f"The repository with name '{name}' does not exist.")
    detail = {
        "registryId": request.get("registryId", ACCOUNT),
        "repositoryName": name,
        "imageDigest": f"sha256:{hashlib.sha256(name.encode()).hexdigest()}",
        "imageTags": ["0.36.0-lmi18.0.0-cu128"],
        "imageSizeInBytes": round(model.config.startup.image_gb * 1e9),
        "imagePushedAt": at(model.fleet.created_us),
    }
    return {"imageDetails": [detail]}


SQS_OPERATIONS: dict[str, Handler] = {
    "ReceiveMessage": receive_message,
    "DeleteMessageBatch": delete_message_batch,
}
CLOUDTRAIL_OPERATIONS: dict[str, Handler] = {"LookupEvents": lookup_events}


def get_caller_identity(_model: EndpointModel, _request: Mapping[str, Any]) -> dict[str, Any]:
    """Return GetCallerIdentity's members."""
    return {"UserId": "AIDAEMULATED", "Account": ACCOUNT, "Arn": f"arn:aws:iam::{ACCOUNT}:user/emulated"}


STS_OPERATIONS: dict[str, Handler] = {"GetCallerIdentity": get_caller_identity}
ECR_OPERATIONS: dict[str, Handler] = {"DescribeImages": describe_images}


def _queue(model: EndpointModel, request: Mapping[str, Any]) -> MessageQueue:
    name = str(request["QueueUrl"]).rpartition("/")[2]
    if model.messages is None or name != model.config.event_queue:
        raise ApiError("QueueDoesNotExist", "The specified queue does not exist.")
    return model.messages


def _events(model: EndpointModel) -> Iterator[tuple[str, int, str]]:
    """Return what EventBridge has sent so far: a key for each event, when, and the event."""
    for number, change in enumerate(model.fleet.changes):
        for kind in ("SageMaker Endpoint State Change", "SageMaker Endpoint Deployment State Change"):
            key = f"{kind}:{number}"
            yield key, change.at_us, _endpoint_event(model, key, kind, change)
    scaler = model.autoscaler
    for alarm in (scaler.high, scaler.low, scaler.zero):
        for number, item in enumerate(alarm.history if alarm is not None else ()):
            if alarm is not None and item.kind == "StateUpdate":
                key = f"{alarm.rule.name}:{number}"
                yield key, item.at_us, _alarm_event(model, key, alarm, item)


def _endpoint_event(model: EndpointModel, key: str, kind: str, change: Change) -> str:
    config = model.config
    variant: dict[str, Any] = {"VariantName": config.variant, "DesiredInstanceCount": change.desired}
    if kind == "SageMaker Endpoint Deployment State Change":
        variant["CurrentInstanceCount"] = change.current
        if change.variant_status is not None:
            variant["VariantStatus"] = {
                "Status": "Updating",
                "StatusMessage": change.variant_status.message,
                "StartTime": change.variant_status.started_us // 1000,
            }
    resource = arn(config, "sagemaker", f"endpoint/{config.endpoint_name}")
    detail = {
        "EndpointName": config.endpoint_name,
        "EndpointArn": resource,
        "EndpointStatus": change.status,
        "ProductionVariants": [variant],
        "LastModifiedTime": change.at_us // 1000,
    }
    return _event(model, key, source="aws.sagemaker", kind=kind, at_us=change.at_us, resource=resource, detail=detail)


def _alarm_event(model: EndpointModel, key: str, alarm: Alarm, item: HistoryItem) -> str:
    state = json.loads(item.data)["newState"]
    stamp = to_datetime(item.at_us).strftime("%Y-%m-%dT%H:%M:%S.") + f"{item.at_us // 1000 % 1000:03d}+0000"
    detail = {
        "alarmName": alarm.rule.name,
        "state": {
            "value": state["stateValue"],
            "reason": state["stateReason"],
            "reasonData": json.dumps(state.get("stateReasonData")),
            "timestamp": stamp,
        },
    }
    kind = "CloudWatch Alarm State Change"
    return _event(
        model, key, source="aws.cloudwatch", kind=kind, at_us=item.at_us, resource=alarm.rule.arn, detail=detail
    )


def _event(
    model: EndpointModel, key: str, *, source: str, kind: str, at_us: int, resource: str, detail: Mapping[str, Any]
) -> str:
    document = {
        "version": "0",
        "id": hashlib.sha256(key.encode()).hexdigest()[:32],
        "detail-type": kind,
        "source": source,
        "account": ACCOUNT,
        "time": to_datetime(at_us).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": model.config.region,
        "resources": [resource],
        "detail": detail,
    }
    return json.dumps(document)


def _trail(model: EndpointModel) -> Iterator[tuple[int, dict[str, Any]]]:
    """Return the calls that show: the scaler's, and for each instance that pulled its image the registry's."""
    config = model.config
    scaler = {"type": "AssumedRole", "invokedBy": "sagemaker.application-autoscaling.amazonaws.com"}
    for activity in model.autoscaler.activities:
        if activity.desired is not None:
            asked: dict[str, Any] = {"endpointName": config.endpoint_name}
            name = "UpdateEndpointWeightsAndCapacities"
            if config.component is not None:
                asked = {"inferenceComponentName": config.component.name}
                name = "UpdateInferenceComponentRuntimeConfig"
            yield activity.started_us, _call(name, activity.activity_id, activity.started_us, scaler, asked)
    role = {"type": "AssumedRole", "invokedBy": "sagemaker.amazonaws.com"}
    for instance in model.fleet.instances:
        plan = instance.timeline
        if plan.image_cached or instance.scaling_id is None:
            continue
        asked = {"repositoryName": "djl-inference"}
        pull_us = plan.pull_finished_us - plan.pull_started_us
        yield plan.pull_started_us, _call("BatchGetImage", plan.unit_id, plan.pull_started_us, role, asked)
        for layer in range(_LAYERS):
            at_us = plan.pull_started_us + pull_us * layer // _LAYERS
            yield at_us, _call("GetDownloadUrlForLayer", f"{plan.unit_id}:{layer}", at_us, role, asked)


def _call(name: str, key: str, at_us: int, identity: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    document = {"eventName": name, "userIdentity": identity, "requestParameters": asked}
    return {
        "EventId": hashlib.sha256(f"{name}:{key}".encode()).hexdigest()[:32],
        "EventName": name,
        "EventTime": to_datetime(at_us // 1_000_000 * 1_000_000),
        "CloudTrailEvent": json.dumps(document),
    }
