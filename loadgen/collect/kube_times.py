"""What Kubernetes writes times and lengths as, and how messages of the kubelet read: pure functions."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final, NamedTuple

from traces.clock import to_us
from traces.units import US_PER_S

_GO_UNIT_US: Final = {"h": 3_600e6, "m": 60e6, "s": 1e6, "ms": 1e3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ns": 1e-3}
_GO_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|µs|μs|ns)")
_PULLED: Final = re.compile(
    r"Successfully pulled image (?:\"(?P<image>[^\"]*)\" )?in (?P<own>[\d.hmsuµμn]+)"
    r"(?: \((?P<whole>[\d.hmsuµμn]+) including waiting\))?"
    r"(?:\. Image size: (?P<bytes>\d+) bytes)?"
)
_PRESENT: Final = re.compile(r"already present on (?:the )?machine")


class Stamp(NamedTuple):
    """An instant as an object states it: it lies in [lo, hi] (µs since 1970)."""

    lo_us: int
    hi_us: int


class Pull(NamedTuple):
    """What a `Pulled` event says. `own_us` is the pull itself, `whole_us` that and its wait in the node's queue."""

    cached: bool
    own_us: int | None = None
    whole_us: int | None = None
    image_bytes: int | None = None


def stamp(text: Any) -> Stamp | None:
    """Return the interval of an RFC 3339 instant: a whole second where it has no fraction, else a microsecond.

    >>> stamp("2026-07-01T10:00:00Z").hi_us - stamp("2026-07-01T10:00:00Z").lo_us
    1000000
    >>> stamp("2026-07-01T10:00:00.250000Z").lo_us
    1782900000250000
    """
    if not isinstance(text, str):
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    if instant.tzinfo is None:
        return None
    at_us = to_us(instant)
    return Stamp(at_us, at_us + (1 if "." in text else US_PER_S))


def go_duration_us(text: str) -> int | None:
    """Return the µs of a duration as Go prints it, or `None` for anything else.

    >>> go_duration_us("5m33.12s"), go_duration_us("912ms"), go_duration_us("0s"), go_duration_us("1.5")
    (333120000, 912000, 0, None)
    """
    total, end = 0.0, 0
    for part in _GO_PART.finditer(text):
        if part.start() != end:
            return None
        total += float(part[1]) * _GO_UNIT_US[part[2]]
        end = part.end()
    return round(total) if text and end == len(text) else None


def pull_of(message: str) -> Pull | None:
    """Return what the message of a `Pulled` event says, in the words of any kubelet; `None` if it says nothing known.

    Older kubelets state neither the whole time nor the size.

    >>> pull_of('Successfully pulled image "r/vllm:1" in 5m32.9s (5m40s including waiting). Image size: 17700 bytes.')
    Pull(cached=False, own_us=332900000, whole_us=340000000, image_bytes=17700)
    >>> pull_of('Successfully pulled image "r/vllm:1" in 912.5ms')
    Pull(cached=False, own_us=912500, whole_us=None, image_bytes=None)
    >>> pull_of('Container image "r/vllm:1" already present on machine and can be accessed by the pod').cached
    True
    """
    if _PRESENT.search(message):
        return Pull(cached=True)
    found = _PULLED.search(message)
    if found is None:
        return None
    own_us = go_duration_us(found["own"].rstrip("."))
    if own_us is None:
        return None
    whole = found["whole"]
    return Pull(
        cached=False,
        own_us=own_us,
        whole_us=None if whole is None else go_duration_us(whole),
        image_bytes=None if found["bytes"] is None else int(found["bytes"]),
    )


def event_stamp(event: dict[str, Any]) -> Stamp | None:
    """Return when an event first happened: `eventTime` where it is set, else `firstTimestamp`, else its creation."""
    candidates = (event.get("eventTime"), event.get("firstTimestamp"), event.get("deprecatedFirstTimestamp"))
    for text in (*candidates, (event.get("metadata") or {}).get("creationTimestamp")):
        found = stamp(text)
        if found is not None:
            return found
    return None


def occurrences(event: dict[str, Any]) -> int:
    """Return how often an aggregated event happened so far."""
    series = event.get("series") or {}
    counts = (series.get("count"), event.get("count"), event.get("deprecatedCount"))
    return max((count for count in counts if isinstance(count, int)), default=1)
