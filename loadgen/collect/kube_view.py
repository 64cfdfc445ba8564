"""How well a scale-out of a Kubernetes Deployment will be seen, from what its sources read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from loadgen.collect.ecs_view import recovery
from loadgen.collect.kube_autoscaler import SNAPSHOT
from loadgen.collect.kube_pods import DOWNLOADS
from loadgen.collect.kube_scaling import LAST
from loadgen.collect.platform import Finding, PhaseView
from loadgen.collect.redaction import said
from loadgen.collect.scaling_view import limits

_SCALERS: Final = {
    "horizontalpodautoscaler": ("minReplicas", "maxReplicas"),
    "scaledobject": ("minReplicaCount", "maxReplicaCount"),
}
"""Kind of autoscaler → the keys of its limits."""
_SLOW_PROBE_S: Final = 5


def findings(snapshots: Mapping[str, Any], *, serves: bool) -> list[Finding]:
    """Return what is set up well and what is not: the autoscaler, the workload; `serves` where a Service is named."""
    deployment = snapshots.get(LAST)
    workload = [Finding("workload", "unknown", "it could not be read")]
    if deployment is not None:
        text = f"{deployment.get('ready_replicas')} of {deployment.get('replicas')} pods are ready"
        workload = [Finding("workload", "ok", text), _readiness(deployment)]
    advice = None if serves else "name it as `service`: its EndpointSlices say when a pod takes traffic"
    service = Finding("service", "ok" if serves else "warn", "watched" if serves else "none is named", advice)
    return [*_scaling(snapshots), *_node_groups(snapshots), *workload, service]


def phases(snapshots: Mapping[str, Any], seen: frozenset[str], *, serves: bool, probed: bool) -> list[PhaseView]:
    """Return how well each phase will be seen, in causal order.

    `seen` names the sources that could be read, `probed` tells whether the pods are asked themselves.
    """
    deployment = snapshots.get(LAST) or {}
    scaled, logged = bool(_scalers(snapshots)), "kubernetes:pod-logs" in seen
    events, nodes = "kubernetes:events" in seen, "kubernetes:nodes" in seen
    fetching = [name for name in deployment.get("init_containers") or () if DOWNLOADS.search(str(name))]
    metric = "what the autoscaler's metric showed is not published; the replay's onset and the decision bound it"
    role = "the role needs {}; ramptrace doctor --print-policy"
    registration = PhaseView("registration", "measured", "the Service's EndpointSlices, watched")
    if not serves or "kubernetes:endpointslices" not in seen:
        registration = PhaseView("registration", "bounded", "readiness, to 1 s", "name the `service`, and watch it")
    return [
        PhaseView("emission", "invisible", metric),
        PhaseView("evaluation", "invisible", metric),
        PhaseView(
            "decision",
            "measured" if scaled and events else "bounded",
            "the autoscaler's event, to 1 s" if scaled and events else "the Deployment's own scaling",
            None if events else role.format("events"),
        ),
        PhaseView(
            "provisioning",
            "measured",
            "PodScheduled, to 1 s" + (", with what it waited for" if nodes else ""),
            None if nodes else role.format("nodes"),
        ),
        PhaseView(
            "pull",
            "measured" if events else "bounded",
            "the kubelet's events: end to 1 s, length to 1 ms" if events else "between scheduling and start",
            None if events else role.format("events"),
        ),
        _download(fetching, logged=logged),
        PhaseView("start", "measured", "the container's start, to 1 s"),
        PhaseView(
            "weights",
            "measured" if logged else "bounded",
            "lines of the engine's log" if logged else "between start and readiness",
            None if logged else role.format("pods/log"),
        ),
        registration,
        recovery(probed=probed),
    ]


def _download(fetching: list[str], *, logged: bool) -> PhaseView:
    if len(fetching) == 1:
        return PhaseView("download", "measured", f"init container {fetching[0]}, to 1 s")
    if logged:
        return PhaseView("download", "measured", "lines of the engine's log")
    return PhaseView("download", "invisible", "no log that can be read", "the role needs pods/log")


def _scalers(snapshots: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {name: found for name, found in snapshots.items() if name.partition("-")[0] in _SCALERS}


def _scaling(snapshots: Mapping[str, Any]) -> list[Finding]:
    scalers = _scalers(snapshots)
    if not scalers:
        advice = "put a HorizontalPodAutoscaler or a ScaledObject, or let a `kubectl scale` be the decision"
        return [Finding("scaling policies", "fail", "no autoscaler targets the Deployment", advice)]
    found = [Finding("scaling policies", "ok", ", ".join(scalers))]
    for name, scaler in scalers.items():
        low, high = _SCALERS[name.partition("-")[0]]
        if scaler.get(high) is not None:
            found.append(limits(scaler.get(low, 1), scaler.get(high), high))
        up = (scaler.get("behavior") or {}).get("scaleUp") or {}
        if up.get("selectPolicy") == "Disabled":
            found.append(
                Finding("scaling limits", "fail", f"{name}: scaling up is disabled", "change behavior.scaleUp")
            )
        if up.get("stabilizationWindowSeconds"):
            text = f"{name}: scaling up waits {up['stabilizationWindowSeconds']} s"
            found.append(Finding("scaling delay", "warn", text, "behavior.scaleUp.stabilizationWindowSeconds of 0"))
        found += _conditions(name, scaler)
    return found


def _node_groups(snapshots: Mapping[str, Any]) -> list[Finding]:
    """Return which of cluster-autoscaler's groups can grow."""
    found = []
    for group in (snapshots.get(SNAPSHOT) or {}).get("nodeGroups") or ():
        topic = f"node group {group['name']}"
        text = f"{group.get('ready')} ready, {group.get('min')} to {group.get('max')} nodes"
        if group.get("status") == "Backoff":
            failed = "its last growth failed; kubectl describe the status ConfigMap of cluster-autoscaler"
            found.append(Finding(topic, "warn", f"{text}, given up for now", failed))
        elif group.get("max") is not None and group.get("target", 0) >= group["max"]:
            found.append(Finding(topic, "warn", text, "raise its maximum, or pods that need a node wait for ever"))
        else:
            found.append(Finding(topic, "ok", text))
    return found


def _conditions(name: str, scaler: Mapping[str, Any]) -> list[Finding]:
    """Return the conditions under which a scaler does not act."""
    wrong = {("AbleToScale", "False"), ("ScalingActive", "False"), ("Ready", "False"), ("Paused", "True")}
    found = []
    for one in scaler.get("conditions") or ():
        if (one.get("type"), one.get("status")) in wrong:
            text = f"{name}: {one.get('type')} is {one.get('status')} ({said(one.get('reason') or '')})"
            found.append(Finding("autoscaler", "fail", text, "kubectl describe it: it does not act"))
    return found


def _readiness(deployment: Mapping[str, Any]) -> Finding:
    periods = [
        (container.get("readinessProbe") or {}).get("periodSeconds")
        for container in deployment.get("containers") or ()
        if container.get("readinessProbe")
    ]
    if not periods:
        return Finding(
            "readiness probe", "warn", "none", "one on the engine's /health keeps traffic from a pod that loads"
        )
    # The API fills in 10 s where none is stated.
    period_s = max(period or 10 for period in periods)
    fine = period_s <= _SLOW_PROBE_S
    advice = None if fine else "a shorter period dates readiness better, and lets a pod serve sooner"
    return Finding("readiness probe", "ok" if fine else "warn", f"every {period_s} s", advice)
