"""Pods of a workload: created, scheduled, initialised, started, ready, each to the second that the cluster keeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from loadgen.collect.anchors import KUBERNETES
from loadgen.collect.base import Answer, Reading, Row
from loadgen.collect.kube_times import Stamp, stamp
from loadgen.collect.redaction import said
from loadgen.collect.rows import observation

DOWNLOADS: Final = re.compile(r"download|fetch|model|weights", re.IGNORECASE)
_FACTS: Final = {"Initialized": "initialized", "PodReadyToStartContainers": "sandbox", "ContainersReady": "containers"}


class Since(NamedTuple):
    """A bound on one side: not before `lo_us`."""

    lo_us: int
    hi_us: None = None


class Workload:
    """What the kinds of one workload know of it in common.

    `container` names the serving container, `None` is a pod's first one. `serves` tells whether a Service's
    EndpointSlices say when a pod takes traffic; else its readiness does. `since_us` is endpoint time.
    """

    def __init__(self, resource: str, name: str, container: str | None, *, serves: bool, since_us: int) -> None:
        self.resource = resource
        self.name = name
        self.container = container
        self.serves = serves
        self.since_us = since_us
        self.units: dict[str, str] = {}
        """uid → unit_id of each pod seen."""
        self.containers: dict[str, str] = {}
        """uid → its serving container."""
        self.nodes: set[str] = set()
        """Nodes that its pods were given."""
        self.addresses: dict[str, str] = {}
        """unit_id → a pod's address, as long as it lives."""
        self.running: dict[str, str] = {}
        """unit_id → name of each pod whose container has started and that is not ready yet."""
        self.waiting: list[Callable[[Answer], list[Row]]] = []
        """Each returns the rows that had to wait for an object that they are about, and now can be told."""

    def late_rows(self, told: Answer) -> list[Row]:
        """Return what waited for an object that `told` made known: nothing else may come to tell it."""
        return [row for rows_of in self.waiting for row in rows_of(told)]


class Pods:
    """The pods of a workload."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._first_ready: dict[str, Stamp] = {}

    def seen(self, old: Mapping[str, Any] | None, new: Mapping[str, Any], told: Answer) -> Reading:  # noqa: ARG002
        """Return the rows that a pod's own stamps give; those of one that started before `since_us` are left out."""
        meta, spec, status = (new.get(key) or {} for key in ("metadata", "spec", "status"))
        uid, unit = str(meta.get("uid")), unit_of(meta)
        work = self._workload
        known = uid in work.units
        work.units[uid] = unit
        main = work.container or next((str(c.get("name")) for c in spec.get("containers") or ()), "")
        work.containers[uid] = main
        if status.get("podIP"):
            work.addresses[unit] = str(status["podIP"])
        if spec.get("nodeName"):
            work.nodes.add(str(spec["nodeName"]))
        created = stamp(meta.get("creationTimestamp"))
        if created is None or created.hi_us < work.since_us:
            return Reading([] if known else work.late_rows(told))
        about = {"uid": uid, "node": spec.get("nodeName")}

        def row(signal: str, name: str, at: Stamp | Since, **detail: Any) -> Row:
            return observation(
                KUBERNETES[signal],
                work.resource,
                f"{uid}:{name}",
                told,
                unit_id=unit,
                lo_us=at.lo_us,
                hi_us=at.hi_us,
                detail={**about, **detail},
            )

        rows = [row("pod.created", "created", created, milestone="pod-created")]
        for condition in status.get("conditions") or ():
            at, name = stamp(condition.get("lastTransitionTime")), str(condition.get("type"))
            if at is None or condition.get("status") != "True":
                continue
            if name == "PodScheduled":
                rows.append(row("pod.scheduled", "scheduled", at))
            elif name == "Ready":
                # A pod that was ready once and comes back is no new unit: the first time counts.
                at = self._first_ready.setdefault(uid, at)
                # The engine was ready before the probe noticed.
                rows.append(row("pod.ready", "ready", Stamp(started_us(status, main, created.lo_us), at.hi_us)))
                signal = "pod.ready-before-service" if work.serves else "pod.ready-in-service"
                rows.append(row(signal, "in-service", Since(at.lo_us) if work.serves else at))
            elif name in _FACTS:
                rows.append(row("pod.other", f"condition:{name}", at, milestone=f"pod-{_FACTS[name]}"))
        rows += self._init_rows(row, status)
        rows += self._container_rows(row, status, main)
        self._follow_log(unit, meta, rows)
        return Reading(rows if known else rows + work.late_rows(told))

    def gone(self, old: Mapping[str, Any], told: Answer) -> Reading:
        """Return a plain fact: the pod was deleted."""
        meta = old.get("metadata") or {}
        uid, unit = str(meta.get("uid")), unit_of(meta)
        self._workload.running.pop(unit, None)
        self._workload.addresses.pop(unit, None)
        row = observation(
            KUBERNETES["pod.other"],
            self._workload.resource,
            f"{uid}:deleted",
            told,
            unit_id=unit,
            lo_us=None if (at := stamp(meta.get("deletionTimestamp"))) is None else at.lo_us,
            detail={"milestone": "pod-deleted", "uid": uid},
        )
        return Reading([row])

    def _init_rows(self, row: Any, status: Mapping[str, Any]) -> list[Row]:
        """Return the download by an init container: that of the only one whose name says that it fetches the model."""
        statuses = status.get("initContainerStatuses") or ()
        fetching = [s for s in statuses if DOWNLOADS.search(str(s.get("name")))]
        rows = []
        for found in statuses:
            state = found.get("state") or {}
            ended, running = state.get("terminated") or {}, state.get("running") or {}
            begin, end = stamp(ended.get("startedAt") or running.get("startedAt")), stamp(ended.get("finishedAt"))
            name, only = str(found.get("name")), [found] == fetching
            if begin is not None and only:
                rows.append(row("pod.download-started", f"init:{name}:started", begin, container=name))
            if end is not None and only and ended.get("exitCode") == 0:
                rows.append(row("pod.download-finished", f"init:{name}:finished", end, container=name))
            elif end is not None:
                detail = {"container": name, "exit_code": ended.get("exitCode"), "milestone": "init-ended"}
                rows.append(row("pod.other", f"init:{name}:ended", end, **detail))
        return rows

    def _container_rows(self, row: Any, status: Mapping[str, Any], main: str) -> list[Row]:
        """Return the start of the serving container (the last one, after restarts) and each restart."""
        found = next((s for s in status.get("containerStatuses") or () if s.get("name") == main), None)
        if found is None:
            return []
        rows, restarts = [], int(found.get("restartCount") or 0)
        started = stamp(((found.get("state") or {}).get("running") or {}).get("startedAt"))
        if started is not None:
            detail = {"container": main, "image_id": found.get("imageID"), "restarts": restarts}
            rows.append(row("pod.container-started", "started", started, **detail))
        died = (found.get("lastState") or {}).get("terminated") or {}
        ended = stamp(died.get("finishedAt"))
        if ended is not None:
            detail = {
                "container": main,
                "reason": said(died.get("reason") or ""),
                "exit_code": died.get("exitCode"),
                "milestone": "restart",
            }
            rows.append(row("pod.other", f"restart:{restarts}", ended, **detail))
        return rows

    def _follow_log(self, unit: str, meta: Mapping[str, Any], rows: list[Row]) -> None:
        anchors = {row["anchor"] for row in rows}
        if "container_started" in anchors and "ready" not in anchors:
            self._workload.running[unit] = str(meta.get("name"))
        elif "ready" in anchors:
            self._workload.running.pop(unit, None)


def started_us(status: Mapping[str, Any], container: str, default_us: int) -> int:
    """Return when a container had not started before (µs), `default_us` where that is not told."""
    for found in status.get("containerStatuses") or ():
        began = stamp(((found.get("state") or {}).get("running") or {}).get("startedAt"))
        if found.get("name") == container and began is not None:
            return began.lo_us
    return default_us


def unit_of(meta: Mapping[str, Any]) -> str:
    """Return a pod's unit: its name where names are made up anew, else the name with the uid's beginning.

    >>> unit_of({"name": "vllm-0", "uid": "0a1b2c3d-4e5f"})
    'vllm-0@0a1b2c3d'
    >>> unit_of({"name": "vllm-7f-x2", "labels": {"pod-template-hash": "7f"}})
    'vllm-7f-x2'
    """
    name = str(meta.get("name"))
    return name if "pod-template-hash" in (meta.get("labels") or {}) else f"{name}@{str(meta.get('uid'))[:8]}"
