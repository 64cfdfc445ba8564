"""Logs of pods that are starting: engine lines that date the load. A line's text is looked at and forgotten."""

from __future__ import annotations

import hashlib
from typing import Any

from loadgen.collect.anchors import log_pattern
from loadgen.collect.base import Answer, MissingError, Reading, Row, SourceError
from loadgen.collect.kube_client import ClusterApi
from loadgen.collect.kube_pods import Workload
from loadgen.collect.kube_times import stamp
from loadgen.collect.patterns import match
from loadgen.collect.platform import ClusterRule
from loadgen.collect.rows import observation

_BYTES_AT_MOST = 1024 * 1024


class PodLogs:
    """Reads the serving container's log of each pod between its start and its readiness, and once after."""

    name = "kubernetes:pod-logs"
    kept_us: int | None = 0

    def __init__(self, api: ClusterApi, namespace: str, workload: Workload, period_us: int) -> None:
        self.period_us = period_us
        self._api, self._namespace, self._workload = api, namespace, workload
        purpose = "how the load went on"
        self.permissions = (ClusterRule("", ("pods/log",), ("get",), purpose, optional=True, namespace=namespace),)
        self._followed: dict[str, str] = {}
        self._newest: dict[str, str] = {}
        """Unit → stamp of its newest line: from there on it is read again."""

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return the rows of matched lines. A log that cannot be read yet is read at the next poll."""
        reading = Reading()
        ended = self._followed.keys() - self._workload.running.keys()
        self._followed |= self._workload.running
        for unit, pod in sorted(self._followed.items()):
            try:
                reading.observations += await self._lines(unit, pod)
            except MissingError:
                continue
            except SourceError as error:
                reading.failures.append(error)
        for unit in ended:
            del self._followed[unit]
        return reading

    async def look(self) -> Reading:
        """Read the end of one pod's log, whichever pod is there."""
        units = sorted(self._workload.units.values())
        if not units:
            raise MissingError("kubernetes log: there is no pod to read it of")
        pod = units[-1].partition("@")[0]
        await self._api.text(f"/api/v1/namespaces/{self._namespace}/pods/{pod}/log", {"tailLines": "1"})
        return Reading()

    async def _lines(self, unit: str, pod: str) -> list[Row]:
        query = {"timestamps": "true", "limitBytes": str(_BYTES_AT_MOST)}
        uid = next((uid for uid, name in self._workload.units.items() if name == unit), "")
        if self._workload.containers.get(uid):
            query["container"] = self._workload.containers[uid]
        if unit in self._newest:
            query["sinceTime"] = self._newest[unit]
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}/log"
        text, sent_us, received_us = await self._api.text(path, query)
        rows: list[Row] = []
        for line in text.splitlines():
            at, _, message = line.partition(" ")
            found_at = stamp(at)
            if found_at is None:
                continue
            self._newest[unit] = at
            row = self._row(unit, at, found_at.lo_us, message, Answer({}, sent_us, received_us))
            if row is not None:
                rows.append(row)
        return rows

    def _row(self, unit: str, at: str, at_us: int, message: str, told: Answer) -> Row | None:
        found = match(message)
        if found is None:
            return None
        detail: dict[str, Any] = {"engine": found.pattern.engine, "pattern": found.pattern.name}
        key = hashlib.sha256(f"{unit} {at} {message}".encode()).hexdigest()[:16]
        return observation(
            log_pattern(found.pattern.anchor),
            self._workload.resource,
            key,
            told,
            unit_id=unit,
            at_us=at_us,
            duration_us=found.duration_us,
            resolution_us=found.resolution_us,
            detail=detail,
        )
