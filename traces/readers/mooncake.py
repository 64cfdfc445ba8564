"""Mooncake traces: one JSON object per line with `timestamp` (ms from the trace's start), lengths and `hash_ids`.

`hash_ids` are the prompt's prefix blocks of 512 tokens; they may be absent. Other keys are ignored, apart from
`session_id`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from traces.errors import BadInputError
from traces.readers.base import MAX_TOKENS, REASONS, Batch, classified
from traces.readers.lines import line_frames
from traces.units import US_PER_MS

BLOCK_TOKENS: Final = 512
_MAX_MS: Final = 10**14
"""Later than the year 5000, had it been counted from 1970: not a time."""

name = "mooncake"
expected = 'JSON lines with "timestamp" (ms), "input_length", "output_length" and "hash_ids"'
time_text = "milliseconds from the trace's start, no date"

_PARSED: Final = pl.Struct(
    {
        "arrival_us": pl.Int64(),
        "input_tokens": pl.Int64(),
        "output_tokens": pl.Int64(),
        "session_id": pl.String(),
        "prefix_blocks": pl.List(pl.Int64()),
        "block_tokens": pl.Int64(),
        "reason": pl.Enum(REASONS),
    }
)


class _Line(msgspec.Struct):
    """The keys that matter. Types are checked afterwards, so that a wrong one names its reason."""

    timestamp: Any = None
    input_length: Any = None
    output_length: Any = None
    hash_ids: Any = None
    session_id: Any = None


_DECODER: Final = msgspec.json.Decoder(_Line)


def sniff(head: bytes) -> bool:
    """Tell whether any of the first whole lines is a Mooncake row.

    A `chat_id` marks a Bailian trace, whose timestamps are seconds.
    """
    for line in head.split(b"\n"):
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(row, dict) and {"timestamp", "input_length", "output_length"} <= row.keys():
            return isinstance(row.get("hash_ids"), list) and "chat_id" not in row
    return False


def check(path: Path, head: bytes) -> None:
    """Raise `BadInputError` when no line of the head can be a row: JSON objects are expected."""
    if not any(line.lstrip().startswith(b"{") for line in head.split(b"\n")):
        raise BadInputError(f"{path}: no JSON object in its first lines; expected {expected}")


def origin_us(path: Path) -> int | None:  # noqa: ARG001 - other formats have to look into the file
    """Return None: timestamps are relative."""
    return None


def batches(path: Path) -> Iterator[Batch]:
    """Yield the file's rows, classified."""
    for frame, cut_off in line_frames(path):
        parsed = pl.Series("parsed", [_parse(line) for line in frame["line"]], dtype=_PARSED)
        rows = frame.lazy().rename({"line_no": "row_id"}).with_columns(parsed.struct.unnest())
        yield Batch(classified(rows).collect(), cut_off)


def _parse(line: str | None) -> dict[str, Any]:
    if line is None:
        return {"reason": "not_utf8"}
    try:
        row = _DECODER.decode(line)
    except msgspec.DecodeError:
        return {"reason": "malformed_row" if line.strip() else "blank_line"}
    reason = _reason(row)
    if reason is not None:
        return {"reason": reason}
    return {
        "arrival_us": round(row.timestamp * US_PER_MS),
        "input_tokens": row.input_length,
        "output_tokens": row.output_length,
        "session_id": None if row.session_id is None else str(row.session_id),
        "prefix_blocks": row.hash_ids,
        "block_tokens": None if row.hash_ids is None else BLOCK_TOKENS,
    }


def _reason(row: _Line) -> str | None:
    if None in (row.timestamp, row.input_length, row.output_length):
        return "missing_field"
    if not _is_number(row.timestamp) or not math.isfinite(row.timestamp) or not 0 <= row.timestamp <= _MAX_MS:
        return "bad_timestamp"
    lengths = (row.input_length, row.output_length)
    if not all(_is_integer(length) and length <= MAX_TOKENS for length in lengths):
        return "bad_tokens"
    if min(lengths) < 0:
        return "negative_tokens"
    ids_known = row.hash_ids is None or _are_ids(row.hash_ids)
    session_known = row.session_id is None or isinstance(row.session_id, str) or _is_integer(row.session_id)
    return None if ids_known and session_known else "malformed_row"


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_integer(value) or isinstance(value, float)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(_is_integer(item) and -(2**63) <= item < 2**63 for item in value)
