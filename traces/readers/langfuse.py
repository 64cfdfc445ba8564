"""Langfuse's export of observations, as JSON lines or an array. Times are UTC without a zone.

Only observations of type GENERATION are requests; the spans around them repeat their time and are counted as
`not_generation`. A generation that had not ended is kept: it was offered load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from traces.readers.base import Batch, Format, Options
from traces.readers.head import Head
from traces.readers.json_rows import Row, json_batches
from traces.readers.values import BadRowError, first_of, iso_us, mapping, required, span_us, text, tokens

_START: Final = ("start_time", "startTime")
_END: Final = ("end_time", "endTime")
_USAGE: Final = ("usage_details", "usageDetails", "usage")


def _sniff(head: Head) -> bool:
    return any(
        "type" in row and first_of(row, *_START) is not None and first_of(row, "trace_id", "traceId") is not None
        for row in head.objects
    )


def _batches(path: Path, _options: Options) -> Iterator[Batch]:
    return json_batches(path, _parse)


def _parse(row: Any, _row_id: int) -> Row:
    if not isinstance(row, dict):
        raise BadRowError("malformed_row")
    if required(row.get("type")) != "GENERATION":
        raise BadRowError("not_generation")
    start_us = iso_us(required(first_of(row, *_START)))
    ended = first_of(row, *_END)
    usage = mapping(first_of(row, *_USAGE))
    sent, got = _total(usage, ("input", "prompt")), _total(usage, ("output", "completion"))
    failed = row.get("level") == "ERROR"
    unknown = ended is None or failed
    return {
        "arrival_us": start_us,
        # Where a request failed or had not ended, 0 says that nothing was counted.
        "input_tokens": None if unknown and not sent else sent,
        "output_tokens": None if unknown and not got else got,
        "model": text(first_of(row, "provided_model_name", "providedModelName", "model")),
        "session_id": text(first_of(row, "session_id", "sessionId")),
        "source_latency_us": None if ended is None else span_us(iso_us(ended) - start_us, 1),
        "remark": "failed" if failed else "unfinished" if ended is None else None,
    }


def _total(usage: Mapping[str, Any], kinds: tuple[str, str]) -> int | None:
    """Return the sum over a side's kinds of tokens: cached and reasoning tokens have entries of their own."""
    counts = [tokens(count) for name, count in usage.items() if name.lower().startswith(kinds)]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


FORMAT: Final = Format(
    name="langfuse",
    expected='JSON with "type", "start_time" and "usage_details" of each observation',
    time_text="start_time, UTC unless a zone is stated",
    sniff=_sniff,
    batches=_batches,
    unordered=True,
)
