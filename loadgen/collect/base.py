"""The port between the loop and a platform's adapters: a source is polled and returns rows, or raises a typed error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

Row = dict[str, Any]


class Answer(NamedTuple):
    """A response and the client instants around it (µs since 1970)."""

    data: dict[str, Any]
    sent_us: int
    received_us: int


class Watched(NamedTuple):
    """The endpoint's variant under watch; events before `since_us` (endpoint time) do not count."""

    endpoint: str
    variant: str
    since_us: int = 0

    @property
    def resource(self) -> str:
        """The variant in Application Auto Scaling's words."""
        return f"endpoint/{self.endpoint}/variant/{self.variant}"


class SourceError(Exception):
    """A source could not be read; `reason` is the word that stands in the gap's row. Messages hold no secrets."""

    reason: ClassVar[str] = "malformed"


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


@dataclass(slots=True)
class Reading:
    """What one poll gave: rows of the tables, configuration by name, and the parts that could not be read."""

    observations: list[Row] = field(default_factory=list)
    samples: list[Row] = field(default_factory=list)
    snapshots: dict[str, Any] = field(default_factory=dict)
    failures: list[SourceError] = field(default_factory=list)


class Source(Protocol):
    """One thing to poll, each `period_us` of endpoint time. What it keeps changes only once a poll has succeeded."""

    name: str
    period_us: int

    async def poll(self, now_us: int) -> Reading:
        """Return what is new; `now_us` is the present in endpoint time. Raises `SourceError`."""
        ...
