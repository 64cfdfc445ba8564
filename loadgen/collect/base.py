"""The port between the loop and what it reads: a source gives rows, or raises a typed error; see docs/collector.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

Row = dict[str, Any]


class Answer(NamedTuple):
    """A response and the client instants around it (µs since 1970)."""

    data: dict[str, Any]
    sent_us: int
    received_us: int


class SourceError(Exception):
    """A source could not be read; `reason` is the word that stands in the gap's row. Messages hold no secrets."""

    reason: ClassVar[str] = "malformed"

    retry_s: float | None = None
    """How long to wait at least before the same call may do better; `None` where it would not."""


class ThrottledError(SourceError):
    """The service asks for fewer calls."""

    reason = "throttled"


class DeniedError(SourceError):
    """The credentials do not allow the call; asking again is of no use."""

    reason = "denied"


class SourceUnreachableError(SourceError):
    """No connection, no answer in time, or a failure on the service's side."""

    reason = "unreachable"


class ExpiredError(SourceError):
    """The credentials ran out; they may be renewed meanwhile."""

    reason = "expired"


class MalformedError(SourceError):
    """The answer is not what it should be, or not the whole of it."""


class MissingError(MalformedError):
    """There is no such thing, or the platform has no such kind."""


@dataclass(slots=True)
class Reading:
    """What one reading gave: rows of the tables, configuration by name, and the parts that could not be read.

    Rows are made by `loadgen.collect.rows`; the platform's name is put into them later.
    """

    observations: list[Row] = field(default_factory=list)
    samples: list[Row] = field(default_factory=list)
    snapshots: dict[str, Any] = field(default_factory=dict)
    failures: list[SourceError] = field(default_factory=list)
    billed_metrics: int = 0
    """How many CloudWatch metrics were asked for; the service bills each."""


Take = Callable[[Reading], None]


@runtime_checkable
class Source(Protocol):
    """One thing to poll, each `period_us` of endpoint time. What it keeps changes only once a poll has succeeded.

    `kept_us` is how long the platform keeps what it reads: 0 for a present state, `None` for ever. The first poll
    reads all that is still kept since the collection's `since_us`; the later ones what may have changed.
    `permissions` are what it needs: `aws.Permission` and `platform.ClusterRule`.
    """

    name: str
    period_us: int
    kept_us: int | None

    @property
    def permissions(self) -> Sequence[Any]:
        """What it reads with, for the printed policies and the doctor."""
        ...

    async def poll(self, now_us: int) -> Reading:
        """Return what is new, or old and unchanged; `now_us` is the present (endpoint time). Raises `SourceError`."""
        ...


class Stream(Protocol):
    """One thing that tells by itself, such as a watch. It is opened again `period_us` after it ended or failed."""

    name: str
    period_us: int
    kept_us: int | None

    @property
    def permissions(self) -> Sequence[Any]:
        """What it reads with, for the printed policies and the doctor."""
        ...

    async def follow(self, take: Take) -> None:
        """Hand readings to `take` as they come, from where the last call left off; an empty one is a sign of life.

        Returns when the other side ended it in good order. Raises `SourceError`.
        """
        ...


@runtime_checkable
class Looking(Protocol):
    """A source or stream that can also be tried once without waiting for anything, as the doctor does."""

    async def look(self) -> Reading:
        """Use every permission of the source once; returns what was read. Raises `SourceError`."""
        ...
