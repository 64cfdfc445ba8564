"""The cluster around an emulated Deployment: what each moment of a unit's start changes in it. Pure.

Stamps are whole seconds, as API server and kubelet write them. Machines come as Karpenter or cluster-autoscaler brings
them.
"""

from __future__ import annotations

from typing import Any

from loadgen.emulator import kube_shapes as shapes
from loadgen.emulator.agenda import Agenda
from loadgen.emulator.autoscaler import Activity
from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.kube_autoscaler import NAME, NodeGroup
from loadgen.emulator.kube_store import Store, go_duration, stamp
from loadgen.emulator.unit_start import Start

_GPU = "nvidia.com/gpu"
_NODE = "ip-10-0-0-{}.ec2.internal"


class KubeObjects:
    """Deployment, autoscaler, pods, nodes, claims, slices and events, kept in a `store`."""

    def __init__(self, config: EmulatorConfig, seed: int, agenda: Agenda) -> None:
        self._config = config
        self.store = Store(agenda, seed)
        self._events: dict[tuple[str, str], str] = {}
        now_us = agenda.now_us
        self.store.put("deployments", config.endpoint_name, shapes.deployment(config, self.store.uid(), now_us))
        if config.scaling.policy != "none":
            self.store.put("hpa", config.endpoint_name, shapes.hpa(config, self.store.uid(), now_us))
        self._group = NodeGroup(config, now_us) if config.cluster.node_scaler == "cluster-autoscaler" else None
        self._status_uid = self.store.uid() if self._group is not None else ""
        self._tell_group(now_us)
        if config.cluster.load_balancer:
            self.store.put("endpointslices", self._slice, shapes.endpoint_slice(config, self.store.uid(), now_us))

    @property
    def _slice(self) -> str:
        return f"{self._config.endpoint_name}-x7k2p"

    def decided(self, activity: Activity, before: int, after: int, at_us: int) -> None:
        """The autoscaler set another count."""
        name = self._config.endpoint_name
        scaler = self.store.get("hpa", name)
        scaler["status"] |= {"desiredReplicas": after, "currentReplicas": before, "lastScaleTime": stamp(at_us)}
        self.store.put("hpa", name, scaler)
        self._event(shapes.about("HorizontalPodAutoscaler", name, scaler), "SuccessfulRescale",
                    f"New size: {after}; reason: {activity.cause}", at_us)  # fmt: skip
        deployment = self.store.get("deployments", name)
        deployment["spec"]["replicas"] = after
        self.store.put("deployments", name, deployment)
        direction = "up" if after > before else "down"
        message = f"Scaled {direction} replica set {name}-7c9d8f6b5 from {before} to {after}"
        self._event(shapes.about("Deployment", name, deployment), "ScalingReplicaSet", message, at_us)

    def happened(self, start: Start, moment: str, at_us: int) -> None:
        """Something happened to a unit (see `units.moments`)."""
        effect = getattr(self, f"_on_{moment}", None)
        if effect is not None:
            effect(start, at_us)

    def _on_created(self, start: Start, at_us: int) -> None:
        pod = shapes.pod(self._config, start.unit_id, self.store.uid(), at_us)
        self.store.put("pods", start.unit_id, pod, at_us)
        if start.machine is not None:
            nodes = len(self.store.items("nodes"))
            message = f"0/{nodes} nodes are available: {nodes} Insufficient {_GPU}."
            self._pod_event(start, "FailedScheduling", message, at_us)

    def _on_refused(self, start: Start, at_us: int) -> None:
        if self._group is not None:
            self._group.refused(at_us)
            self._tell_group(at_us)
            return
        message = f"NodeClaim {_claim(start)} event: creating instance, insufficient capacity, with fleet error(s)"
        self._event({"kind": "NodeClaim", "name": _claim(start), "uid": start.unit_id}, "InsufficientCapacityError",
                    message, at_us)  # fmt: skip

    def _on_machine_asked(self, start: Start, at_us: int) -> None:
        if self._group is not None:
            self._pod_event(start, "TriggeredScaleUp", self._group.asked(at_us), at_us)
            self._tell_group(at_us)
            return
        claim = shapes.node_claim(self._config, _claim(start), self.store.uid(), at_us)
        self.store.put("nodeclaims", _claim(start), claim, at_us)
        self._pod_event(start, "Nominated", f"Pod should schedule on: nodeclaim/{_claim(start)}", at_us)

    def _on_machine_running(self, start: Start, at_us: int) -> None:
        self._claim_condition(start, "Launched", at_us)

    def _on_machine_joined(self, start: Start, at_us: int) -> None:
        machine = start.machine
        assert machine is not None
        node = shapes.node(self._config, _node(start), machine.machine_id, self.store.uid(), at_us)
        self.store.put("nodes", _node(start), node, at_us)
        self._claim_condition(start, "Registered", at_us)
        if self._group is not None:
            self._group.joined(at_us)
            self._tell_group(at_us)

    def _on_machine_usable(self, start: Start, at_us: int) -> None:
        node = self.store.get("nodes", _node(start))
        node["status"]["allocatable"] |= {_GPU: "1"}
        node["status"]["capacity"] |= {_GPU: "1"}
        self.store.put("nodes", _node(start), node, at_us)
        self._claim_condition(start, "Initialized", at_us)

    def _on_launched(self, start: Start, at_us: int) -> None:
        pod = self.store.get("pods", start.unit_id)
        pod["spec"]["nodeName"] = _node(start)
        shapes.set_condition(pod, "PodScheduled", at_us)
        self.store.put("pods", start.unit_id, pod, at_us)
        place = f"{pod['metadata']['namespace']}/{start.unit_id}"
        self._pod_event(start, "Scheduled", f"Successfully assigned {place} to {_node(start)}", at_us)

    def _on_download_started(self, start: Start, at_us: int) -> None:
        if self._config.cluster.download == "init-container":
            self._init_state(start, {"running": {"startedAt": stamp(at_us)}}, at_us)

    def _on_download_finished(self, start: Start, at_us: int) -> None:
        if self._config.cluster.download == "init-container":
            ended = {
                "exitCode": 0,
                "reason": "Completed",
                "startedAt": stamp(start.download_started_us),
                "finishedAt": stamp(at_us),
            }
            self._init_state(start, {"terminated": ended}, at_us)

    def _on_pulling(self, start: Start, at_us: int) -> None:
        if not start.image_cached:
            self._pod_event(start, "Pulling", f'Pulling image "{shapes.image(self._config)}"', at_us, own=True)

    def _on_pull_retried(self, start: Start, at_us: int) -> None:
        self._on_pulling(start, at_us)

    def _on_pull_failed(self, start: Start, at_us: int) -> None:
        image = shapes.image(self._config)
        message = f'Failed to pull image "{image}": rpc error: code = Unknown desc = failed to copy: connection reset'
        self._pod_event(start, "Failed", message, at_us, own=True)
        self._pod_event(start, "BackOff", f'Back-off pulling image "{image}"', at_us, own=True)

    def _on_pull_finished(self, start: Start, at_us: int) -> None:
        image = shapes.image(self._config)
        if start.image_cached:
            message = f'Container image "{image}" already present on machine and can be accessed by the pod'
        else:
            own_us = at_us - start.last_pull_us
            waited_us = start.pull_started_us - start.pulling_us if not start.failed_pulls_us else 0
            message = (
                f'Successfully pulled image "{image}" in {go_duration(own_us)} '
                f"({go_duration(own_us + waited_us)} including waiting). "
                f"Image size: {round(self._config.startup.image_gb * 1e9)} bytes."
            )
        self._pod_event(start, "Pulled", message, at_us, own=True)
        self._pod_event(start, "Created", "Container created", at_us, own=True)

    def _on_container_started(self, start: Start, at_us: int) -> None:
        pod = self.store.get("pods", start.unit_id)
        pod["status"]["phase"] = "Running"
        pod["status"]["containerStatuses"][0] |= {"state": {"running": {"startedAt": stamp(at_us)}}, "started": True}
        self.store.put("pods", start.unit_id, pod, at_us)
        self._pod_event(start, "Started", "Container started", at_us, own=True)

    def _on_load_started(self, start: Start, at_us: int) -> None:
        self._pod_event(start, "Unhealthy", "Startup probe failed: connection refused", at_us, own=True)

    def _on_healthy(self, start: Start, at_us: int) -> None:
        pod = self.store.get("pods", start.unit_id)
        for name in ("ContainersReady", "Ready"):
            shapes.set_condition(pod, name, at_us)
        pod["status"]["containerStatuses"][0]["ready"] = True
        self.store.put("pods", start.unit_id, pod, at_us)
        self._count_ready(at_us)

    def _on_in_service(self, start: Start, at_us: int) -> None:
        if self._config.cluster.load_balancer:
            found = self.store.get("endpointslices", self._slice)
            found["metadata"]["annotations"][shapes.TRIGGER] = stamp(start.healthy_us)
            uid = self.store.get("pods", start.unit_id)["metadata"]["uid"]
            found["endpoints"].append(shapes.endpoint(start.unit_id, uid, start.index))
            self.store.put("endpointslices", self._slice, found, at_us)

    def _on_terminating(self, start: Start, at_us: int) -> None:
        if not any(p["metadata"]["name"] == start.unit_id for p in self.store.items("pods")):
            return
        pod = self.store.get("pods", start.unit_id)
        pod["metadata"]["deletionTimestamp"] = stamp(at_us)
        self.store.put("pods", start.unit_id, pod)
        if self._config.cluster.load_balancer:
            found = self.store.get("endpointslices", self._slice)
            found["endpoints"] = [e for e in found["endpoints"] if e["targetRef"]["name"] != start.unit_id]
            self.store.put("endpointslices", self._slice, found)

    def _on_terminated(self, start: Start, at_us: int) -> None:
        self.store.delete("pods", start.unit_id)
        self._count_ready(at_us)

    def _count_ready(self, at_us: int) -> None:
        name = self._config.endpoint_name
        deployment = self.store.get("deployments", name)
        pods = self.store.items("pods")
        ready = sum(1 for pod in pods if pod["status"]["containerStatuses"][0]["ready"])
        deployment["status"] |= {"readyReplicas": ready, "replicas": len(pods), "availableReplicas": ready}
        self.store.put("deployments", name, deployment, at_us)

    def _init_state(self, start: Start, state: dict[str, Any], at_us: int) -> None:
        pod = self.store.get("pods", start.unit_id)
        pod["status"]["initContainerStatuses"] = [shapes.init_status(state)]
        self.store.put("pods", start.unit_id, pod, at_us)

    def _tell_group(self, at_us: int) -> None:
        if self._group is not None:
            self.store.put("configmaps", NAME, self._group.config_map(self._status_uid, at_us), at_us)

    def _claim_condition(self, start: Start, name: str, at_us: int) -> None:
        if self._group is not None:
            return
        claim = self.store.get("nodeclaims", _claim(start))
        shapes.set_condition(claim, name, at_us)
        if name == "Registered":
            claim["status"]["nodeName"] = _node(start)
        self.store.put("nodeclaims", _claim(start), claim, at_us)

    def _pod_event(self, start: Start, reason: str, message: str, at_us: int, *, own: bool = False) -> None:
        pod = self.store.get("pods", start.unit_id)
        target = shapes.about("Pod", start.unit_id, pod)
        if own:
            target["fieldPath"] = f"spec.containers{{{shapes.CONTAINER}}}"
        self._event(target, reason, message, at_us)

    def _event(self, target: dict[str, Any], reason: str, message: str, at_us: int) -> None:
        """Write an event; the same one again is aggregated: its count and its last time grow."""
        key = (f"{target.get('uid')}:{reason}", message)
        known = self._events.get(key)
        if known is not None:
            event = self.store.get("events", known)
            event |= {"count": event["count"] + 1, "lastTimestamp": stamp(at_us)}
            self.store.put("events", known, event, at_us)
            return
        name = f"{target['name']}.{len(self._events):016x}"
        self._events[key] = name
        self.store.put(
            "events", name, shapes.event(name, self.store.uid(), target, at_us, reason=reason, message=message), at_us
        )


def _claim(start: Start) -> str:
    return f"gpu-{start.index:05d}"


def _node(start: Start) -> str:
    return _NODE.format(start.index + 10) if start.machine is not None else _NODE.format(9)
