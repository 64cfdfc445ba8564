"""GuideLLM's minimal trace: JSON lines with `timestamp` in seconds, `input_length` and `output_length`.

Timestamps may be relative or count from 1970; GuideLLM subtracts the first, and so does every trace here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from traces.errors import BadInputError
from traces.readers.base import Batch, Format, Options, relative
from traces.readers.head import Head, looks_like
from traces.readers.json_rows import Row, json_batches
from traces.readers.values import required, time_us, tokens
from traces.units import US_PER_S

_KEYS: Final = {"timestamp", "input_length", "output_length"}


class _Line(msgspec.Struct):
    timestamp: Any = None
    input_length: Any = None
    output_length: Any = None


_DECODER: Final = msgspec.json.Decoder(_Line)


def _sniff(head: Head) -> bool:
    return bool(head.objects) and all(row.keys() == _KEYS for row in head.objects)


def _batches(path: Path, _options: Options) -> Iterator[Batch]:
    return json_batches(path, _parse, decoder=_DECODER)


def _parse(line: _Line, _row_id: int) -> Row:
    return {
        "arrival_us": time_us(required(line.timestamp), US_PER_S),
        "input_tokens": tokens(required(line.input_length)),
        "output_tokens": tokens(required(line.output_length)),
    }


def _check(path: Path, head: Head, _options: Options) -> None:
    if not any(keys >= _KEYS for keys in head.keys):
        raise BadInputError(f"{path}: {looks_like(head.content)}; expected {FORMAT.expected}")


FORMAT: Final = Format(
    name="guidellm",
    expected='JSON lines with "timestamp" (s), "input_length" and "output_length", and no other key',
    time_text="seconds, relative to the first; no date",
    sniff=_sniff,
    check=_check,
    batches=_batches,
    origin_us=relative,
)
