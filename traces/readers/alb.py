"""Access logs of an Application Load Balancer. `time` is when the answer ended; `request_creation_time` is arrival."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import polars as pl

from traces.readers.access_logs import log_batches
from traces.readers.base import Batch, Format, Options
from traces.readers.head import Head

# Fields up to the creation time, the 22nd; AWS appends new ones at the end.
_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_PATTERN: Final = (
    r"^(?:https?|h2|grpcs|wss?) (?P<end>\S+) \S+ \S+ \S+ \S+ \S+ \S+ (?P<status>\S+) \S+ \S+ \S+ "
    r'"(?P<method>\S+) (?P<path>\S*) [^"]*" "(?P<agent>(?:[^"\\]|\\.)*)" \S+ \S+ \S+ '
    rf"{_QUOTED} {_QUOTED} {_QUOTED} \S+ (?P<created>\S+)"
)


def _sniff(head: Head) -> bool:
    lines = pl.Series(head.content.decode("utf-8", "replace").splitlines()[:20], dtype=pl.String)
    return bool(lines.str.contains(_PATTERN).any())


def _batches(path: Path, _options: Options) -> Iterator[Batch]:
    return log_batches(path, _PATTERN, _times)


def _times(groups: pl.DataFrame) -> pl.DataFrame:
    created, ended = _iso_us("created"), _iso_us("end")
    return groups.with_columns(arrival_us=created, source_latency_us=ended - created)


def _iso_us(column: str) -> pl.Expr:
    parsed = pl.col(column).str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit="us", strict=False, cache=False)
    return parsed.dt.epoch("us")


FORMAT: Final = Format(
    name="alb",
    expected="access log lines of an Application Load Balancer",
    time_text="request_creation_time, UTC",
    sniff=_sniff,
    batches=_batches,
    unordered=True,
    notes=("access logs hold no token counts: lengths are unknown",),
)
