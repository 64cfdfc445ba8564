"""Bailian (Qwen) traces: JSON lines with `timestamp` in seconds, and conversations by `chat_id`, `parent_chat_id`.

Prefix blocks hold 16 tokens. `parent_chat_id` is -1 at a conversation's root; a parent may lie before the trace's
window, then its id stands for the conversation and the row says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from traces.readers.base import Batch, Format, Options, relative
from traces.readers.head import Head
from traces.readers.json_rows import Parse, Row, json_batches
from traces.readers.values import BadRowError, blocks, count, required, time_us, tokens
from traces.units import US_PER_S

BLOCK_TOKENS: Final = 16
_ROOT: Final = -1


class _Line(msgspec.Struct):
    chat_id: Any = None
    parent_chat_id: Any = None
    timestamp: Any = None
    input_length: Any = None
    output_length: Any = None
    turn: Any = None
    hash_ids: Any = None


_DECODER: Final = msgspec.json.Decoder(_Line)


def _sniff(head: Head) -> bool:
    return any({"chat_id", "parent_chat_id", "timestamp", "input_length"} <= keys for keys in head.keys)


def _batches(path: Path, _options: Options) -> Iterator[Batch]:
    return json_batches(path, _parser(), decoder=_DECODER)


def _parser() -> Parse:
    # Row and conversation of each chat: grows with the file, by about 200 bytes a row.
    seen: dict[int, tuple[int, str]] = {}

    def parse(line: _Line, row_id: int) -> Row:
        chat, parent = _chat_id(line.chat_id), _chat_id(line.parent_chat_id)
        has_parent = parent is not None and parent != _ROOT
        parent_row, session = seen.get(parent, (None, str(parent))) if has_parent else (None, str(chat))  # type: ignore[arg-type]
        row = {
            "arrival_us": time_us(required(line.timestamp), US_PER_S),
            "input_tokens": tokens(required(line.input_length)),
            "output_tokens": tokens(required(line.output_length)),
            "session_id": session if chat is not None or has_parent else None,
            "turn": count(line.turn),
            "parent_row": parent_row,
            "prefix_blocks": blocks(line.hash_ids),
            "block_tokens": None if line.hash_ids is None else BLOCK_TOKENS,
            "remark": "missing_parent" if has_parent and parent_row is None else None,
        }
        if chat is not None:
            seen[chat] = (row_id, session)
        return row

    return parse


def _chat_id(value: Any) -> int | None:
    if value is None or type(value) is int:
        return value
    raise BadRowError("malformed_row")


FORMAT: Final = Format(
    name="bailian",
    expected='JSON lines with "chat_id", "parent_chat_id", "timestamp" (s), "input_length" and "output_length"',
    time_text="seconds from the trace's start, no date",
    sniff=_sniff,
    batches=_batches,
    origin_us=relative,
)
