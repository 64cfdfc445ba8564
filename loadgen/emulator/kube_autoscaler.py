"""cluster-autoscaler's status of one node group: text as up to its release 1.29, or YAML as from 1.30 on. Pure."""

from __future__ import annotations

from typing import Any, Final

from loadgen.emulator.config import EmulatorConfig
from traces.clock import to_datetime

NAMESPACE: Final = "kube-system"
NAME: Final = "cluster-autoscaler-status"
OUT_OF_CAPACITY: Final = "InsufficientInstanceCapacity"


class NodeGroup:
    """The group that machines come from: what it wants and has, and what its scale-up does."""

    def __init__(self, config: EmulatorConfig, now_us: int) -> None:
        self.name = f"{config.endpoint_name}-gpu"
        self._form = config.cluster.autoscaler_status
        self._most = config.scaling.max_instances
        self._target = self._ready = 0
        self._status, self._since_us = "NoActivity", now_us

    def asked(self, at_us: int) -> str:
        """One machine more is wanted; return how the event of the pod says so."""
        change = f"pod triggered scale-up: [{{{self.name} {self._target}->{self._target + 1} (max: {self._most})}}]"
        self._target += 1
        self._turn("InProgress", at_us)
        return change

    def joined(self, at_us: int) -> None:
        """A machine is ready."""
        self._ready += 1
        if self._ready >= self._target:
            self._turn("NoActivity", at_us)

    def refused(self, at_us: int) -> None:
        """The provider has no machine to give."""
        self._turn("Backoff", at_us)

    def config_map(self, uid: str, at_us: int) -> dict[str, Any]:
        """Return the ConfigMap as it is written at `at_us`."""
        text = self._yaml(at_us) if self._form == "yaml" else self._text(at_us)
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": NAME,
                "namespace": NAMESPACE,
                "uid": uid,
                "annotations": {"cluster-autoscaler.kubernetes.io/last-updated": _go(at_us)},
            },
            "data": {"status": text},
        }

    def _turn(self, status: str, at_us: int) -> None:
        if status != self._status:
            self._status, self._since_us = status, at_us

    def _yaml(self, at_us: int) -> str:
        probed, since = f'"{_rfc(at_us)}"', f'"{_rfc(self._since_us)}"'
        backoff = f"    backoffInfo:\n      errorCode: {OUT_OF_CAPACITY}\n" if self._status == "Backoff" else ""
        return (
            f"time: {_go(at_us)}\nautoscalerStatus: Running\nclusterWide:\n  health:\n    status: Healthy\n"
            f"    lastProbeTime: {probed}\n  scaleUp:\n    status: {self._status}\n    lastTransitionTime: {since}\n"
            f"nodeGroups:\n- name: {self.name}\n  health:\n    status: Healthy\n    nodeCounts:\n      registered:\n"
            f"        total: {self._ready}\n        ready: {self._ready}\n        notStarted: 0\n"
            f"    cloudProviderTarget: {self._target}\n    minSize: 0\n    maxSize: {self._most}\n"
            f"    lastProbeTime: {probed}\n  scaleUp:\n    status: {self._status}\n{backoff}"
            f"    lastProbeTime: {probed}\n    lastTransitionTime: {since}\n"
            f"  scaleDown:\n    status: NoCandidates\n    lastProbeTime: {probed}\n    lastTransitionTime: {probed}\n"
        )

    def _text(self, at_us: int) -> str:
        def condition(name: str, value: str, since_us: int) -> str:
            times = f"LastProbeTime:      {_go(at_us)} m=+9.1\n{'':15}LastTransitionTime: {_go(since_us)} m=+1.5"
            return f"  {name + ':':12} {value}\n{'':15}{times}\n"

        counts = (
            f"ready={self._ready} unready=0 notStarted=0 longNotStarted=0 registered={self._ready} longUnregistered=0"
        )
        size = f"cloudProviderTarget={self._target} (minSize=0, maxSize={self._most})"
        scale_up = f"{self._status} (ready={self._ready} cloudProviderTarget={self._target})"
        idle = condition("ScaleDown", "NoCandidates (candidates=0)", at_us)
        return (
            f"Cluster-autoscaler status at {_go(at_us)}:\nCluster-wide:\n"
            + condition("Health", f"Healthy ({counts})", at_us)
            + condition("ScaleUp", f"{self._status} (ready={self._ready} registered={self._ready})", self._since_us)
            + idle
            + f"\nNodeGroups:\n  Name:        {self.name}\n"
            + condition("Health", f"Healthy ({counts} {size})", at_us)
            + condition("ScaleUp", scale_up, self._since_us)
            + idle
        )


def _go(at_us: int) -> str:
    return f"{to_datetime(at_us):%Y-%m-%d %H:%M:%S.%f}000 +0000 UTC"


def _rfc(at_us: int) -> str:
    return f"{to_datetime(at_us):%Y-%m-%dT%H:%M:%S.%f}000Z"
