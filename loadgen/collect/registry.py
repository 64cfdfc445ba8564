"""The platforms that a scenario watches: the built-in ones, and those that other distributions install.

A third-party platform is an entry point in the group `ramptrace.platforms`: its name is NAME of `[collect.other.NAME]`,
its object a callable that takes that table (a dict, checked by nobody else) and the `Context`, and returns a
`loadgen.collect.platform.Platform`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from loadgen.collect.aws import Permission
from loadgen.collect.platform import ClusterRule, Context, Platform
from loadgen.scenario import CollectSection
from traces.errors import BadInputError, did_you_mean

GROUP = "ramptrace.platforms"


def _sagemaker(context: Context) -> Platform:
    from loadgen.collect.sagemaker import SageMaker

    return SageMaker(context)


def _ecs(context: Context) -> Platform:
    from loadgen.collect.ecs import Ecs

    return Ecs(context)


def _ec2(context: Context) -> Platform:
    from loadgen.collect.ec2 import Ec2

    return Ec2(context)


def _kubernetes(context: Context) -> Platform:
    from loadgen.collect.kubernetes import Kubernetes

    return Kubernetes(context)


def _probe(context: Context) -> Platform:
    from loadgen.collect.probe import ProbePlatform

    return ProbePlatform(context)


_BUILT_IN: dict[str, tuple[Callable[[CollectSection], bool], Callable[[Context], Platform]]] = {
    "sagemaker": (lambda section: section.endpoint_name is not None, _sagemaker),
    "ecs": (lambda section: section.ecs is not None, _ecs),
    "ec2": (lambda section: section.ec2 is not None, _ec2),
    "kubernetes": (lambda section: section.kubernetes is not None, _kubernetes),
    "probe": (lambda section: section.probe is not None and bool(section.probe.units), _probe),
}
"""Platform → whether a section asks for it, and how it is made."""


def make_platforms(context: Context) -> list[Platform]:
    """Return the platforms that a scenario's `[collect]` asks for. Raises `BadInputError` for an unknown one."""
    section = context.section
    found = [make(context) for asked, make in _BUILT_IN.values() if asked(section)]
    installed = {entry.name: entry for entry in entry_points(group=GROUP)} if section.other else {}
    for name, table in section.other.items():
        if name not in installed:
            known = f"; installed: {', '.join(sorted(installed))}" if installed else "; none is installed"
            raise BadInputError(f"[collect.other.{name}]: unknown platform{did_you_mean(name, list(installed))}{known}")
        found.append(_load(installed[name], table, context))
    return found


def permissions_of(platform: Platform) -> list[Permission]:
    """Return the AWS operations that a platform and its sources call; needs no connection."""
    return [need for need in needs_of(platform) if isinstance(need, Permission)]


def needs_of(platform: Platform) -> list[Permission | ClusterRule]:
    """Return all that a platform and its sources need; needs no connection."""
    return [*platform.permissions, *(need for source in platform.sources() for need in source.permissions)]


def _load(entry: EntryPoint, table: dict[str, Any], context: Context) -> Platform:
    try:
        make = entry.load()
    except Exception as error:  # whatever a foreign module raises when it is imported
        raise BadInputError(
            f'[collect.other.{entry.name}]: the installed platform "{entry.name}" cannot be loaded from '
            f"{entry.value} ({error})"
        ) from error
    platform: Platform = make(table, context)
    return platform
