"""What cluster-autoscaler tells of its node groups: the status that it keeps in a ConfigMap, in both of its forms.

It is rewritten each scan (10 s by default), so it dates nothing better than that. Until release 1.29 it is text for
people, from 1.30 on YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from loadgen.collect.anchors import KUBERNETES
from loadgen.collect.base import Answer, MalformedError, Reading, Row
from loadgen.collect.kube_pods import Workload
from loadgen.collect.kube_times import Stamp, stamp
from loadgen.collect.rows import observation

SNAPSHOT: Final = "cluster-autoscaler"
_KEY: Final = "status"
_TEXT: Final = "Cluster-autoscaler status at"
_MILESTONES: Final = {
    "InProgress": "node-group-scaling",
    "NoActivity": "node-group-idle",
    "Backoff": "node-group-backoff",
    "Needed": "node-group-needed",
    "NotNeeded": "node-group-idle",
}
_LINE: Final = re.compile(r"\s*(?P<key>[A-Za-z]+):\s+(?P<value>\S.*?)\s*$")
_CONDITION: Final = re.compile(r"(?P<status>\w+)(?:\s+\((?P<counts>.*)\))?$")
_COUNT: Final = re.compile(r"(\w+)=(\d+)")
_GO_INSTANT: Final = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?) ([+-]\d{4})")
_CODE: Final = re.compile(r"[A-Za-z][\w.-]{0,63}")
_TEXT_COUNTS: Final = {"ready": "ready", "cloudProviderTarget": "target", "minSize": "min", "maxSize": "max"}


class Group(NamedTuple):
    """A node group: what its scale-up does, since when, and how many machines it has and wants."""

    name: str
    status: str | None
    since: Stamp | None
    counts: Mapping[str, int]
    error_code: str | None = None


class AutoscalerStatus:
    """The ConfigMap's node groups: facts about the wait for a machine, no anchor of a pod."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def seen(self, old: Mapping[str, Any] | None, new: Mapping[str, Any], told: Answer) -> Reading:
        """Return since when each group scales up, idles or backs off, and how its counts changed between two readings.

        Raises `MalformedError` for a status in no known form.
        """
        before = {group.name: group for group in _groups_of(old)} if old is not None else {}
        groups = _groups_of(new)
        told_of = [{"name": group.name, "status": group.status, **group.counts} for group in groups]
        reading = Reading(snapshots={SNAPSHOT: {"nodeGroups": told_of}} if groups else {})
        for group in groups:
            if group.since is not None and group.since.hi_us > self._workload.since_us:
                reading.observations.append(self._status_row(group, group.since, told))
            if group.name in before:
                reading.observations += self._count_rows(before[group.name], group, told)
        return reading

    def gone(self, old: Mapping[str, Any], told: Answer) -> Reading:  # noqa: ARG002 - the port passes them
        """A status that was deleted says nothing."""
        return Reading()

    def _status_row(self, group: Group, since: Stamp, told: Answer) -> Row:
        # What moves has rows of its own: this one is the same as long as the group stays as it is.
        limits = {name: group.counts[name] for name in ("min", "max") if name in group.counts}
        detail = {"milestone": _MILESTONES[str(group.status)], "node_group": group.name, **limits}
        if group.error_code is not None:
            detail["error_code"] = group.error_code
        return observation(
            KUBERNETES["autoscaler.status"],
            self._workload.resource,
            f"{group.name}:{group.status}@{since.lo_us}",
            told,
            lo_us=since.lo_us,
            hi_us=since.hi_us,
            detail=detail,
        )

    def _count_rows(self, before: Group, after: Group, told: Answer) -> Iterator[Row]:
        for field in ("target", "ready"):
            was, now = before.counts.get(field), after.counts.get(field)
            if was is None or now is None or was == now:
                continue
            yield observation(
                KUBERNETES["autoscaler.count"],
                self._workload.resource,
                f"{after.name}:{field}:{was}->{now}:{told.received_us}",
                told,
                lo_us=told.sent_us,
                hi_us=told.received_us,
                detail={"milestone": f"node-group-{field}", "node_group": after.name, "from": was, "to": now},
            )


def groups_of(status: str) -> list[Group]:
    """Return the node groups of a status document. Raises `MalformedError`.

    >>> [found] = groups_of('''Cluster-autoscaler status at 2026-07-01 10:00:20.5 +0000 UTC:
    ... NodeGroups:
    ...   Name:        gpu
    ...   Health:      Healthy (ready=1 registered=1 cloudProviderTarget=2 (minSize=0, maxSize=4))
    ...   ScaleUp:     InProgress (ready=1 cloudProviderTarget=2)
    ...                LastTransitionTime: 2026-07-01 10:00:10.25 +0000 UTC m=+9.5
    ... ''')
    >>> found.name, found.status, found.counts, found.since.lo_us
    ('gpu', 'InProgress', {'ready': 1, 'target': 2, 'min': 0, 'max': 4}, 1782900010250000)
    """
    found = _of_text(status) if status.lstrip().startswith(_TEXT) else _of_yaml(status)
    return [group for group in found if group.name]


def _groups_of(config_map: Mapping[str, Any]) -> list[Group]:
    status = (config_map.get("data") or {}).get(_KEY)
    return groups_of(status) if isinstance(status, str) and status.strip() else []


def _of_text(status: str) -> Iterator[Group]:
    name, condition, scale_up, since = "", "", None, None
    counts: dict[str, int] = {}
    for line in [*status.splitlines(), "  Name:  -"]:
        found = _LINE.match(line)
        if found is None:
            continue
        key, value = found["key"], found["value"]
        if key == "Name":
            yield _group(name, scale_up, since, counts)
            name, condition, scale_up, since, counts = value, "", None, None, {}
        elif key in {"Health", "ScaleUp", "ScaleDown"}:
            condition = key
            state = _CONDITION.match(value)
            if key == "ScaleUp":
                scale_up = state["status"] if state else None
            if key == "Health" and state:
                counted = {k: int(n) for k, n in reversed(_COUNT.findall(state["counts"] or ""))}
                counts = {ours: counted[theirs] for theirs, ours in _TEXT_COUNTS.items() if theirs in counted}
        elif key == "LastTransitionTime" and condition == "ScaleUp":
            since = _instant(value)


def _of_yaml(status: str) -> Iterator[Group]:
    import yaml

    try:
        document = yaml.safe_load(status)
    except (yaml.YAMLError, ValueError) as error:
        raise MalformedError(
            "kubernetes configmaps: cluster-autoscaler's status is neither its text nor YAML"
        ) from error
    if not isinstance(document, dict):
        raise MalformedError("kubernetes configmaps: cluster-autoscaler's status is in no known form")
    for group in _list(document.get("nodeGroups")):
        health, scale_up = _table(group.get("health")), _table(group.get("scaleUp"))
        registered = _table(_table(health.get("nodeCounts")).get("registered"))
        stated = {
            "ready": registered.get("ready"),
            "target": health.get("cloudProviderTarget"),
            "min": health.get("minSize"),
            "max": health.get("maxSize"),
        }
        counts = {key: value for key, value in stated.items() if isinstance(value, int)}
        code = str(_table(scale_up.get("backoffInfo")).get("errorCode") or "")
        yield _group(
            str(group.get("name") or ""),
            scale_up.get("status"),
            _instant(scale_up.get("lastTransitionTime")),
            counts,
            code if _CODE.fullmatch(code) else None,
        )


def _group(
    name: str, status: Any, since: Stamp | None, counts: Mapping[str, int], error_code: str | None = None
) -> Group:
    """Return a group; what its scale-up does in a word that nobody knows dates nothing."""
    known = status if status in _MILESTONES else None
    return Group(name, known, since if known is not None else None, counts, error_code)


def _instant(value: Any) -> Stamp | None:
    """Return an instant as the API writes it, as Go prints it, or as YAML reads it; the year 1 is Go's never."""
    if isinstance(value, datetime):
        value = value.isoformat() if value.tzinfo is not None else f"{value.isoformat()}+00:00"
    text = str(value)
    go = _GO_INSTANT.match(text)
    found = stamp(f"{go[1]}T{go[2]}{go[3]}" if go is not None else text)
    return found if found is not None and found.lo_us > 0 else None


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
