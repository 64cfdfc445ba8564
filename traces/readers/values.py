"""Single values of a row: times, token counts and texts, checked. A wrong one raises `BadRowError` with its reason."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from traces.readers.base import MAX_TOKENS, YEAR_10000_US

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NO_TIME: Final = 1e19
"""Beyond the nanoseconds of any time."""
_FRACTION: Final = re.compile(r"(\.\d{6})\d+")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


class BadRowError(Exception):
    """A row that is dropped; `reason` is one of `REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def tokens(value: Any) -> int | None:
    """Return a token count; None where it is not recorded.

    >>> tokens(7), tokens(7.0), tokens(None)
    (7, 7, None)
    """
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value > MAX_TOKENS:
        raise BadRowError("bad_tokens")
    if value < 0:
        raise BadRowError("negative_tokens")
    return value


def required(value: Any) -> Any:
    """Return a value that has to be there."""
    if value is None:
        raise BadRowError("missing_field")
    return value


def time_us(value: Any, unit_us: float) -> int:
    """Return a number of `unit_us` microseconds in microseconds, rounded to the nearest."""
    if not is_number(value) or not 0 <= value < _NO_TIME:
        raise BadRowError("bad_timestamp")
    us: int = round(value * unit_us)
    if us >= YEAR_10000_US:
        raise BadRowError("bad_timestamp")
    return us


def iso_us(value: Any) -> int:
    """Return the instant (µs since 1970) of an ISO text; UTC unless it states a zone; cut to microseconds.

    >>> iso_us("1970-01-01T00:00:01.5Z"), iso_us("1970-01-01 02:00:00.000001+02:00")
    (1500000, 1)
    """
    if not isinstance(value, str) or not _DATE.match(value):
        raise BadRowError("bad_timestamp")
    try:
        instant = datetime.fromisoformat(_FRACTION.sub(r"\1", value.strip()))
    except ValueError:
        raise BadRowError("bad_timestamp") from None
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    us = (aware - _EPOCH) // _MICROSECOND
    if us < 0:
        raise BadRowError("bad_timestamp")
    return us


def span_us(value: Any, unit_us: float) -> int | None:
    """Return a duration in microseconds; None where it is unknown or cannot be one."""
    if not is_number(value) or not 0 <= value < _NO_TIME or value * unit_us >= YEAR_10000_US:
        return None
    us: int = round(value * unit_us)
    return us


def text(value: Any) -> str | None:
    """Return an id or name as text; None where there is none. Anything but text and whole numbers is malformed.

    >>> text("a"), text(5), text("")
    ('a', '5', None)
    """
    if value is None or value == "":
        return None
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise BadRowError("malformed_row")


def blocks(value: Any) -> list[int] | None:
    """Return prefix block ids; None where there are none recorded."""
    if value is None:
        return None
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise BadRowError("malformed_row")
    if value and not -(2**63) <= min(value) <= max(value) < 2**63:
        raise BadRowError("malformed_row")
    return value


def count(value: Any) -> int | None:
    """Return a small whole number, such as a turn's place; None where it is none."""
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def status(value: Any) -> int | None:
    """Return an HTTP status; None where it is none."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        value = int(value)
    return value if type(value) is int and 100 <= value <= 999 else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object; an empty one where the value is something else."""
    return value if isinstance(value, dict) else {}


def first_of(row: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these keys' values that is not null."""
    for name in names:
        value = row.get(name)
        if value is not None:
            return value
    return None


def estimated_tokens(characters: int | None, chars_per_token: float | None) -> int | None:
    """Return a length in tokens at the stated characters per token; None unless both are known."""
    if characters is None or chars_per_token is None:
        return None
    return math.ceil(characters / chars_per_token)


def is_number(value: Any) -> bool:
    """Tell whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
