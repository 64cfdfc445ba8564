"""A Deployment on Kubernetes: its watches, and the check before the start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import quote

from loadgen.collect import kube_view
from loadgen.collect.base import Answer, Source, SourceError, Stream
from loadgen.collect.first_call import first_call
from loadgen.collect.kube_autoscaler import AutoscalerStatus
from loadgen.collect.kube_client import Cluster, ClusterApi
from loadgen.collect.kube_events import Events
from loadgen.collect.kube_logs import PodLogs
from loadgen.collect.kube_nodes import NodeClaims, Nodes
from loadgen.collect.kube_pods import Pods, Workload
from loadgen.collect.kube_scaling import LAST, Deployments, Endpoints, Scalers
from loadgen.collect.kube_watch import Kind, ObjectStream
from loadgen.collect.platform import SEEN, ClusterRule, Context, Finding, PhaseView
from loadgen.collect.probe import Probe, probe_urls
from loadgen.collect.redaction import redact
from traces.units import US_PER_S

_EVENTS_KEPT_US: Final = 3_600 * US_PER_S
"""How long a cluster keeps events unless it is told otherwise."""
_READ: Final = ("get", "list", "watch")
RULES: Final = {
    "deployments": ClusterRule("apps", ("deployments",), _READ, "the workload, its counts and its selector"),
    "pods": ClusterRule("", ("pods",), _READ, "scheduling, container start and readiness of each pod"),
    "events": ClusterRule("", ("events",), _READ, "decisions, image pulls, and what went wrong"),
    "nodes": ClusterRule("", ("nodes",), _READ, "when machines joined, and their accelerators", optional=True),
    "hpa": ClusterRule("autoscaling", ("horizontalpodautoscalers",), _READ, "which autoscaler acts", optional=True),
    "scaledobjects": ClusterRule("keda.sh", ("scaledobjects",), _READ, "KEDA's decisions", optional=True),
    "autoscaler-status": ClusterRule("", ("configmaps",), _READ, "cluster-autoscaler's node groups", optional=True),
    "nodeclaims": ClusterRule("karpenter.sh", ("nodeclaims",), _READ, "Karpenter's machines", optional=True),
    "endpointslices": ClusterRule(
        "discovery.k8s.io", ("endpointslices",), _READ, "when a Service sends a pod traffic", optional=True
    ),
}

_CLUSTER_WIDE: Final = {"nodes", "nodeclaims"}


class Kubernetes:
    """The platform: one Deployment. `api` replaces the cluster's own client."""

    name = "kubernetes"
    permissions: Sequence[Any] = ()

    def __init__(self, context: Context, api: ClusterApi | None = None) -> None:
        section = context.section.kubernetes
        assert section is not None
        self._context, self._section = context, section
        self.resource = f"{section.namespace}/deployment/{section.deployment}"
        self._api: ClusterApi | None = api
        self._selector = ""
        serves = section.service is not None
        since_us = context.since_us
        self._workload = Workload(
            self.resource, section.deployment, section.container, serves=serves, since_us=since_us
        )

    async def open(self, stack: AsyncExitStack) -> list[str]:
        """Connect, and read the Deployment once: its selector says which pods are its own."""
        section = self._section
        if self._api is None:
            self._api = await stack.enter_async_context(
                Cluster(
                    self._context.clock,
                    self._context.aws.offsets,
                    url=section.url,
                    kubeconfig=section.kubeconfig,
                    context=section.context,
                )
            )
        api = self._api

        async def call() -> None:
            path = f"/apis/apps/v1/namespaces/{quote(section.namespace)}/deployments/{quote(section.deployment)}"
            self._selector = selector_of((await api.get(path)).data)

        return await first_call(call, f"Kubernetes deployment {self.resource}", section.url)

    def sources(self) -> Sequence[Source | Stream]:
        """Return a stream per kind, and the pods' logs; those that others rely on first."""
        section, work, poll_us = self._section, self._workload, self._context.section.poll_us
        scalers: dict[str, str] = {}
        own = f"/namespaces/{quote(section.namespace)}"
        named = {"fieldSelector": f"metadata.name={section.deployment}"}

        def stream(key: str, path: str, kind: Kind, **more: Any) -> ObjectStream:
            rule = RULES[key]
            if key not in _CLUSTER_WIDE:
                rule = rule._replace(namespace=section.namespace)
            return ObjectStream(
                f"kubernetes:{key}",
                _Lazy(self),
                path,
                kind,
                period_us=poll_us,
                optional=rule.optional,
                permissions=(rule,),
                **more,
            )

        deployments = Deployments(work, self._context.before.get(LAST))
        found: list[Source | Stream] = [
            stream("deployments", f"/apis/apps/v1{own}/deployments", deployments, query=lambda: named),
            stream("pods", f"/api/v1{own}/pods", Pods(work), query=lambda: {"labelSelector": self._selector}),
            stream(
                "hpa",
                f"/apis/autoscaling/v2{own}/horizontalpodautoscalers",
                Scalers(work, scalers, "HorizontalPodAutoscaler"),
            ),
            stream(
                "scaledobjects", f"/apis/keda.sh/v1alpha1{own}/scaledobjects", Scalers(work, scalers, "ScaledObject")
            ),
            stream("nodes", "/api/v1/nodes", Nodes(work)),
            stream("nodeclaims", "/apis/karpenter.sh/v1/nodeclaims", NodeClaims(work)),
            stream("events", f"/api/v1{own}/events", Events(work, scalers), kept_us=_EVENTS_KEPT_US),
        ]
        if section.autoscaler_status:
            found.append(self._autoscaler_status(section.autoscaler_status))
        if section.service is not None:
            of_service = {"labelSelector": f"kubernetes.io/service-name={section.service}"}
            path = f"/apis/discovery.k8s.io/v1{own}/endpointslices"
            found.append(stream("endpointslices", path, Endpoints(work), query=lambda: of_service))
        found.append(PodLogs(_Lazy(self), section.namespace, work, poll_us))
        if section.probe_port is not None:
            found.append(Probe(self._context, lambda: probe_urls(work.addresses, section.probe_port)))
        return found

    def _autoscaler_status(self, place: str) -> ObjectStream:
        """Return the stream of one ConfigMap; a role may name it, as the list and the watch do."""
        namespace, _, name = place.partition("/")
        of_name = {"fieldSelector": f"metadata.name={name}"}
        return ObjectStream(
            "kubernetes:autoscaler-status",
            _Lazy(self),
            f"/api/v1/namespaces/{quote(namespace)}/configmaps",
            AutoscalerStatus(self._workload),
            period_us=self._context.section.poll_us,
            query=lambda: of_name,
            optional=True,
            permissions=(RULES["autoscaler-status"]._replace(namespace=namespace, names=(name,)),),
        )

    async def identity(self) -> Finding:
        """Return whose role is tried, and where."""
        api = self.api
        if not isinstance(api, Cluster):
            return Finding("identity", "unknown", "no cluster is open")
        try:
            return Finding("identity", "ok", f"{redact(await api.who())} at {redact(api.host)}")
        except SourceError as error:
            return Finding("identity", "unknown", str(error))

    def findings(self, snapshots: Mapping[str, Any]) -> list[Finding]:
        """Return what is set up well and what is not."""
        return kube_view.findings(snapshots, serves=self._workload.serves)

    def phases(self, snapshots: Mapping[str, Any]) -> list[PhaseView]:
        """Return how well each phase will be seen."""
        section = self._section
        seen = frozenset(snapshots.get(SEEN) or ())
        return kube_view.phases(snapshots, seen, serves=self._workload.serves, probed=section.probe_port is not None)

    @property
    def api(self) -> ClusterApi:
        """The cluster, once it is open."""
        assert self._api is not None, "the platform is not open"
        return self._api


class _Lazy:
    """The cluster's client for sources that are made before it is open."""

    def __init__(self, platform: Kubernetes) -> None:
        self._platform = platform

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        return await self._platform.api.get(path, query)

    async def text(self, path: str, query: Mapping[str, str]) -> tuple[str, int, int]:
        return await self._platform.api.text(path, query)

    def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Answer]:
        return self._platform.api.watch(path, query)


def selector_of(deployment: Mapping[str, Any]) -> str:
    """Return a Deployment's pod selector as a query states it.

    >>> selector_of({"spec": {"selector": {"matchLabels": {"app": "vllm"},
    ...     "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]}}})
    'app=vllm,tier in (a,b)'
    """
    selector = (deployment.get("spec") or {}).get("selector") or {}
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression.get("key"), expression.get("operator")
        values = ",".join(expression.get("values") or ())
        forms = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": str(key),
            "DoesNotExist": f"!{key}",
        }
        if operator in forms:
            parts.append(forms[operator])
    return ",".join(parts)
