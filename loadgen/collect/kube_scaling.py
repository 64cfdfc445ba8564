"""Who asks for more pods, how many are ready, and which of them a Service sends traffic to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadgen.collect.anchors import KUBERNETES
from loadgen.collect.base import Answer, Reading, Row
from loadgen.collect.first_last import FirstAndLast
from loadgen.collect.kube_pods import Workload
from loadgen.collect.kube_times import stamp
from loadgen.collect.rows import observation
from traces.units import US_PER_S

FIRST, LAST = "deployment-first", "deployment-last"


class Deployments:
    """The workload's own object: how many pods it wants and has. Its first and last reading are snapshots."""

    def __init__(self, workload: Workload, before: Mapping[str, Any] | None) -> None:
        self._workload = workload
        self._snapshots = FirstAndLast(FIRST, LAST, before)

    def seen(self, old: Mapping[str, Any] | None, new: Mapping[str, Any], told: Answer) -> Reading:
        """Return a row for each change of the number of ready pods."""
        reading = Reading(snapshots=self._snapshots.take(summary(new)))
        if old is None:
            return reading
        before, after = ready_count(old), ready_count(new)
        if before != after:
            # With a Service its slices say who is in service.
            rose = after > before and not self._workload.serves
            detail = {"from": before, "to": after}
            row = observation(
                KUBERNETES["deployment.ready" if rose else "deployment.other"],
                self._workload.resource,
                f"ready:{before}->{after}:{told.received_us}",
                told,
                lo_us=told.sent_us,
                hi_us=told.received_us,
                detail=detail if rose else {"field": "CurrentReplicas", **detail},
            )
            reading.observations.append(row)
        return reading

    def gone(self, old: Mapping[str, Any], told: Answer) -> Reading:  # noqa: ARG002 - the port passes them
        """A workload that was deleted has nothing more to tell."""
        return Reading()


class Scalers:
    """HorizontalPodAutoscalers (or KEDA's ScaledObjects) of the workload; `names` is filled with those found."""

    def __init__(self, workload: Workload, names: dict[str, str], kind: str) -> None:
        self._workload = workload
        self._names = names
        self._kind = kind

    def seen(self, old: Mapping[str, Any] | None, new: Mapping[str, Any], told: Answer) -> Reading:  # noqa: ARG002
        """Return the scaler as a snapshot, and its last decision where its status dates one."""
        meta, spec, status = (new.get(key) or {} for key in ("metadata", "spec", "status"))
        if (spec.get("scaleTargetRef") or {}).get("name") != self._workload.name:
            return Reading()
        name = str(meta.get("name"))
        known = name in self._names
        self._names[name] = self._kind
        reading = Reading(snapshots={f"{self._kind.lower()}-{name}": _policy(spec, status)})
        if not known:
            reading.observations += self._workload.late_rows(told)
        at, desired = stamp(status.get("lastScaleTime")), status.get("desiredReplicas")
        if at is None or at.hi_us < self._workload.since_us or not isinstance(desired, int):
            return reading
        # A decision that only the status tells: its events may not be read, or are gone.
        row = observation(
            KUBERNETES["hpa.scale-time"],
            self._workload.resource,
            f"{name}@{at.lo_us // US_PER_S}",
            told,
            lo_us=at.lo_us,
            hi_us=at.hi_us,
            detail={"to": desired},
        )
        reading.observations.append(row)
        return reading

    def gone(self, old: Mapping[str, Any], told: Answer) -> Reading:  # noqa: ARG002 - the port passes them
        """A scaler that was deleted decides nothing more."""
        return Reading()


class Endpoints:
    """EndpointSlices of the workload's Service: since when each pod is sent traffic."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._unknown: dict[str, tuple[Answer, int | None]] = {}
        workload.waiting.append(self._late_rows)

    def seen(self, old: Mapping[str, Any] | None, new: Mapping[str, Any], told: Answer) -> Reading:
        """Return a row for each pod that has become ready in the slice; one whose pod is not known yet comes later."""
        for uid in _ready_pods(new) - _ready_pods(old):
            self._unknown.setdefault(uid, (told, told.sent_us if old is not None else None))
        return Reading(self._late_rows(told))

    def _late_rows(self, told: Answer) -> list[Row]:  # noqa: ARG002 - each waits with the answer that told it
        known = sorted(self._unknown.keys() & self._workload.units.keys())
        return [self._row(uid, *self._unknown.pop(uid)) for uid in known]

    def _row(self, uid: str, told: Answer, lo_us: int | None) -> Row:
        return observation(
            KUBERNETES["endpoint.ready"],
            self._workload.resource,
            f"{uid}:endpoint-ready",
            told,
            unit_id=self._workload.units[uid],
            lo_us=lo_us,
            hi_us=told.received_us,
        )

    def gone(self, old: Mapping[str, Any], told: Answer) -> Reading:  # noqa: ARG002 - the port passes them
        """A slice that was deleted dates nothing."""
        return Reading()


def summary(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a snapshot keeps of a workload: counts, images and resources, never a container's environment."""
    spec, status = deployment.get("spec") or {}, deployment.get("status") or {}
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = [_container(c) for c in pod.get("containers") or ()]
    return {
        "name": (deployment.get("metadata") or {}).get("name"),
        "replicas": spec.get("replicas"),
        "ready_replicas": ready_count(deployment),
        "strategy": spec.get("strategy"),
        "containers": containers,
        "init_containers": [c.get("name") for c in pod.get("initContainers") or ()],
        "updated_replicas": status.get("updatedReplicas"),
    }


def ready_count(deployment: Mapping[str, Any]) -> int:
    """Return how many of a workload's pods are ready."""
    return int((deployment.get("status") or {}).get("readyReplicas") or 0)


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: container[key] for key in ("name", "image", "resources", "imagePullPolicy") if key in container}
    for name in ("readinessProbe", "startupProbe"):
        # What a probe sends may hold a token; when it asks is what matters.
        kept[name] = {key: value for key, value in (container.get(name) or {}).items() if isinstance(value, int)}
    return kept


def _policy(spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scaler without its triggers' settings, which may hold addresses with passwords in them."""
    numbers = {key: value for key, value in spec.items() if isinstance(value, int)}
    counts = {key: value for key, value in status.items() if isinstance(value, int)}
    triggers = [trigger.get("type") for trigger in spec.get("triggers") or ()]
    told = ("type", "status", "reason", "lastTransitionTime")
    conditions = [{key: one.get(key) for key in told} for one in status.get("conditions") or ()]
    return numbers | {
        "status": counts,
        "conditions": conditions,
        "triggers": triggers,
        "behavior": spec.get("behavior"),
        "metrics": spec.get("metrics"),
    }


def _ready_pods(found: Mapping[str, Any] | None) -> set[str]:
    endpoints = (found or {}).get("endpoints") or ()
    return {
        str((endpoint.get("targetRef") or {}).get("uid"))
        for endpoint in endpoints
        # A null condition means ready, by the API's own words.
        if (endpoint.get("conditions") or {}).get("ready") is not False
    }
