"""Access logs of nginx. A line is written when the answer has ended: arrival is the end minus the request time.

`$time_local` has whole seconds and is cut off, so that an arrival may lie up to one second early; `$msec` is exact.
The pattern is the combined format followed by `rt=$request_time`, unless another is named or given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import polars as pl

from traces.errors import BadInputError, did_you_mean
from traces.readers.access_logs import log_batches
from traces.readers.base import Batch, Format, Options
from traces.readers.head import Head
from traces.units import US_PER_S

_REQUEST: Final = r'"(?P<method>[A-Z]+) (?P<path>\S*) [^"]*" (?P<status>\d{3}) \S+'
_CLIENT: Final = r'"(?:[^"\\]|\\.)*" "(?P<agent>(?:[^"\\]|\\.)*)"'

PATTERNS: Final = {
    "combined-rt": rf"^\S+ \S+ .*? \[(?P<time_local>[^\]]+)\] {_REQUEST} {_CLIENT}.*? rt=(?P<request_time>[\d.]+)",
    "combined-time": rf"^\S+ \S+ .*? \[(?P<time_local>[^\]]+)\] {_REQUEST} {_CLIENT} (?P<request_time>[\d.]+)",
    "combined-msec": rf"^\S+ \S+ .*? \[[^\]]+\] {_REQUEST} {_CLIENT} (?P<msec>\d+\.\d+) (?P<request_time>[\d.]+)",
}
"""Formats by name: combined, then `rt=$request_time`; combined, then `$request_time`; combined, then `$msec
$request_time`."""

_DEFAULT: Final = "combined-rt"
_NEEDED: Final = {"method", "path", "status", "request_time"}


def _sniff(head: Head) -> bool:
    lines = pl.Series(head.content.decode("utf-8", "replace").splitlines()[:20], dtype=pl.String)
    return bool(lines.str.contains(PATTERNS[_DEFAULT]).any())


def _check(path: Path, head: Head, options: Options) -> None:
    pattern = _pattern(options)
    lines = pl.Series(head.content.decode("utf-8", "replace").splitlines()[:200], dtype=pl.String)
    if not lines.str.contains(pattern).any():
        raise BadInputError(
            f"{path}: no line fits the pattern {options.pattern or _DEFAULT}; expected {FORMAT.expected}; name one of "
            f"{', '.join(PATTERNS)} with --pattern, or give a regular expression with the groups "
            f"time_local or msec, {', '.join(sorted(_NEEDED))}"
        )


def _pattern(options: Options) -> str:
    """Return the regular expression that was named or given, checked."""
    wanted = options.pattern or _DEFAULT
    if wanted in PATTERNS:
        return PATTERNS[wanted]
    if re.fullmatch(r"[\w-]*", wanted):
        raise BadInputError(
            f'no pattern "{wanted}"{did_you_mean(wanted, list(PATTERNS))}; known: {", ".join(PATTERNS)}'
        )
    try:
        groups = set(re.compile(wanted).groupindex)
        pl.Series([""]).str.extract_groups(wanted)
    except (re.error, pl.exceptions.PolarsError) as error:
        cause = str(error).partition("\n")[0]
        raise BadInputError(f"--pattern is no regular expression ({cause}); name groups as (?P<status>…)") from error
    missing = _NEEDED - groups
    if missing or not groups & {"time_local", "msec"}:
        lacking = sorted(missing) or ["time_local or msec"]
        raise BadInputError(f"--pattern lacks the groups {', '.join(lacking)}; name them as (?P<status>…)")
    return wanted


def _batches(path: Path, options: Options) -> Iterator[Batch]:
    return log_batches(path, _pattern(options), _times)


def _times(groups: pl.DataFrame) -> pl.DataFrame:
    lasted = (pl.col("request_time").cast(pl.Float64, strict=False) * US_PER_S).round().cast(pl.Int64, strict=False)
    exact = (pl.col("msec").cast(pl.Float64, strict=False) * US_PER_S).round().cast(pl.Int64, strict=False)
    local = pl.col("time_local").str.to_datetime("%d/%b/%Y:%H:%M:%S %z", time_unit="us", strict=False, cache=False)
    ended = pl.coalesce(exact, local.dt.epoch("us"))
    return groups.with_columns(arrival_us=ended - lasted, source_latency_us=lasted)


FORMAT: Final = Format(
    name="nginx",
    expected="access log lines of nginx: the combined format followed by rt=$request_time",
    time_text="end of the answer minus $request_time; $time_local has whole seconds and its own zone",
    sniff=_sniff,
    check=_check,
    batches=_batches,
    options=frozenset({"pattern"}),
    unordered=True,
    notes=("access logs hold no token counts: lengths are unknown",),
)
