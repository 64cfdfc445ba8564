"""CloudWatch Logs: one group for the endpoint, one stream per instance, named `<variant>/<instance id>`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from loadgen.emulator.api import ApiError, Handler, arn, page
from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.container_log import LogEvent, created_us
from loadgen.emulator.fleet import Instance
from loadgen.emulator.model import EndpointModel

_MOST_EVENTS = 10_000
_BAD_PAGE = "InvalidParameterException"
_TERM = re.compile(r'([?-]?)(?:"([^"]*)"|(\S+))')
CONTAINER = "vllm"
"""The serving container of an ECS task."""


def describe_log_groups(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeLogGroups' members."""
    name = group_name(model.config)
    if not name.startswith(request.get("logGroupNamePrefix", "")) or request.get("logGroupNamePattern", "") not in name:
        return {"logGroups": []}
    events = [event for instance in model.fleet.instances for event in _events(model, instance)]
    group_arn = arn(model.config, "logs", f"log-group:{name}")
    group = {
        "logGroupName": name,
        "creationTime": model.fleet.created_us // 1000,
        "metricFilterCount": 0,
        "arn": f"{group_arn}:*",
        "storedBytes": sum(len(event.message) for event in events),
        "logGroupClass": "STANDARD",
        "logGroupArn": group_arn,
    }
    return {"logGroups": [group]}


def describe_log_streams(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeLogStreams' members."""
    _check_group(model, request)
    by_time = request.get("orderBy") == "LastEventTime"
    prefix = request.get("logStreamNamePrefix")
    if by_time and prefix is not None:
        raise ApiError("InvalidParameterException", "Cannot order by LastEventTime with a logStreamNamePrefix.")
    found = [
        _stream(model, name, instance)
        for name, instance in _streams(model).items()
        if name.startswith(prefix or "") and created_us(model.config, instance.log) <= model.now_us
    ]
    found.sort(key=lambda s: s.get("lastEventTimestamp", 0) if by_time else s["logStreamName"])
    if request.get("descending", False):
        found.reverse()
    limit = request.get("limit", 50)
    chosen, token = page(found, token=request.get("nextToken"), limit=limit, newest_first=False, bad_token=_BAD_PAGE)
    return {"logStreams": chosen, "nextToken": token}


def get_log_events(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return GetLogEvents' members; at either end the token that led there is given again."""
    _check_group(model, request)
    instance = _streams(model).get(request["logStreamName"])
    if instance is None or created_us(model.config, instance.log) > model.now_us:
        raise ApiError("ResourceNotFoundException", "The specified log stream does not exist.")
    events = [event for event in _events(model, instance) if _within(event, request)]
    limit = request.get("limit", _MOST_EVENTS)
    token = request.get("nextToken")
    if token is None:
        start = 0 if request.get("startFromHead", False) else max(0, len(events) - limit)
        end = min(start + limit, len(events))
    else:
        direction, _, position = token.partition("/")
        if direction not in {"f", "b"} or not position.isdecimal():
            raise ApiError("InvalidParameterException", "The specified nextToken is invalid.")
        start = int(position) if direction == "f" else max(0, int(position) - limit)
        end = min(start + limit, len(events)) if direction == "f" else int(position)
    return {
        "events": [
            {"timestamp": e.at_us // 1000, "message": e.message, "ingestionTime": e.ingested_us // 1000}
            for e in events[start:end]
        ],
        "nextForwardToken": f"f/{end:020d}",
        "nextBackwardToken": f"b/{start:020d}",
    }


def filter_log_events(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return FilterLogEvents' members: the events of several streams, by time."""
    _check_group(model, request)
    names, prefix = request.get("logStreamNames"), request.get("logStreamNamePrefix", "")
    if names and prefix:
        raise ApiError("InvalidParameterException", "logStreamNames and logStreamNamePrefix exclude each other.")
    matches = _pattern(request.get("filterPattern", ""))
    found = [
        (event, name)
        for name, instance in _streams(model).items()
        if (not names or name in names) and name.startswith(prefix)
        for event in _events(model, instance)
        if _within(event, request) and matches(event.message)
    ]
    # Ingested later is listed later, so that a page's token stays right while lines come in.
    found.sort(key=lambda entry: (entry[0].ingested_us, entry[0].event_id))
    limit = request.get("limit", _MOST_EVENTS)
    chosen, token = page(found, token=request.get("nextToken"), limit=limit, newest_first=False, bad_token=_BAD_PAGE)
    events = [
        {
            "logStreamName": name,
            "timestamp": event.at_us // 1000,
            "message": event.message,
            "ingestionTime": event.ingested_us // 1000,
            "eventId": event.event_id,
        }
        for event, name in chosen
    ]
    return {"events": events, "searchedLogStreams": [], "nextToken": token}


OPERATIONS: dict[str, Handler] = {
    "DescribeLogGroups": describe_log_groups,
    "DescribeLogStreams": describe_log_streams,
    "GetLogEvents": get_log_events,
    "FilterLogEvents": filter_log_events,
}


def group_name(config: EmulatorConfig) -> str:
    """Return the endpoint's log group."""
    if config.platform == "ecs":
        return f"/ecs/{config.endpoint_name}"
    if config.component is not None:
        return f"/aws/sagemaker/InferenceComponents/{config.component.name}"
    return f"/aws/sagemaker/Endpoints/{config.endpoint_name}"


def _check_group(model: EndpointModel, request: Mapping[str, Any]) -> None:
    stated = request.get("logGroupName") or request.get("logGroupIdentifier", "").rpartition("log-group:")[2]
    if stated != group_name(model.config):
        raise ApiError("ResourceNotFoundException", "The specified log group does not exist.")


def _streams(model: EndpointModel) -> dict[str, Instance]:
    owner = f"ecs/{CONTAINER}" if model.config.platform == "ecs" else model.config.variant
    return {f"{owner}/{instance.unit_id}": instance for instance in model.fleet.instances}


def _events(model: EndpointModel, instance: Instance) -> list[LogEvent]:
    return [event for event in instance.log if event.ingested_us <= model.now_us]


def _stream(model: EndpointModel, name: str, instance: Instance) -> dict[str, Any]:
    stream: dict[str, Any] = {
        "logStreamName": name,
        "creationTime": created_us(model.config, instance.log) // 1000,
        "arn": arn(model.config, "logs", f"log-group:{group_name(model.config)}:log-stream:{name}"),
        "storedBytes": 0,
    }
    events = _events(model, instance)
    if events:
        stream |= {
            "firstEventTimestamp": events[0].at_us // 1000,
            "lastEventTimestamp": events[-1].at_us // 1000,
            "lastIngestionTime": events[-1].ingested_us // 1000,
        }
    return stream


def _within(event: LogEvent, request: Mapping[str, Any]) -> bool:
    at_ms = event.at_us // 1000
    start_ms, end_ms = request.get("startTime"), request.get("endTime")
    return (start_ms is None or at_ms >= start_ms) and (end_ms is None or at_ms < end_ms)


def _pattern(text: str) -> Callable[[str], bool]:
    """Return the test that a pattern of terms states: all plain ones, any of the `?` ones, none of the `-` ones."""
    if text.lstrip().startswith(("{", "[", "%")):
        raise ApiError("InvalidParameterException", "The emulator reads filter patterns of terms only.")
    terms = [(sign, quoted or plain) for sign, quoted, plain in _TERM.findall(text)]
    needed = [term for sign, term in terms if sign == ""]
    optional = [term for sign, term in terms if sign == "?"]
    barred = [term for sign, term in terms if sign == "-"]

    def matches(message: str) -> bool:
        return (
            all(term in message for term in needed)
            and (not optional or any(term in message for term in optional))
            and not any(term in message for term in barred)
        )

    return matches
