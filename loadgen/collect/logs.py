"""CloudWatch Logs: a unit's stream tells when its container started, its first lines how the load went on.

The text of a message is looked at and forgotten; it may hold prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from loadgen.collect.anchors import SAGEMAKER, log_pattern
from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import Answer, DeniedError, MalformedError, Reading, Row, SourceError
from loadgen.collect.patterns import match
from loadgen.collect.rows import observation
from traces.units import US_PER_MS, US_PER_S

_LISTED_BACK_US = 3_600 * US_PER_S
"""How far back a stream's last event may lie: the service brings that stamp up to date within the hour."""

_TAIL_US = 1_800 * US_PER_S
_LATE_US = 30 * US_PER_S
_FIRST_EVENTS_PER_POLL = 20
_EMPTY_PAGES_AT_MOST = 5
_STREAMS_PER_CALL = 100


_GROUPS = ("arn:{partition}:logs:{region}:{account}:log-group:{log_group}",)


class Logged(Protocol):
    """Whose streams are read: those of `log_group` that are called `<variant>/<unit>`."""

    @property
    def log_group(self) -> str: ...  # noqa: D102
    @property
    def variant(self) -> str: ...  # noqa: D102
    @property
    def resource(self) -> str: ...  # noqa: D102
    @property
    def since_us(self) -> int: ...  # noqa: D102


class Logs:
    """Finds the variant's streams (`<variant>/<instance id>`), and follows the new ones until their engine is ready."""

    name = "logs"
    kept_us: int | None = None
    permissions: ClassVar = (
        Permission("logs", "describe_log_streams", ("logs:DescribeLogStreams",), "which instances there are", _GROUPS),
        Permission("logs", "get_log_events", ("logs:GetLogEvents",), "when a container started", _GROUPS),
        Permission("logs", "filter_log_events", ("logs:FilterLogEvents",), "how the load went on", _GROUPS),
    )

    def __init__(self, api: Api, watched: Logged, period_us: int) -> None:
        self.period_us = period_us
        self._api = api
        self._group = watched.log_group
        self._watched = watched
        self._first_us: dict[str, int] = {}
        """Stream → time of its first event (endpoint time), once read."""
        self._tailed: dict[str, int] = {}
        """Stream still followed → from when on it has to be read."""
        self._tail_denied = False

    @property
    def new_units(self) -> list[str]:
        """The units whose container started since the collection's start."""
        since_us = self._watched.since_us
        return [name.rpartition("/")[2] for name, first_us in self._first_us.items() if first_us >= since_us]

    async def poll(self, now_us: int) -> Reading:
        """Return first events of streams not seen before, and matched lines; a group that does not exist is empty."""
        reading = Reading()
        streams = await self._streams(now_us)
        # From here on a failure keeps what was read before it: a stream's first event is not asked for twice.
        try:
            for stream in [s for s in streams if s["logStreamName"] not in self._first_us][:_FIRST_EVENTS_PER_POLL]:
                row = await self._first_event(stream)
                if row is not None:
                    reading.observations.append(row)
            if self._tailed and not self._tail_denied:
                await self._tail(now_us, reading)
        except DeniedError as error:
            self._tail_denied = True
            reading.failures.append(error)
        except SourceError as error:
            reading.failures.append(error)
        return reading

    async def _streams(self, now_us: int) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        oldest_ms = (min(self._watched.since_us, now_us) - _LISTED_BACK_US) // US_PER_MS
        scope: dict[str, Any] = {"logGroupName": self._group, "orderBy": "LastEventTime", "descending": True}
        try:
            async for page in self._api.pages("describe_log_streams", "nextToken", **scope):
                listed = page.data.get("logStreams", [])
                found += [stream for stream in listed if unit_of(stream.get("logStreamName"), self._watched.variant)]
                newest = max((_newest_ms(stream) for stream in listed), default=oldest_ms)
                if newest < oldest_ms:
                    break
        except MalformedError as error:
            # The group comes into being with the first line of the first container.
            if "ResourceNotFoundException" in str(error):
                return []
            raise
        return [stream for stream in found if _newest_ms(stream) >= oldest_ms]

    async def _first_event(self, stream: Mapping[str, Any]) -> Row | None:
        name = stream["logStreamName"]
        scope: dict[str, Any] = {"logGroupName": self._group, "logStreamName": name, "startFromHead": True, "limit": 1}
        pages = 0
        async for page in self._api.pages("get_log_events", "nextForwardToken", "nextToken", **scope):
            events = page.data.get("events") or []
            if events:
                first_us = int(events[0]["timestamp"]) * US_PER_MS
                self._first_us[name] = first_us
                if first_us >= self._watched.since_us:
                    self._tailed[name] = first_us
                return first_event_row(self._group, stream, events[0], self._watched.resource, page)
            pages += 1
            if pages >= _EMPTY_PAGES_AT_MOST:
                break
        return None

    async def _tail(self, now_us: int, reading: Reading) -> None:
        names = list(self._tailed)[:_STREAMS_PER_CALL]
        start_us = min(self._tailed[name] for name in names)
        scope: dict[str, Any] = {
            "logGroupName": self._group,
            "logStreamNames": names,
            "startTime": start_us // US_PER_MS,
        }
        newest_us: dict[str, int] = {}
        ready: set[str] = set()
        async for page in self._api.pages("filter_log_events", "nextToken", **scope):
            for event in page.data.get("events") or ():
                name = str(event.get("logStreamName"))
                at_us = int(event["timestamp"]) * US_PER_MS
                newest_us[name] = max(at_us, newest_us.get(name, at_us))
                row = pattern_row(event, self._watched.resource, page)
                if row is not None:
                    reading.observations.append(row)
                    if row["anchor"] == "ready":
                        ready.add(name)
        for name in names:
            # Lines arrive late and out of order: the last half minute is read again.
            self._tailed[name] = max(self._tailed[name], newest_us.get(name, 0) - _LATE_US)
            if name in ready or now_us - self._first_us[name] > _TAIL_US:
                del self._tailed[name]


def unit_of(stream: str | None, variant: str) -> str | None:
    """Return the instance that a stream of the variant is about, or `None` for any other stream.

    >>> unit_of("AllTraffic/i-0abc", "AllTraffic"), unit_of("AllTraffic/i-0abc/data-log", "AllTraffic")
    ('i-0abc', None)
    """
    owner, _, unit = (stream or "").rpartition("/")
    return unit if owner == variant and unit else None


def first_event_row(
    group: str, stream: Mapping[str, Any], event: Mapping[str, Any], resource: str, told: Answer
) -> Row:
    """Return the row of a stream's first event: the container was running by then."""
    name = str(stream["logStreamName"])
    return observation(
        SAGEMAKER["log.first-event"],
        resource,
        f"{group}:{name}",
        told,
        unit_id=name.rpartition("/")[2],
        at_us=int(event["timestamp"]) * US_PER_MS,
        detail={
            "stream_created": _us(stream.get("creationTime")),
            "first_ingestion": _us(event.get("ingestionTime")),
        },
    )


def pattern_row(event: Mapping[str, Any], resource: str, told: Answer) -> Row | None:
    """Return the row of a log line that dates something; its text stays behind."""
    found = match(str(event.get("message") or ""))
    if found is None or not event.get("eventId"):
        return None
    return observation(
        log_pattern(found.pattern.anchor),
        resource,
        str(event["eventId"]),
        told,
        unit_id=str(event.get("logStreamName")).rpartition("/")[2],
        at_us=int(event["timestamp"]) * US_PER_MS,
        duration_us=found.duration_us,
        resolution_us=found.resolution_us,
        detail={"engine": found.pattern.engine, "pattern": found.pattern.name, **_place(found.pattern.anchor)},
    )


def _place(anchor: str | None) -> dict[str, str]:
    """Tell a download inside the container from the platform's, which leaves no lines."""
    return {"place": "container"} if anchor in {"download_started", "download_finished"} else {}


def _newest_ms(stream: Mapping[str, Any]) -> int:
    return max(int(stream.get(key) or 0) for key in ("lastEventTimestamp", "lastIngestionTime", "creationTime"))


def _us(ms: Any) -> int | None:
    return int(ms) * US_PER_MS if isinstance(ms, int | float) else None
