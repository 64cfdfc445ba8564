"""Mooncake traces, and AIPerf's extensions of them: JSON lines with `timestamp` in milliseconds from the start.

`hash_ids` are the prompt's prefix blocks of 512 tokens; they may be absent. The prompt is given by exactly one of
`input_length`, `text_input`, `messages` and `payload`; contents are never kept, and their lengths in tokens are unknown
unless characters per token are stated. A row with `delay` instead of a timestamp is sent that many milliseconds after
the session's turn before has ended: it is placed `delay` after that turn's arrival, the earliest it can be, and
`think_us` keeps the delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from traces.errors import BadInputError
from traces.readers.base import Batch, Format, Options, relative
from traces.readers.content import characters
from traces.readers.head import Head
from traces.readers.json_rows import Parse, Row, json_batches
from traces.readers.sessions import Sessions
from traces.readers.values import BadRowError, blocks, estimated_tokens, required, text, time_us, tokens
from traces.units import US_PER_MS

BLOCK_TOKENS: Final = 512
_MAX_MS: Final = 10**14
"""Later than the year 5000, had it been counted from 1970: not a time."""

_PROMPTS: Final = ("input_length", "text_input", "messages", "payload")
_LENGTHS: Final = {"timestamp", "input_length", "output_length"}


class _Line(msgspec.Struct):
    """The keys that matter. Types are checked afterwards, so that a wrong one names its reason."""

    timestamp: Any = None
    delay: Any = None
    input_length: Any = None
    output_length: Any = None
    text_input: Any = None
    messages: Any = None
    payload: Any = None
    hash_ids: Any = None
    session_id: Any = None
    model: Any = None


_DECODER: Final = msgspec.json.Decoder(_Line)


def sniff(head: Head) -> bool:
    """Tell whether rows look like Mooncake's: with `hash_ids` as a list, or one of the extensions.

    Bare lengths with whole timestamps may be Mooncake's milliseconds too; GuideLLM's are seconds, and look the same.
    """
    known = [row for row in head.objects if "chat_id" not in row and _is_row(row)]
    if any(isinstance(row.get("hash_ids"), list) or _is_extended(row) for row in known):
        return True
    bare = [row for row in known if row.keys() <= _LENGTHS]
    return bool(bare) and len(bare) == len(known) and all(isinstance(row["timestamp"], int) for row in bare)


def _is_row(row: dict[str, Any]) -> bool:
    timed = "timestamp" in row or ("delay" in row and "session_id" in row)
    return timed and not isinstance(row.get("hash_ids"), dict) and any(key in row for key in _PROMPTS)


def _is_extended(row: dict[str, Any]) -> bool:
    own_keys = {"delay", "text_input", "messages", "payload"} & row.keys()
    return bool(own_keys) and row.keys() <= set(_Line.__struct_fields__)


def _check(path: Path, head: Head, _options: Options) -> None:
    if not any(line.lstrip().startswith(b"{") for line in head.content.split(b"\n")):
        raise BadInputError(f"{path}: no JSON object in its first lines; expected {FORMAT.expected}")


def _batches(path: Path, options: Options) -> Iterator[Batch]:
    return json_batches(path, _parser(options), decoder=_DECODER)


def _parser(options: Options) -> Parse:
    sessions = Sessions()

    def parse(line: _Line, row_id: int) -> Row:
        session = text(line.session_id)
        arrival_us, think_us = _arrival(line, session, sessions)
        row = {
            "arrival_us": arrival_us,
            "think_us": think_us,
            "input_tokens": _input_tokens(line, options),
            "output_tokens": tokens(line.output_length),
            "model": text(line.model),
            "session_id": session,
            "prefix_blocks": blocks(line.hash_ids),
            "block_tokens": None if line.hash_ids is None else BLOCK_TOKENS,
        }
        return row | sessions.link(session, row_id, arrival_us)

    return parse


def _arrival(line: _Line, session: str | None, sessions: Sessions) -> tuple[int, int | None]:
    if line.delay is None:
        if line.timestamp is None:
            raise BadRowError("missing_field")
        if isinstance(line.timestamp, int | float) and line.timestamp > _MAX_MS:
            raise BadRowError("bad_timestamp")
        return time_us(line.timestamp, US_PER_MS), None
    think_us = time_us(line.delay, US_PER_MS)
    if line.timestamp is not None:
        return time_us(line.timestamp, US_PER_MS), think_us
    before = sessions.last(session)
    if before is None:
        raise BadRowError("no_time")
    return before.arrival_us + think_us, think_us


def _input_tokens(line: _Line, options: Options) -> int | None:
    given = [part for part in (line.text_input, line.messages, line.payload) if part is not None]
    if len(given) + (line.input_length is not None) > 1:
        raise BadRowError("conflicting_fields")
    if given:
        return estimated_tokens(characters(given[0]), options.chars_per_token)
    required(line.output_length)
    return tokens(required(line.input_length))


FORMAT: Final = Format(
    name="mooncake",
    expected='JSON lines with "timestamp" (ms), "input_length", "output_length" and "hash_ids"',
    time_text="milliseconds from the trace's start, no date",
    sniff=sniff,
    check=_check,
    batches=_batches,
    origin_us=relative,
    options=frozenset({"chars_per_token"}),
)
