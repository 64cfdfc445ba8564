"""The port to a platform: what it brings to a collection, and what it is made with; see docs/collector.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from loadgen.collect.aws import Aws, Permission
from loadgen.collect.base import Source, Stream
from loadgen.scenario import CollectSection
from traces.clock import ClientClock, EndpointClock

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Context:
    """What a platform is made with.

    Events before `since_us` (endpoint time) do not count, nor those after `until_us` where a past stretch is read.
    `before` holds the snapshots, by name, that an earlier collector of the same run left.
    """

    section: CollectSection
    clock: ClientClock
    endpoint_clock: EndpointClock
    aws: Aws
    since_us: int
    until_us: int | None
    before: Mapping[str, Any]
    say: Say


class ClusterRule(NamedTuple):
    """One rule of a Kubernetes role: what a source reads there, and what is lost without it.

    Without a `namespace` it holds for the whole cluster; `names` narrows it down to single objects.
    """

    api_group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    purpose: str
    optional: bool = False
    namespace: str | None = None
    names: tuple[str, ...] = ()


class Finding(NamedTuple):
    """What an examination found: `status` is `ok`, `warn`, `fail` or `unknown`; `advice` says what to do about it."""

    topic: str
    status: Literal["ok", "warn", "fail", "unknown"]
    text: str
    advice: str | None = None


class PhaseView(NamedTuple):
    """How well one phase will be seen, by what, and the cheapest thing that would improve it."""

    phase: str
    sight: Literal["measured", "bounded", "invisible"]
    source: str
    advice: str | None = None


SEEN: Final = "sources-seen"
"""Key, in the snapshots that an examination is given, of the names of the sources that could be read."""


@runtime_checkable
class Identified(Protocol):
    """A platform that knows its caller by a name of its own."""

    async def identity(self) -> Finding:
        """Return who is asking."""
        ...


@runtime_checkable
class Scoped(Protocol):
    """A platform whose permissions can be narrowed down to what is watched."""

    @property
    def arn_names(self) -> Mapping[str, str]:
        """What stands for the placeholders in the resources of its permissions."""
        ...


@runtime_checkable
class Examined(Protocol):
    """A platform that can also say, from what its sources read, how well a scale-out will be seen."""

    def findings(self, snapshots: Mapping[str, Any]) -> list[Finding]:
        """Return what is set up well and what is not."""
        ...

    def phases(self, snapshots: Mapping[str, Any]) -> list[PhaseView]:
        """Return how well each phase will be seen, in causal order."""
        ...


class Platform(Protocol):
    """One platform of a scenario. Nothing is read before `open`."""

    name: str
    """A word of `traces.schema.PLATFORMS`; platforms of other distributions say `other`."""

    resource: str
    """The watched thing in the platform's own words."""

    @property
    def permissions(self) -> Sequence[Permission | ClusterRule]:
        """What it needs beside what its sources need."""
        ...

    async def open(self, stack: AsyncExitStack) -> list[str]:
        """Open clients on `stack` and read the watched thing once; returns what to warn of.

        Raises `BadInputError` or `UnreachableError`, fit for a user.
        """
        ...

    def sources(self) -> Sequence[Source | Stream]:
        """Return all sources, those that others rely on first."""
        ...
