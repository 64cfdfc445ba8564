"""DescribeInferenceComponent: copy counts and states, whose changes are kept as the interval between two readings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from loadgen.collect.anchors import SAGEMAKER
from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Reading
from loadgen.collect.endpoint_state import changes, failure_reason, seen_at, seen_in, stamped
from loadgen.collect.first_last import FirstAndLast
from loadgen.collect.variant import Watched

FIRST, LAST = "describe-inference-component-first", "describe-inference-component-last"

_SIGNALS = {"decision": "copies.desired", "in_service": "copies.current", None: "component.other"}


class ComponentState:
    """Polls one inference component; `before` is the last reading of an earlier collector of the same run."""

    name = "sagemaker:describe-inference-component"
    kept_us: int | None = 0
    permissions: ClassVar = (
        Permission(
            "sagemaker",
            "describe_inference_component",
            ("sagemaker:DescribeInferenceComponent",),
            "copy counts and states",
            ("arn:{partition}:sagemaker:{region}:{account}:inference-component/*",),
        ),
    )

    def __init__(self, api: Api, watched: Watched, period_us: int, before: Mapping[str, Any] | None = None) -> None:
        self.period_us = period_us
        self._api = api
        self._watched = watched
        self._snapshots = FirstAndLast(FIRST, LAST, before)
        self._seen = seen_in(before, fields)

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return what changed since the last reading, and the reading itself as a snapshot."""
        name = self._watched.component
        answer = await self._api.call("describe_inference_component", InferenceComponentName=name)
        found = fields(answer.data)
        rows = []
        for row in changes(self._seen, found, answer, self._watched.resource):
            signal = SAGEMAKER[_SIGNALS[row["anchor"]]]
            rows.append({**row, "source": signal.source})
        self._seen |= seen_at(found, answer)
        return Reading(observations=rows, snapshots=self._snapshots.take(stamped(answer)))


def fields(component: Mapping[str, Any]) -> dict[str, Any]:
    """Return the watched fields of an answer: the status, why it failed, the copies, and where they are placed."""
    runtime = component.get("RuntimeConfig") or {}
    found = {
        "InferenceComponentStatus": component.get("InferenceComponentStatus"),
        "FailureReason": failure_reason(component),
        "DesiredCopyCount": runtime.get("DesiredCopyCount"),
        "CurrentCopyCount": runtime.get("CurrentCopyCount"),
    }
    for place in runtime.get("PlacementStatus") or ():
        found[f"PlacementStatus.{place.get('InstanceType')}"] = place.get("CurrentCopyCount")
    return {key: value for key, value in found.items() if value is not None}
