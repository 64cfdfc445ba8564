"""Collections of conversations: ShareGPT, LMSYS-Chat-1M and WildChat, as JSON (lines or an array) or Parquet.

Each answer is a request: its prompt is all that was said before it. WildChat dates its turns; the other two know no
time, and none is invented: state a rate, and the requests arrive as a Poisson process, in the file's order. Lengths are
texts, so that tokens are unknown unless characters per token are stated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import polars as pl

from traces.errors import BadInputError, first_line
from traces.readers.base import Batch, Format, Options
from traces.readers.content import characters
from traces.readers.head import PARQUET_MAGIC, Head
from traces.readers.json_rows import Parse, Row, exploded, json_batches, row_frame, row_of
from traces.readers.lines import read_head
from traces.readers.own import DAMAGE
from traces.readers.sessions import Sessions
from traces.readers.values import BadRowError, estimated_tokens, first_of, iso_us, text
from traces.units import US_PER_S

_ANSWERS: Final = {"gpt", "assistant", "chatgpt", "bing", "bard", "model"}
_HOLDERS: Final = ("conversations", "conversation")
_IDS: Final = ("id", "conversation_id", "conversation_hash")
_COLUMNS: Final = (*_HOLDERS, *_IDS, "model", "timestamp")


def _sniff(head: Head) -> bool:
    return any(set(_HOLDERS) & keys for keys in (set(head.parquet_columns), *head.keys))


def _check(path: Path, head: Head, _options: Options) -> None:
    if not _sniff(head):
        raise BadInputError(f"{path}: no conversations in its first rows; expected {FORMAT.expected}")


def _batches(path: Path, options: Options) -> Iterator[Batch]:
    parse = _parser(options)
    if read_head(path).startswith(PARQUET_MAGIC):
        return _parquet_batches(path, parse)
    return json_batches(path, parse, explode=_requests)


def _requests(conversation: Any) -> list[Any]:
    """Return a conversation's requests, with what `_parser` needs of each; none when nothing was answered."""
    if not isinstance(conversation, dict):
        raise BadRowError("malformed_row")
    turns = first_of(conversation, *_HOLDERS)
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise BadRowError("malformed_row")
    said, requests = 0, []
    asked: dict[str, Any] = {}
    for turn in turns:
        length = characters(first_of(turn, "value", "content")) or 0
        if str(first_of(turn, "from", "role")) in _ANSWERS:
            stamp = turn.get("timestamp") if asked.get("timestamp") is None else asked["timestamp"]
            requests.append({"said": said, "answered": length, "stamp": stamp})
            asked = {}
        else:
            asked = turn
        said += length
    whole = conversation.get("timestamp") if len(requests) == 1 else None
    known = {"session": first_of(conversation, *_IDS), "model": conversation.get("model")}
    return [
        {**request, **known, "stamp": whole if request["stamp"] is None else request["stamp"]} for request in requests
    ]


def _parser(options: Options) -> Parse:
    sessions = Sessions()
    draw, clock_s = Random(f"{options.seed or 0}/arrivals"), 0.0

    def arrival_us(stamp: Any) -> int:
        nonlocal clock_s
        if options.rate_per_s is not None:
            at_s = clock_s
            clock_s += -math.log1p(-draw.random()) / options.rate_per_s
            return round(at_s * US_PER_S)
        if stamp is None:
            raise BadRowError("no_time")
        return iso_us(stamp.isoformat() if isinstance(stamp, datetime) else stamp)

    def parse(request: Any, row_id: int) -> Row:
        session = text(request["session"])
        at_us = arrival_us(request["stamp"])
        row = {
            "arrival_us": at_us,
            "input_tokens": estimated_tokens(request["said"], options.chars_per_token),
            "output_tokens": estimated_tokens(request["answered"], options.chars_per_token),
            "model": text(request["model"]),
            "session_id": session,
        }
        return row | sessions.link(session, row_id, at_us)

    return parse


def _parquet_batches(path: Path, parse: Parse) -> Iterator[Batch]:
    scanned = pl.scan_parquet(path)
    have = [name for name in _COLUMNS if name in scanned.collect_schema()]
    first = 0
    try:
        for batch in scanned.select(have).collect_batches(maintain_order=True, engine="streaming"):
            rows: list[Row] = []
            for conversation in batch.iter_rows(named=True):
                requests = exploded(conversation, _requests)
                rows += [row_of(request, first + len(rows) + at, parse) for at, request in enumerate(requests)]
            yield Batch(row_frame(rows, first))
            first += len(rows)
    except DAMAGE as error:
        raise BadInputError(f"{path}: damaged Parquet data ({first_line(error)}); fetch it again") from error


def _time_text(options: Options) -> str:
    if options.rate_per_s is not None:
        return f"drawn as a Poisson process of {options.rate_per_s:g}/s, with seed {options.seed or 0}"
    return "the turns' own times, UTC unless a zone is stated"


def _origin_us(_path: Path, options: Options) -> int | None:
    return 0 if options.rate_per_s is None else None


FORMAT: Final = Format(
    name="conversations",
    expected='JSON or Parquet with "conversations" or "conversation" (ShareGPT, LMSYS-Chat-1M, WildChat)',
    time_text=_time_text,
    sniff=_sniff,
    check=_check,
    batches=_batches,
    origin_us=_origin_us,
    options=frozenset({"rate_per_s", "seed", "chars_per_token"}),
    unordered=True,
    notes=("lengths are texts, not tokens; state --chars-per-token to estimate them",),
)
