"""Objects as the Kubernetes API gives them, as far as clients need them; made after the published API reference."""

from __future__ import annotations

from typing import Any, Final

from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.kube_store import stamp

NAMESPACE: Final = "default"
CONTAINER: Final = "vllm"
TRIGGER: Final = "endpoints.kubernetes.io/last-change-trigger-time"
_DOWNLOADER: Final = "model-download"


def image(config: EmulatorConfig) -> str:
    """Return the serving container's image."""
    return f"registry.example/{config.model_name}/vllm-openai:v0.14.0"


def meta(name: str, uid: str, at_us: int, **more: Any) -> dict[str, Any]:
    """Return an object's metadata."""
    return {"name": name, "namespace": NAMESPACE, "uid": uid, "creationTimestamp": stamp(at_us), **more}


def labels(config: EmulatorConfig) -> dict[str, str]:
    """Return what selects the pods."""
    return {"app": config.endpoint_name}


def deployment(config: EmulatorConfig, uid: str, at_us: int) -> dict[str, Any]:
    """Return the Deployment."""
    replicas = config.scaling.min_instances
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta(config.endpoint_name, uid, at_us),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels(config)},
            "template": {"metadata": {"labels": labels(config)}, "spec": pod_spec(config)},
            "strategy": {"type": "RollingUpdate"},
        },
        "status": {"replicas": replicas, "readyReplicas": 0, "availableReplicas": 0},
    }


def pod_spec(config: EmulatorConfig) -> dict[str, Any]:
    """Return the pods' specification; its environment holds a token, as real ones do, so that readers must redact."""
    serving = {
        "name": CONTAINER,
        "image": image(config),
        "env": [{"name": "HF_TOKEN", "value": "emulated-secret-value"}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "readinessProbe": {
            "httpGet": {"path": "/health", "port": 8000},
            "periodSeconds": max(1, round(config.cluster.health_interval_s)),
        },
    }
    spec: dict[str, Any] = {"containers": [serving], "restartPolicy": "Always"}
    if config.cluster.download == "init-container":
        spec["initContainers"] = [{"name": _DOWNLOADER, "image": "registry.example/fetch:1"}]
    return spec


def hpa(config: EmulatorConfig, uid: str, at_us: int) -> dict[str, Any]:
    """Return the HorizontalPodAutoscaler."""
    scaling = config.scaling
    target = {"type": "AverageValue", "averageValue": f"{round(scaling.target * 1000)}m"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": meta(config.endpoint_name, uid, at_us),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": config.endpoint_name},
            "minReplicas": scaling.min_instances,
            "maxReplicas": scaling.max_instances,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": "concurrent_requests"}, "target": target}}],
        },
        "status": {
            "currentReplicas": scaling.min_instances,
            "desiredReplicas": scaling.min_instances,
            "conditions": [],
            "currentMetrics": None,
        },
    }


def pod(config: EmulatorConfig, name: str, uid: str, at_us: int) -> dict[str, Any]:
    """Return a pod that was just made."""
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{config.endpoint_name}-7c9d8f6b5",
        "uid": uid,
        "controller": True,
    }
    own_labels = labels(config) | {"pod-template-hash": "7c9d8f6b5"}
    status = {"name": CONTAINER, "image": image(config), "imageID": "", "restartCount": 0, "ready": False}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name, uid, at_us, labels=own_labels, ownerReferences=[owner]),
        "spec": pod_spec(config),
        "status": {
            "phase": "Pending",
            "conditions": [],
            "containerStatuses": [status | {"state": {"waiting": {"reason": "ContainerCreating"}}}],
        },
    }


def init_status(state: dict[str, Any]) -> dict[str, Any]:
    """Return the init container's status."""
    return {
        "name": _DOWNLOADER,
        "image": "registry.example/fetch:1",
        "imageID": "",
        "restartCount": 0,
        "ready": "terminated" in state,
        "state": state,
    }


def node(config: EmulatorConfig, name: str, machine_id: str, uid: str, at_us: int) -> dict[str, Any]:
    """Return a node that is ready and whose accelerators are not known yet."""
    found = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta(
            name, uid, at_us, labels={"node.kubernetes.io/instance-type": config.instance_type.removeprefix("ml.")}
        ),
        "spec": {"providerID": f"aws:///{config.region}a/{machine_id}"},
        "status": {
            "conditions": [],
            "allocatable": {"cpu": "7910m"},
            "capacity": {"cpu": "8"},
            "nodeInfo": {
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.35.0",
                "architecture": "amd64",
                "bootID": "",
                "kernelVersion": "",
                "kubeProxyVersion": "",
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "",
                "systemUUID": "",
            },
        },
    }
    del found["metadata"]["namespace"]  # type: ignore[attr-defined]
    set_condition(found, "Ready", at_us)
    return found


def node_claim(config: EmulatorConfig, name: str, uid: str, at_us: int) -> dict[str, Any]:
    """Return Karpenter's claim on a machine."""
    metadata = meta(name, uid, at_us)
    del metadata["namespace"]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": metadata,
        "spec": {"requirements": [], "nodeClassRef": {"kind": "EC2NodeClass", "name": config.endpoint_name}},
        "status": {"conditions": []},
    }


def endpoint_slice(config: EmulatorConfig, uid: str, at_us: int) -> dict[str, Any]:
    """Return the Service's slice, still without endpoints."""
    name = config.endpoint_name
    own = {"kubernetes.io/service-name": name}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": meta(f"{name}-x7k2p", uid, at_us, labels=own, annotations={}),
        "addressType": "IPv4",
        "endpoints": [],
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
    }


def endpoint(pod_name: str, uid: str, index: int) -> dict[str, Any]:
    """Return the endpoint of a pod that takes traffic."""
    return {
        "addresses": [f"10.0.{index // 250 + 1}.{index % 250 + 1}"],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": {"kind": "Pod", "name": pod_name, "namespace": NAMESPACE, "uid": uid},
    }


def about(kind: str, name: str, item: dict[str, Any]) -> dict[str, Any]:
    """Return how an event names what it is about."""
    return {
        "kind": kind,
        "namespace": NAMESPACE,
        "name": name,
        "uid": item["metadata"]["uid"],
        "apiVersion": item["apiVersion"],
    }


def event(name: str, uid: str, target: dict[str, Any], at_us: int, *, reason: str, message: str) -> dict[str, Any]:
    """Return an event as the older recorders write it: whole seconds, no `eventTime`."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": meta(name, uid, at_us),
        "involvedObject": target,
        "reason": reason,
        "message": message,
        "source": {"component": "kubelet" if "fieldPath" in target else "controller"},
        "firstTimestamp": stamp(at_us),
        "lastTimestamp": stamp(at_us),
        "count": 1,
        "type": "Normal",
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }


def set_condition(item: dict[str, Any], name: str, at_us: int) -> None:
    """Turn a condition of an object to True."""
    conditions = [c for c in item["status"]["conditions"] if c["type"] != name]
    conditions.append({"type": name, "status": "True", "lastTransitionTime": stamp(at_us)})
    item["status"]["conditions"] = conditions
