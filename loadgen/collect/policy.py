"""Least-privilege policies, made from the same tables of operations that the sources call by. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loadgen.collect.aws import Permission
from loadgen.collect.platform import ClusterRule

_VERSION = "2012-10-17"
_RBAC = "rbac.authorization.k8s.io/v1"
ROLE_NAME = "ramptrace-collector"


def iam_policy(permissions: Iterable[Permission], names: Mapping[str, str]) -> dict[str, Any]:
    """Return an IAM policy with one statement per set of resources; nothing in it writes but for the event queue.

    `names` fills the placeholders of the resources; one that is not named becomes `*`.
    """
    by_resources: dict[tuple[str, ...], set[str]] = {}
    for permission in permissions:
        resources = tuple(sorted(_filled(resource, names) for resource in permission.resources))
        by_resources.setdefault(resources, set()).update(permission.actions)
    statements = [
        {"Sid": f"{_sid(actions)}{number}", "Effect": "Allow", "Action": sorted(actions), "Resource": list(resources)}
        for number, (resources, actions) in enumerate(sorted(by_resources.items()), 1)
        if actions
    ]
    return {"Version": _VERSION, "Statement": statements}


def cluster_roles(rules: Iterable[ClusterRule]) -> dict[str, Any]:
    """Return a List of a Role for each namespace, and a ClusterRole for what lies in none, as `kubectl apply` takes it.

    Each has one rule per API group, set of verbs and set of names.
    """
    merged: dict[str | None, dict[tuple[Any, ...], set[str]]] = {}
    for rule in rules:
        kinds = merged.setdefault(rule.namespace, {})
        kinds.setdefault((rule.api_group, tuple(rule.verbs), rule.names), set()).update(rule.resources)
    roles = []
    for namespace, kinds in sorted(merged.items(), key=lambda item: item[0] or ""):
        metadata = {"name": ROLE_NAME} | ({"namespace": namespace} if namespace else {})
        listed = [
            {"apiGroups": [group], "resources": sorted(resources), "verbs": list(verbs)}
            | ({"resourceNames": list(names)} if names else {})
            for (group, verbs, names), resources in sorted(kinds.items())
        ]
        kind = "Role" if namespace else "ClusterRole"
        roles.append({"apiVersion": _RBAC, "kind": kind, "metadata": metadata, "rules": listed})
    return {"apiVersion": "v1", "kind": "List", "items": roles}


def policies(needed: Sequence[Permission | ClusterRule], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the policies that these need: `iam`, `kubernetes`, or both."""
    permissions = [one for one in needed if isinstance(one, Permission)]
    rules = [one for one in needed if isinstance(one, ClusterRule)]
    found = {}
    if permissions:
        found["iam"] = iam_policy(permissions, names)
    if rules:
        found["kubernetes"] = cluster_roles(rules)
    return found


def scoped(permission: Permission, names: Mapping[str, str]) -> Permission:
    """Return a permission narrowed down to what is watched; placeholders that `names` does not fill stay."""
    resources = (re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], found[0]), one) for one in permission.resources)
    return permission._replace(resources=tuple(resources))


def _filled(resource: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "*"), resource)


def _sid(actions: Iterable[str]) -> str:
    services = sorted({action.partition(":")[0] for action in actions})
    return "Read" + services[0].replace("-", "").capitalize() if len(services) == 1 else "Read"
