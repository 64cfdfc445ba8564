"""RAGPulse: JSON lines whose `timestamp` is whole seconds, written as a string.

`hash_ids` is an object of lists, one per part of the prompt. Their ids are joined in the object's order; how many
tokens a part has is not recorded, so that the blocks have no size.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from traces.readers.base import Batch, Format, Options, relative
from traces.readers.head import Head
from traces.readers.json_rows import Parse, Row, json_batches
from traces.readers.sessions import Sessions
from traces.readers.values import BadRowError, blocks, required, text, time_us, tokens
from traces.units import US_PER_S


class _Line(msgspec.Struct):
    timestamp: Any = None
    input_length: Any = None
    output_length: Any = None
    hash_ids: Any = None
    session_id: Any = None


_DECODER: Final = msgspec.json.Decoder(_Line)


def _sniff(head: Head) -> bool:
    return any("timestamp" in row and isinstance(row.get("hash_ids"), dict) for row in head.objects)


def _batches(path: Path, _options: Options) -> Iterator[Batch]:
    return json_batches(path, _parser(), decoder=_DECODER)


def _parser() -> Parse:
    sessions = Sessions()

    def parse(line: _Line, row_id: int) -> Row:
        arrival_us = time_us(_seconds(required(line.timestamp)), US_PER_S)
        session = text(line.session_id)
        row = {
            "arrival_us": arrival_us,
            "input_tokens": tokens(required(line.input_length)),
            "output_tokens": tokens(required(line.output_length)),
            "session_id": session,
            "prefix_blocks": _joined(line.hash_ids),
        }
        return row | sessions.link(session, row_id, arrival_us)

    return parse


def _seconds(value: Any) -> float:
    if not isinstance(value, str) or len(value) > 20:
        raise BadRowError("bad_timestamp")
    try:
        return float(value)
    except ValueError:
        raise BadRowError("bad_timestamp") from None


def _joined(parts: Any) -> list[int] | None:
    if parts is None:
        return None
    if not isinstance(parts, dict):
        raise BadRowError("malformed_row")
    return [block for part in parts.values() for block in blocks(part) or []]


FORMAT: Final = Format(
    name="ragpulse",
    expected='JSON lines with "timestamp" (s, as a string), "input_length", "output_length" and an object "hash_ids"',
    time_text="whole seconds from the trace's start, no date",
    sniff=_sniff,
    batches=_batches,
    origin_us=relative,
)
