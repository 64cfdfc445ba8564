"""The machines under a workload: nodes, their accelerators, and the claims by which Karpenter gets them.

None of it is an anchor of a pod; it tells what the wait for a machine was made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from loadgen.collect.anchors import KUBERNETES
from loadgen.collect.base import Answer, Reading, Row
from loadgen.collect.kube_pods import Workload
from loadgen.collect.kube_times import Stamp, stamp
from loadgen.collect.rows import observation

_ACCELERATORS: Final = (".com/gpu", "aws.amazon.com/neuron", "google.com/tpu", "habana.ai/gaudi")
_CLAIM_CONDITIONS: Final = ("Launched", "Registered", "Initialized")


class Nodes:
    """Nodes that joined since the collection began, and when their accelerators could be asked for."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def seen(self, old: Mapping[str, Any] | None, new: Mapping[str, Any], told: Answer) -> Reading:
        """Return when a node was created and ready, and when an accelerator became allocatable."""
        meta = new.get("metadata") or {}
        created = stamp(meta.get("creationTimestamp"))
        if created is None or created.hi_us < self._workload.since_us:
            return Reading()
        uid, about = str(meta.get("uid")), _about(new)
        rows = [
            _stamped(
                self._workload, "node.stamp", f"{uid}:created", created, told, detail=about | _called("node-created")
            )
        ]
        ready = ready_since(new)
        if ready is not None:
            rows.append(
                _stamped(
                    self._workload, "node.stamp", f"{uid}:ready", ready, told, detail=about | _called("node-ready")
                )
            )
        had, has = _accelerators(old), _accelerators(new)
        for name in sorted(has):
            if had.get(name):
                continue
            lo_us = told.sent_us if old is not None else None
            row = observation(
                KUBERNETES["node.allocatable"],
                self._workload.resource,
                f"{uid}:allocatable:{name}",
                told,
                lo_us=lo_us,
                hi_us=told.received_us,
                detail=about | _called("node-accelerator") | {"resource": name, "count": has[name]},
            )
            rows.append(row)
        return Reading(rows)

    def gone(self, old: Mapping[str, Any], told: Answer) -> Reading:
        """Return a plain fact: the node left."""
        meta = old.get("metadata") or {}
        row = observation(
            KUBERNETES["node.allocatable"],
            self._workload.resource,
            f"{meta.get('uid')}:deleted",
            told,
            lo_us=told.sent_us,
            hi_us=told.received_us,
            detail=_about(old) | _called("node-deleted"),
        )
        return Reading([row])


class NodeClaims:
    """Karpenter's claims: launched, registered, initialised."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def seen(self, old: Mapping[str, Any] | None, new: Mapping[str, Any], told: Answer) -> Reading:  # noqa: ARG002
        """Return the claim's own stamps."""
        meta, status = new.get("metadata") or {}, new.get("status") or {}
        created = stamp(meta.get("creationTimestamp"))
        if created is None or created.hi_us < self._workload.since_us:
            return Reading()
        uid = str(meta.get("uid"))
        about = {"nodeclaim": meta.get("name"), "node": status.get("nodeName"), "instance_id": status.get("providerID")}
        called = about | _called("nodeclaim-created")
        rows = [_stamped(self._workload, "nodeclaim.stamp", f"{uid}:created", created, told, detail=called)]
        for condition in status.get("conditions") or ():
            at, name = stamp(condition.get("lastTransitionTime")), condition.get("type")
            if at is not None and name in _CLAIM_CONDITIONS and condition.get("status") == "True":
                called = about | _called(f"nodeclaim-{str(name).lower()}")
                rows.append(_stamped(self._workload, "nodeclaim.stamp", f"{uid}:{name}", at, told, detail=called))
        return Reading(rows)

    def gone(self, old: Mapping[str, Any], told: Answer) -> Reading:  # noqa: ARG002 - the port passes them
        """A claim that ends says nothing about a start."""
        return Reading()


def ready_since(node: Mapping[str, Any]) -> Stamp | None:
    """Return since when a node is ready."""
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return stamp(condition.get("lastTransitionTime"))
    return None


def _accelerators(node: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the accelerators that a pod could be given there, by resource name; those of count 0 are not there yet."""
    allocatable = ((node or {}).get("status") or {}).get("allocatable") or {}
    return {
        name: str(count)
        for name, count in allocatable.items()
        if any(name.endswith(kind) for kind in _ACCELERATORS) and str(count) != "0"
    }


def _about(node: Mapping[str, Any]) -> dict[str, Any]:
    meta, spec = node.get("metadata") or {}, node.get("spec") or {}
    labels = meta.get("labels") or {}
    provider = str(spec.get("providerID") or "")
    return {
        "node": meta.get("name"),
        "instance_id": provider.rpartition("/")[2] or None,
        "instance_type": labels.get("node.kubernetes.io/instance-type"),
        "runtime": ((node.get("status") or {}).get("nodeInfo") or {}).get("containerRuntimeVersion"),
    }


def _called(milestone: str) -> dict[str, str]:
    return {"milestone": milestone}


def _stamped(
    workload: Workload, signal: str, native_id: str, at: Stamp, told: Answer, *, detail: Mapping[str, Any]
) -> Row:
    return observation(
        KUBERNETES[signal], workload.resource, native_id, told, lo_us=at.lo_us, hi_us=at.hi_us, detail=detail
    )
