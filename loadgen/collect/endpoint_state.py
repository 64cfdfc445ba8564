"""DescribeEndpoint: instance counts and states, whose changes are kept as the interval between two readings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from loadgen.collect.anchors import SAGEMAKER
from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, Reading, Row
from loadgen.collect.first_last import FirstAndLast
from loadgen.collect.redaction import said
from loadgen.collect.rows import observation
from loadgen.collect.variant import Watched, variant_of
from traces.clock import to_us

FIRST, LAST = "describe-endpoint-first", "describe-endpoint-last"
STAMP = "_ramptrace"
"""Key, in the two snapshots, of when the reading was made: `sent_us` and `received_us`, client time."""

_COUNTS = {
    "DesiredInstanceCount": "desired",
    "CurrentInstanceCount": "current",
    "DesiredCopyCount": "desired",
    "CurrentCopyCount": "current",
}


class Seen(NamedTuple):
    """A field's value and the client time at which the last request that returned it was sent."""

    value: Any
    sent_us: int


class EndpointState:
    """Polls one endpoint; `before` is the last reading of an earlier collector of the same run, if there was one.

    A change that happened between two collectors is then found too, with the interval as wide as the pause was.
    """

    name = "sagemaker:describe-endpoint"
    kept_us: int | None = 0
    permissions: ClassVar = (
        Permission(
            "sagemaker",
            "describe_endpoint",
            ("sagemaker:DescribeEndpoint",),
            "instance counts, states and the start of each update",
            ("arn:{partition}:sagemaker:{region}:{account}:endpoint/{endpoint}",),
        ),
    )

    def __init__(self, api: Api, watched: Watched, period_us: int, before: Mapping[str, Any] | None = None) -> None:
        self.period_us = period_us
        self._api = api
        self._watched = watched
        self._snapshots = FirstAndLast(FIRST, LAST, before)
        self._seen = seen_in(before, lambda found: fields(found, watched.variant))

    def unchanged_at(self, sent_us: int) -> None:
        """Take note that a reading sent at `sent_us` (client time) would have shown the same as the last one."""
        self._seen = {key: seen._replace(sent_us=sent_us) for key, seen in self._seen.items()}

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return what changed since the last reading, and the reading itself as a snapshot."""
        answer = await self._api.call("describe_endpoint", EndpointName=self._watched.endpoint)
        found = fields(answer.data, self._watched.variant)
        if self._watched.component is None:
            rows = [
                *changes(self._seen, found, answer, self._watched.resource),
                *variant_statuses(answer, self._watched.variant, self._watched.resource),
            ]
        else:
            rows = [
                *instance_changes(self._seen, found, answer, self._watched.resource),
                *variant_statuses(answer, self._watched.variant, self._watched.resource, beneath=True),
            ]
        self._seen |= seen_at(found, answer)
        return Reading(observations=rows, snapshots=self._snapshots.take(stamped(answer)))


def seen_in(
    before: Mapping[str, Any] | None, fields_of: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> dict[str, Seen]:
    """Return the fields that a stamped snapshot of an earlier collector holds, and when it asked for them."""
    sent_us = (before or {}).get(STAMP, {}).get("sent_us")
    if before is None or not isinstance(sent_us, int):
        return {}
    return {key: Seen(value, sent_us) for key, value in fields_of(before).items()}


def seen_at(found: Mapping[str, Any], answer: Answer) -> dict[str, Seen]:
    """Return the fields of an answer. One that it lacks keeps its last known reading: the interval only grows wider."""
    return {key: Seen(value, answer.sent_us) for key, value in found.items()}


def stamped(answer: Answer) -> dict[str, Any]:
    """Return an answer as a snapshot keeps it: what may be kept, and when it was asked for and received."""
    return {**answer.data, STAMP: {"sent_us": answer.sent_us, "received_us": answer.received_us}}


def fields(endpoint: Mapping[str, Any], variant: str) -> dict[str, Any]:
    """Return the watched fields that a DescribeEndpoint answer holds: the status, and the variant's counts."""
    found = {"EndpointStatus": endpoint.get("EndpointStatus"), "FailureReason": failure_reason(endpoint)}
    summary = variant_of(endpoint, variant) or {}
    found |= {name: summary.get(name) for name in _COUNTS}
    return {key: value for key, value in found.items() if value is not None}


def failure_reason(document: Mapping[str, Any]) -> str:
    """Return why it failed (no capacity, say), without account numbers and keys; empty where it did not."""
    return said(document.get("FailureReason") or "")


def changes(seen: Mapping[str, Seen], found: Mapping[str, Any], answer: Answer, resource: str) -> list[Row]:
    """Return a row for each field that changed: it did so in [last old request sent, first new response received]."""
    rows = []
    for key, value in found.items():
        old = seen.get(key)
        if old is None or old.value == value:
            continue
        label = _COUNTS.get(key, "status")
        rose = key in _COUNTS and value > old.value
        signal = SAGEMAKER[f"{label}.rose" if rose else "endpoint.other"]
        detail = {"from": old.value, "to": value}
        rows.append(
            observation(
                signal,
                resource,
                f"{label}:{old.value}->{value}:{answer.received_us}",
                answer,
                lo_us=old.sent_us,
                hi_us=answer.received_us,
                resolution_us=answer.received_us - old.sent_us,
                detail=detail if rose else {"field": key, **detail},
            )
        )
    return rows


def instance_changes(seen: Mapping[str, Seen], found: Mapping[str, Any], answer: Answer, resource: str) -> list[Row]:
    """Return the rows of the instances beneath a component's copies.

    They scale by themselves, without a scaling activity: more of them decide nothing and serve nothing, but were
    launched by the time they are counted.
    """
    rows = []
    for row in changes(seen, found, answer, resource):
        grew = row["anchor"] == "in_service"
        signal = SAGEMAKER["instances.rose" if grew else "endpoint.other"]
        lo = None if grew else row["lo"]
        rows.append({**row, "source": signal.source, "anchor": signal.anchor, "lo": lo})
    return rows


def variant_statuses(answer: Answer, variant: str, resource: str, *, beneath: bool = False) -> list[Row]:
    """Return a row for each Updating transition of the variant, at the service's own StartTime.

    The transition dates a decision unless the variant is on its way to fewer instances, or lies `beneath` a component.
    """
    summary = variant_of(answer.data, variant) or {}
    desired, current = summary.get("DesiredInstanceCount"), summary.get("CurrentInstanceCount")
    shrinking = desired is not None and current is not None and desired < current
    rows = []
    for status in summary.get("VariantStatus") or ():
        start = status.get("StartTime")
        if status.get("Status") != "Updating" or not isinstance(start, datetime):
            continue
        message = said(status.get("StatusMessage") or "")
        falling = beneath or shrinking or message.startswith("Terminating")
        start_us = to_us(start)
        rows.append(
            observation(
                SAGEMAKER["variant.shrinking" if falling else "variant.updating"],
                resource,
                f"variant-status:{start_us}",
                answer,
                at_us=start_us,
                detail={"status": "Updating", "status_message": message},
            )
        )
    return rows
