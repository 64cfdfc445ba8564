"""Events of a workload: what the autoscalers decided, how a node pulled the image, what went wrong.

The reason says what happened; the wording of messages differs from version to version and is only read for numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from loadgen.collect.anchors import KUBERNETES
from loadgen.collect.base import Answer, Reading, Row
from loadgen.collect.kube_pods import Workload
from loadgen.collect.kube_times import Pull, Stamp, event_stamp, occurrences, pull_of
from loadgen.collect.redaction import said
from loadgen.collect.rows import observation
from traces.units import US_PER_MS, US_PER_S

_NEW_SIZE: Final = re.compile(r"New size: (\d+)")
_SCALED_UP: Final = re.compile(
    r"Scaled up replica set (?P<set>\S+) (?:from (?P<from>\d+) )?to (?P<to>\d+)(?: from (?P<was>\d+))?"
)
_KEDA: Final = re.compile(r"from (?P<from>\d+) to (?P<to>\d+)")
_POD_REASONS: Final = {
    "FailedScheduling": "unschedulable",
    "TriggeredScaleUp": "node-asked-for",
    "NotTriggerScaleUp": "node-refused",
    "Nominated": "node-nominated",
    "FailedMount": "volume-trouble",
    "FailedAttachVolume": "volume-trouble",
    "SuccessfulAttachVolume": "volume-attached",
    "Unhealthy": "probe-failed",
    "BackOff": "back-off",
    "Failed": "failed",
    "FailedCreatePodSandBox": "sandbox-trouble",
    "ErrImagePull": "pull-failed",
    "ImageStreaming": "image-streaming",
    "Killing": "killed",
    "Evicted": "evicted",
    "Preempted": "preempted",
}
_SCALERS: Final = ("HorizontalPodAutoscaler", "ScaledObject")
_OWN_CONTAINER: Final = re.compile(r"spec\.containers\{(.+)\}")
_FASTEST_PULL_BYTES_PER_S: Final = 4e9
"""No node fetches and unpacks an image faster (assumption): what claims to was fetched lazily, or by somebody else."""
_WAITING_AT_MOST: Final = 2_000


class _Pulling:
    """One container's pull, as its events so far tell it."""

    def __init__(self) -> None:
        self.begun: Stamp | None = None
        self.failed: Stamp | None = None
        self.asked: dict[str, int] = {}
        """uid of each `Pulling` event → how often it happened."""
        self.done: tuple[Stamp, Pull] | None = None
        self.streamed = False


class _Told(NamedTuple):
    """What one row says, before it is known of whom."""

    signal: str
    native_id: str
    at: Stamp | None
    detail: Mapping[str, Any]
    duration_us: int | None = None


class Events:
    """Events about one workload's pods, its deployment, and the autoscalers that act on it.

    Events may come before the pods or scalers they are about are known: those are kept, and read once they are.
    """

    def __init__(self, workload: Workload, scalers: Mapping[str, str]) -> None:
        self._workload = workload
        self._scalers = scalers
        """Name of each autoscaler's object → its kind."""
        self._pulls: dict[str, _Pulling] = {}
        self._waiting: dict[str, Mapping[str, Any]] = {}
        workload.waiting.append(self._late_rows)

    def seen(self, old: Mapping[str, Any] | None, new: Mapping[str, Any], told: Answer) -> Reading:  # noqa: ARG002
        """Return the rows of an event; one about a pod or a scaler that is not known yet is kept."""
        return Reading(self._rows(new, told))

    def gone(self, old: Mapping[str, Any], told: Answer) -> Reading:  # noqa: ARG002 - the port passes them
        """Events expire after an hour; that says nothing."""
        return Reading()

    def _rows(self, event: Mapping[str, Any], told: Answer) -> list[Row]:
        about = _about(event)
        kind, name = about.get("kind"), str(about.get("name"))
        at = event_stamp(dict(event))
        if at is None or at.hi_us < self._workload.since_us:
            return []
        if kind == "Deployment" and name == self._workload.name and event.get("reason") == "ScalingReplicaSet":
            return self._deployment_rows(event, at, told)
        if kind in {"Pod", *_SCALERS}:
            if self._is_known(about):
                return self._rows_of_known(event, at, told)
            self._keep(event)
        return []

    def _is_known(self, about: Mapping[str, Any]) -> bool:
        if about.get("kind") == "Pod":
            return about.get("uid") in self._workload.units
        return self._scalers.get(str(about.get("name"))) == about.get("kind")

    def _rows_of_known(self, event: Mapping[str, Any], at: Stamp, told: Answer) -> list[Row]:
        kind = str(_about(event).get("kind"))
        return self._pod_rows(event, at, told) if kind == "Pod" else self._scaler_rows(event, at, told, kind)

    def _keep(self, event: Mapping[str, Any]) -> None:
        """Keep an event for later. Most will be about other workloads: the oldest goes when there are too many."""
        self._waiting[_uid(event)] = event
        if len(self._waiting) > _WAITING_AT_MOST:
            del self._waiting[next(iter(self._waiting))]

    def _late_rows(self, told: Answer) -> list[Row]:
        known = [key for key, event in self._waiting.items() if self._is_known(_about(event))]
        return [row for key in known for row in self._rows(self._waiting.pop(key), told)]

    def _scaler_rows(self, event: Mapping[str, Any], at: Stamp, told: Answer, kind: str) -> list[Row]:
        """A decision names the count it asks for; what failed or was refused is a fact."""
        reason, message = str(event.get("reason")), str(event.get("message") or "")
        size, change = _NEW_SIZE.search(message), _KEDA.search(message)
        key = f"{_about(event).get('name')}@{at.lo_us // US_PER_S}"
        if reason == "SuccessfulRescale" and size is not None:
            detail = {"desired": int(size[1]), "cause": said(message)}
            return [self._row(_Told("hpa.rescaled", f"{key}:{size[1]}", at, detail), told, scaling_id=key)]
        if reason == "KEDAScaleTargetActivated":
            detail = {"cause": said(message)}
            if change is not None:
                detail |= {"from": int(change["from"]), "desired": int(change["to"])}
            return [self._row(_Told("keda.activated", key, at, detail), told, scaling_id=key)]
        detail = {"milestone": "scaler", "kind": kind, "reason": said(reason), "message": said(message)}
        return [self._row(_Told("event.other", _uid(event), at, detail | _often(event)), told)]

    def _deployment_rows(self, event: Mapping[str, Any], at: Stamp, told: Answer) -> list[Row]:
        found = _SCALED_UP.search(str(event.get("message") or ""))
        if found is None:
            return []
        before = found["from"] or found["was"]
        detail: dict[str, Any] = {"to": int(found["to"]), "replica_set": found["set"]}
        if before is not None:
            detail["from"] = int(before)
            if int(before) >= int(found["to"]):
                return []
        # The same deployment may be scaled to one size again: aggregated events keep one uid.
        return [self._row(_Told("deployment.scaled", f"{_uid(event)}:{found['to']}", at, detail), told)]

    def _pod_rows(self, event: Mapping[str, Any], at: Stamp, told: Answer) -> list[Row]:
        about, reason = _about(event), str(event.get("reason"))
        uid = str(about.get("uid"))
        own = _OWN_CONTAINER.fullmatch(str(about.get("fieldPath") or ""))
        mine = own is not None and own[1] == self._workload.containers.get(uid)
        message = str(event.get("message") or "")
        rows: list[Row] = []
        if reason in {"Pulling", "Pulled", "Failed", "ImageStreaming"} and mine:
            rows = self._pull_rows(uid, event, at, told)
        milestone = _POD_REASONS.get(reason)
        if milestone is not None:
            detail = {"milestone": milestone, "reason": reason, "message": said(message), **_often(event)}
            rows.append(self._row(_Told("event.other", _uid(event), at, detail), told, unit=self._workload.units[uid]))
        return rows

    def _pull_rows(self, uid: str, event: Mapping[str, Any], at: Stamp, told: Answer) -> list[Row]:
        pull, reason, message = self._pulls.setdefault(uid, _Pulling()), event.get("reason"), event.get("message")
        if reason == "Pulling":
            pull.begun = at if pull.begun is None else min(pull.begun, at)
            pull.asked[_uid(event)] = occurrences(dict(event))
        elif reason == "Failed" and "pull" in str(message).lower():
            pull.failed = at if pull.failed is None else min(pull.failed, at)
        elif reason == "ImageStreaming":
            pull.streamed = True
        elif reason == "Pulled" and (found := pull_of(str(message))) is not None:
            # A container that is started anew finds its image there: the first pull is the one that counts.
            pull.done = (at, found) if pull.done is None or at < pull.done[0] else pull.done
        return [self._row(row, told, unit=self._workload.units[uid]) for row in _pull_rows(uid, pull)]

    def _row(
        self,
        row: _Told,
        told: Answer,
        *,
        unit: str | None = None,
        scaling_id: str | None = None,
    ) -> Row:
        return observation(
            KUBERNETES[row.signal],
            self._workload.resource,
            row.native_id,
            told,
            lo_us=None if row.at is None else row.at.lo_us,
            hi_us=None if row.at is None else row.at.hi_us,
            duration_us=row.duration_us,
            unit_id=unit,
            scaling_id=scaling_id,
            detail=row.detail,
        )


def _pull_rows(uid: str, pull: _Pulling) -> list[_Told]:
    """Return the rows that the events of one pull allow.

    `Pulling` is written before the wait in the node's queue: alone it is a lower bound. The pull took as long as
    `Pulled` states, up to then; after a failed attempt that length is only the last one's, and the first attempt
    began before it failed.
    """
    rows: list[_Told] = []
    begun, failed, attempts = pull.begun, pull.failed, sum(pull.asked.values())
    retried = attempts > 1 or failed is not None
    detail: dict[str, Any] = {"attempts": attempts}
    if pull.done is None:
        if begun is not None:
            open_end = Stamp(begun.lo_us, failed.hi_us) if failed is not None else None
            rows.append(_Told("pull.other", f"{uid}:pulling", begun, {"milestone": "pulling"}))
            if open_end is not None:
                rows.append(_Told("pull.started", f"{uid}:pull-started", open_end, detail))
        return rows
    at, found = pull.done
    detail |= {"mode": mode_of(pull.streamed, found), "image_bytes": found.image_bytes}
    if found.own_us is not None and found.whole_us is not None:
        detail["queued_us"] = max(found.whole_us - found.own_us, 0)
    began = at
    if found.own_us is not None:
        began = Stamp(at.lo_us - found.own_us - US_PER_MS, at.hi_us - found.own_us)
        if retried and begun is not None:
            began = Stamp(begun.lo_us, max(begun.hi_us, failed.hi_us if failed is not None else began.hi_us))
        elif begun is not None:
            began = Stamp(max(began.lo_us, begun.lo_us), max(began.hi_us, begun.lo_us))
    rows.append(_Told("pull.started", f"{uid}:pull-started", began, detail))
    rows.append(_Told("pull.finished", f"{uid}:pull-finished", at, detail))
    if found.own_us is not None and not retried:
        rows.append(_Told("pull.length", f"{uid}:pull-length", None, detail, found.own_us))
    return rows


def mode_of(streamed: bool, pull: Pull) -> str:
    """Return how an image came: `cached`, `lazy`, `lazy?` when it came faster than any node pulls, else `pulled`.

    A lazy image (SOCI, stargz, Nydus, streaming) is fetched after the container started: its cost is in the load.
    """
    if streamed:
        return "lazy"
    if pull.cached:
        return "cached"
    fast = pull.image_bytes is not None and pull.own_us is not None
    if fast and (pull.image_bytes or 0) * 1e6 > _FASTEST_PULL_BYTES_PER_S * max(pull.own_us or 0, 1):
        return "lazy?"
    return "pulled"


def _about(event: Mapping[str, Any]) -> Mapping[str, Any]:
    found = event.get("involvedObject") or event.get("regarding") or {}
    return found if isinstance(found, Mapping) else {}


def _uid(event: Mapping[str, Any]) -> str:
    return str((event.get("metadata") or {}).get("uid"))


def _often(event: Mapping[str, Any]) -> dict[str, int]:
    count = occurrences(dict(event))
    return {"count": count} if count > 1 else {}
