"""Logs of gateways that speak OpenAI's protocol: JSON lines with a time, usage and status of each request.

Numbers without a unit are no times: seconds, milliseconds and so on have to be declared, and a log that mixes them has
to be declared as mixed; then a number's size tells its unit. ISO times speak for themselves. A request id seen before
is a retry; retries and refused requests (429) are offered load. Which of the last million ids was seen is remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from traces.errors import BadInputError
from traces.readers.base import Batch, Format, Options
from traces.readers.head import Head
from traces.readers.json_rows import Parse, Row, json_batches
from traces.readers.values import (
    BadRowError,
    first_of,
    is_number,
    iso_us,
    mapping,
    required,
    span_us,
    status,
    text,
    time_us,
    tokens,
)
from traces.units import US_PER_MS, US_PER_S

TIME_UNITS: Final = ("s", "ms", "us", "ns", "iso", "mixed")
_UNIT_US: Final = {"s": US_PER_S, "ms": US_PER_MS, "us": 1, "ns": 1e-3}
_LARGEST: Final = {"s": 1e11, "ms": 1e14, "us": 1e17, "ns": 1e20}
"""Below which size a mixed log's number is in this unit: the year 5138 in each."""

_TIME_KEYS: Final = ("ts", "timestamp", "time", "created_at", "created", "startTime")
_USAGE_KEYS: Final = {"prompt_tokens", "completion_tokens"}
_REMEMBERED: Final = 1_000_000


def _sniff(head: Head) -> bool:
    return any(_is_row(row) for row in head.objects)


def _is_row(row: dict[str, Any]) -> bool:
    timed = any(key in row for key in _TIME_KEYS) and "request_created_at" not in row
    usage = row.keys() & _USAGE_KEYS or mapping(row.get("usage")).keys() & _USAGE_KEYS
    return bool(timed and usage)


def _check(path: Path, head: Head, options: Options) -> None:
    rows = [row for row in head.objects if any(key in row for key in _TIME_KEYS)]
    if not rows:
        raise BadInputError(f"{path}: no JSON object with a time in its first lines; expected {FORMAT.expected}")
    if options.time_unit is None:
        kinds = {_kind(first_of(row, *_TIME_KEYS)) for row in rows}
        if "number" in kinds:
            raise BadInputError(_undeclared(path, mixed=len(kinds) > 1))


def _kind(stamp: Any) -> str:
    return "number" if is_number(stamp) else "text"


def _undeclared(path: Path, *, mixed: bool) -> str:
    found = "times are partly numbers, partly text" if mixed else "times are numbers without a unit"
    return f"{path}: {found}; declare the unit with --time-unit {'|'.join(TIME_UNITS)} (mixed: by each number's size)"


def _batches(path: Path, options: Options) -> Iterator[Batch]:
    return json_batches(path, _parser(path, options.time_unit))


class _Recent:
    """The ids seen lately, up to a number of them."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._order: deque[str] = deque()

    def repeats(self, word: str | None) -> bool:
        if word is None:
            return False
        if word in self._known:
            return True
        self._known.add(word)
        self._order.append(word)
        if len(self._order) > _REMEMBERED:
            self._known.discard(self._order.popleft())
        return False


def _parser(path: Path, unit: str | None) -> Parse:
    recent = _Recent()

    def parse(row: Any, _row_id: int) -> Row:
        if not isinstance(row, dict):
            raise BadRowError("malformed_row")
        stamp = required(first_of(row, *_TIME_KEYS))
        if unit is None and is_number(stamp):
            raise BadInputError(_undeclared(path, mixed=False))
        arrival_us = _instant_us(stamp, unit)
        http_status = status(first_of(row, "status", "status_code", "response_status"))
        sent, got = _usage(row)
        refused = http_status is not None and http_status >= 400
        return {
            "arrival_us": arrival_us,
            # A refused request's usage is 0 because nothing was counted.
            "input_tokens": None if refused and not sent else sent,
            "output_tokens": None if refused and not got else got,
            "model": text(row.get("model")),
            "session_id": text(first_of(row, "session_id", "conversation_id")),
            "source_status": http_status,
            "source_latency_us": _latency_us(row),
            "remark": "retry" if recent.repeats(text(first_of(row, "request_id", "id"))) else None,
        }

    return parse


def _instant_us(stamp: Any, unit: str | None) -> int:
    if not is_number(stamp):
        return iso_us(stamp)
    if unit == "mixed":
        unit = next((name for name, largest in _LARGEST.items() if stamp < largest), None)
    if unit not in _UNIT_US:
        raise BadRowError("bad_timestamp")
    return time_us(stamp, _UNIT_US[unit])


def _usage(row: dict[str, Any]) -> tuple[int | None, int | None]:
    nested = mapping(row.get("usage"))
    sent = first_of(row, "prompt_tokens", "input_tokens")
    got = first_of(row, "completion_tokens", "output_tokens")
    return (
        tokens(first_of(nested, "prompt_tokens", "input_tokens") if sent is None else sent),
        tokens(first_of(nested, "completion_tokens", "output_tokens") if got is None else got),
    )


def _latency_us(row: dict[str, Any]) -> int | None:
    milliseconds = first_of(row, "latency_ms", "duration_ms", "response_time_ms")
    return span_us(milliseconds, US_PER_MS)


def _time_text(options: Options) -> str:
    if options.time_unit in _UNIT_US:
        return f"numbers as {options.time_unit} since 1970, texts as ISO times (UTC unless a zone is stated)"
    if options.time_unit == "mixed":
        return "numbers since 1970 in the unit that their size tells, texts as ISO times (UTC unless a zone is stated)"
    return "ISO times, UTC unless a zone is stated"


FORMAT: Final = Format(
    name="gateway",
    expected='JSON lines with "ts" (or "timestamp", "time", "created"), "prompt_tokens" and "completion_tokens"',
    time_text=_time_text,
    sniff=_sniff,
    check=_check,
    batches=_batches,
    options=frozenset({"time_unit"}),
    unordered=True,
)
