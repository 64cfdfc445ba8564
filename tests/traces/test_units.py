"""Durations and windows as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.errors import BadInputError
from traces.units import format_duration, parse_duration_us, parse_window_us

UNITS = {"us": 1, "µs": 1, "ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6}


@given(st.integers(0, 10**6), st.sampled_from(list(UNITS)))
def test_a_number_with_a_unit(number, unit):
    assert parse_duration_us(f"{number}{unit}") == parse_duration_us(f" {number} {unit} ") == number * UNITS[unit]


@given(st.lists(st.tuples(st.integers(0, 99), st.sampled_from(list(UNITS))), min_size=1, max_size=4))
def test_parts_add_up(parts):
    assert parse_duration_us("".join(f"{n}{u}" for n, u in parts)) == sum(n * UNITS[u] for n, u in parts)


@pytest.mark.parametrize(("text", "us"), [("0.1s", 100_000), ("2.5ms", 2_500), ("1.000001s", 1_000_001), ("0", 0)])
def test_decimals_are_exact(text, us):
    assert parse_duration_us(text) == us


@pytest.mark.parametrize("text", ["", "5", "s", "5x", "-5s", "5s!", "!5s", "5s 3", "1e3s", "1.s", "nan", "5S"])
def test_what_is_not_a_duration(text):
    with pytest.raises(BadInputError, match=re.escape(f'"{text}" is not a duration')):
        parse_duration_us(text)


@pytest.mark.parametrize(
    ("text", "window"),
    [("..", (0, None)), ("0s..180s", (0, 180_000_000)), (" 5m .. ", (300_000_000, None)), ("..1ms", (0, 1000))],
)
def test_windows(text, window):
    assert parse_window_us(text) == window


@pytest.mark.parametrize("text", ["", "5s", "5s-6s", "6s..5s", "5s..5s", "a..b", "5s..6s..7s"])
def test_what_is_not_a_window(text):
    with pytest.raises(BadInputError):
        parse_window_us(text)


@given(st.integers(0, 10**12))
def test_a_formatted_duration_reads_back_within_its_rounding(us):
    text = format_duration(us)
    back = parse_duration_us(text.replace(" min", "m").replace(" h", "h"))
    # Three digits, or whole seconds, or whole minutes from an hour on.
    slack = max(us * 0.005, 0) if us < 99_950_000 else 500_000 if us < 3_599_500_000 else 60_000_000
    assert abs(back - us) <= slack + 1e-9
    assert "e+" not in text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (999_700, "1 s"),
        (999.7, "1 ms"),
        (99_960_000, "1 min 40 s"),
        (3_599_600_000, "1 h 0 min"),
        (-90_000, "-90 ms"),
        (-3_700_000_000, "-1 h 1 min"),
    ],
)
def test_limits_between_units(us, text):
    assert format_duration(us) == text
