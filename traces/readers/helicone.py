"""Helicone's export of requests, as JSON lines, an array, or CSV (bodies are optional, and never kept)."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from traces.readers.base import Batch, Format, Options
from traces.readers.head import Head
from traces.readers.json_rows import Row, json_batches, row_frame
from traces.readers.lines import blocks
from traces.readers.values import (
    BadRowError,
    first_of,
    iso_us,
    mapping,
    required,
    span_us,
    status,
    text,
    tokens,
)
from traces.units import US_PER_MS

_TIME: Final = "request_created_at"
_MODEL: Final = ("request_model", "model", "response_model")
_ROWS_PER_BATCH: Final = 20_000


def _sniff(head: Head) -> bool:
    return _TIME in head.columns or any(_TIME in row for row in head.objects)


def _batches(path: Path, _options: Options) -> Iterator[Batch]:
    first = next(blocks(path), None)
    is_csv = first is not None and _TIME in Head(path, first.data).columns
    return _csv_batches(path) if is_csv else json_batches(path, _parse)


def _parse(row: Any, _row_id: int) -> Row:
    if not isinstance(row, dict):
        raise BadRowError("malformed_row")
    http_status = status(first_of(row, "response_status", "status"))
    sent, got = tokens(_whole(row.get("prompt_tokens"))), tokens(_whole(row.get("completion_tokens")))
    refused = http_status is not None and http_status >= 400
    return {
        "arrival_us": iso_us(required(row.get(_TIME))),
        "input_tokens": None if refused and not sent else sent,
        "output_tokens": None if refused and not got else got,
        "model": text(first_of(row, *_MODEL)),
        "session_id": _session(row),
        "source_status": http_status,
        "source_latency_us": span_us(_number(first_of(row, "delay_ms", "latency")), US_PER_MS),
    }


def _session(row: dict[str, Any]) -> str | None:
    properties = mapping(first_of(row, "properties", "request_properties"))
    return text(first_of(properties, "Helicone-Session-Id", "helicone-session-id"))


def _number(value: Any) -> Any:
    """Return the number that a CSV field holds; other values as they are."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return None


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        number = _number(value)
        return value if number is None else number
    return value


def _csv_batches(path: Path) -> Iterator[Batch]:
    """Yield the rows of a CSV file, read row by row in Python: bodies hold quotes and line feeds."""
    lines = _Lines(path)
    rows = _csv_rows(lines)
    header = next(rows, [])
    first = 0
    while some := list(islice(rows, _ROWS_PER_BATCH)):
        raw = [",".join(fields).encode() for fields in some]
        yield Batch(row_frame([_csv_row(header, fields) for fields in some], first), lines.cut_off, raw)
        first += len(some)


def _csv_rows(lines: Iterator[str]) -> Iterator[list[str]]:
    reader = csv.reader(lines)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield [""]


class _Lines:
    """The lines of a file with their line feeds; `cut_off` once the file was found to end inside one."""

    def __init__(self, path: Path) -> None:
        self.cut_off = False
        self._lines = self._decoded(path)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._lines)

    def _decoded(self, path: Path) -> Iterator[str]:
        for block in blocks(path):
            self.cut_off = block.cut_off
            for line in block.lines():
                # What is not UTF-8 in a body does no harm; a time or a count that is not is refused as such.
                yield line.decode("utf-8", "replace") + "\n"


def _csv_row(header: list[str], fields: list[str]) -> Row:
    if not any(field.strip() for field in fields):
        return {"reason": "malformed_row" if fields else "blank_line"}
    if len(fields) != len(header):
        return {"reason": "malformed_row"}
    try:
        return _parse({name: value or None for name, value in zip(header, fields, strict=True)}, 0)
    except BadRowError as error:
        return {"reason": error.reason}


FORMAT: Final = Format(
    name="helicone",
    expected='JSON or CSV with "request_created_at", "prompt_tokens" and "completion_tokens"',
    time_text="request_created_at, UTC unless a zone is stated",
    sniff=_sniff,
    batches=_batches,
    unordered=True,
)
