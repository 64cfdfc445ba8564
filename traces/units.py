"""Durations and windows as people write them, in integer microseconds."""

from __future__ import annotations

import re
from decimal import Decimal

from traces.errors import BadInputError

US_PER_S = 1_000_000
US_PER_MS = 1_000

_UNIT_US = {
    "us": 1,
    "µs": 1,
    "ms": 1_000,
    "s": US_PER_S,
    "m": 60 * US_PER_S,
    "h": 3600 * US_PER_S,
    "d": 86_400 * US_PER_S,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|µs|ms|s|m|h|d)")


def parse_duration_us(text: str) -> int:
    """Return the duration that `text` states, in microseconds.

    A number with a unit (`us`, `ms`, `s`, `m`, `h`, `d`), or several in a row; a bare `0` needs no unit.

    >>> parse_duration_us("180s"), parse_duration_us("1h30m"), parse_duration_us("2.5ms"), parse_duration_us("0")
    (180000000, 5400000000, 2500, 0)
    """
    compact = text.strip().replace(" ", "")
    if compact == "0":
        return 0
    total, end = Decimal(0), 0
    for part in _PART.finditer(compact):
        if part.start() != end:
            break
        total += Decimal(part[1]) * _UNIT_US[part[2]]
        end = part.end()
    if not compact or end != len(compact):
        raise BadInputError(f'"{text}" is not a duration: expected a number with a unit, such as 180s, 250ms or 1h30m')
    return int(total)


def parse_window_us(text: str) -> tuple[int, int | None]:
    """Return the half-open window `[start, end)` that `text` states, in microseconds from the trace's start.

    Either side may be left out: `60s..` is everything from the first minute on (its end is `None`).

    >>> parse_window_us("0s..180s"), parse_window_us("1m.."), parse_window_us("..30s")
    ((0, 180000000), (60000000, None), (0, 30000000))
    """
    left, dots, right = text.partition("..")
    if not dots:
        raise BadInputError(f'"{text}" is not a window: expected START..END, such as 0s..180s or 5m..')
    start = parse_duration_us(left) if left.strip() else 0
    end = parse_duration_us(right) if right.strip() else None
    if end is not None and end <= start:
        raise BadInputError(f'window "{text}" is empty: its end must lie after its start')
    return start, end


def format_duration(us: float) -> str:
    """Return a duration for a person to read.

    >>> format_duration(350), format_duration(2_500), format_duration(8_250_000), format_duration(525_000_000)
    ('350 µs', '2.5 ms', '8.25 s', '8 min 45 s')
    """
    if abs(us) < 999.5:
        return f"{us:.0f} µs"
    # Limits lie where rounding to three digits would carry over into the next unit.
    if abs(us) < 999.5 * US_PER_MS:
        return f"{us / US_PER_MS:.3g} ms"
    seconds = us / US_PER_S
    if abs(seconds) < 99.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(abs(seconds)), 60)
    sign = "-" if us < 0 else ""
    if minutes < 60:
        return f"{sign}{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours} h {minutes} min"
