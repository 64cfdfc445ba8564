"""CloudTrail: who changed the capacity, and when the endpoint's role asked the registry for an image. Optional.

Events come minutes late. Whether the pull's calls show at all is not documented: where they do, their absence would
speak for a cached image, and that is said as a likelihood by the analysis, never here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from loadgen.collect.anchors import SAGEMAKER
from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, Reading, Row
from loadgen.collect.redaction import said
from loadgen.collect.rows import observation
from loadgen.collect.variant import Watched
from traces.clock import to_datetime, to_us
from traces.units import US_PER_S

_LATE_US = 900 * US_PER_S
_NAMES = {
    "UpdateEndpointWeightsAndCapacities": "trail.capacity",
    "UpdateInferenceComponentRuntimeConfig": "trail.capacity",
    "BatchGetImage": "trail.pull",
    "GetDownloadUrlForLayer": "trail.layer",
}


class Trail:
    """Looks up the four events that date a scale-out, again and again over the minutes in which they may still come."""

    name = "cloudtrail"
    kept_us: int | None = 90 * 86_400 * US_PER_S
    permissions: ClassVar = (
        Permission(
            "cloudtrail", "lookup_events", ("cloudtrail:LookupEvents",), "calls that pull an image, where they show"
        ),
    )

    def __init__(self, api: Api, watched: Watched, period_us: int) -> None:
        self.period_us = period_us
        self._api = api
        self._watched = watched
        self._complete_us = watched.since_us

    async def poll(self, now_us: int) -> Reading:
        """Return the rows of the events since a quarter of an hour before the last complete reading."""
        start_us = max(self._watched.since_us, min(self._complete_us, now_us) - _LATE_US)
        reading = Reading()
        for name in _NAMES:
            scope: dict[str, Any] = {
                "LookupAttributes": [{"AttributeKey": "EventName", "AttributeValue": name}],
                "StartTime": to_datetime(start_us),
                "EndTime": to_datetime(now_us),
            }
            async for page in self._api.pages("lookup_events", **scope):
                for event in page.data.get("Events") or ():
                    reading.observations += trail_rows(event, self._watched, page)
        self._complete_us = now_us
        return reading


def trail_rows(event: Mapping[str, Any], watched: Watched, answer: Answer) -> list[Row]:
    """Return the row of an event that is about the watched endpoint, or of a pull by any of SageMaker's roles.

    Of the event's own document only the named parameters are read; who called, and from where, stays behind.
    """
    name, stamped = str(event.get("EventName")), event.get("EventTime")
    if name not in _NAMES or not isinstance(stamped, datetime) or not event.get("EventId"):
        return []
    document = _document(event.get("CloudTrailEvent"))
    asked = document.get("requestParameters") or {}
    signal = SAGEMAKER[_NAMES[name]]
    invoked_by = said((document.get("userIdentity") or {}).get("invokedBy") or "") or None
    detail: dict[str, Any] = {"event": name, "invoked_by": invoked_by}
    if signal.anchor == "decision":
        target = asked.get("inferenceComponentName") if watched.component else asked.get("endpointName")
        if target != (watched.component or watched.endpoint):
            return []
    else:
        detail |= {"repository": asked.get("repositoryName")}
        if detail["invoked_by"] != "sagemaker.amazonaws.com":
            return []
    at_us = to_us(stamped)
    key = str(event["EventId"])
    return [observation(signal, watched.resource, key, answer, lo_us=at_us, hi_us=at_us + US_PER_S, detail=detail)]


def _document(text: Any) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(str(text))
    except msgspec.MsgspecError:
        return {}
    return found if isinstance(found, dict) else {}
