"""Clocks: the map between client and endpoint time, exact and invertible."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest import mock

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from traces.clock import ClientClock, EndpointClock, to_datetime, to_us

NOW_US = 1_764_547_200_000_000
instants_us = st.integers(NOW_US, NOW_US + 86_400_000_000)
clocks = st.builds(
    EndpointClock,
    client_epoch_us=st.just(NOW_US),
    endpoint_epoch_us=st.integers(0, 2 * NOW_US),
    time_scale=st.sampled_from([0.5, 1.0, 3.0, 20.0, 60.0]) | st.floats(0.1, 1000),
)


@given(clocks, instants_us)
def test_the_inverse_is_exact_to_a_microsecond_on_the_coarser_clock(clock, client_us):
    back = clock.to_client_us(clock.to_endpoint_us(client_us))
    assert abs(back - client_us) <= max(1, 1 / clock.time_scale)


@given(clocks, instants_us)
def test_the_inverse_holds_from_the_endpoint_too(clock, us):
    endpoint_us = clock.to_endpoint_us(us)
    assert abs(clock.to_endpoint_us(clock.to_client_us(endpoint_us)) - endpoint_us) <= max(1, clock.time_scale)


@given(clocks, st.lists(instants_us | st.none(), min_size=1, max_size=9))
def test_a_column_is_mapped_like_a_value(clock, column):
    frame = pl.DataFrame({"at": column}, schema={"at": pl.Datetime("us", "UTC")})
    mapped = frame.select(clock.endpoint_expr("at"))
    assert mapped.schema == frame.schema
    expected = [None if us is None else clock.to_endpoint_us(us) for us in column]
    assert mapped["at"].dt.epoch("us").to_list() == expected


@given(clocks, instants_us, st.integers(0, 10**9))
def test_time_scale_stretches_lengths(clock, start_us, length_us):
    mapped = clock.to_endpoint_us(start_us + length_us) - clock.to_endpoint_us(start_us)
    assert abs(mapped - length_us * clock.time_scale) <= 1.01


@given(st.integers(0, 4_102_444_800_000_000))
def test_the_default_is_the_identity(us):
    assert EndpointClock().to_endpoint_us(us) == EndpointClock().to_client_us(us) == us


@given(st.integers(-(10**16), 10**17))
def test_datetimes_are_exact(us):
    assert to_us(to_datetime(us)) == us


def test_a_datetime_in_another_zone_is_the_same_instant():
    assert to_us(datetime.fromisoformat("2024-05-10T02:00:00.000001+02:00")) == to_us(
        datetime(2024, 5, 10, 0, 0, 0, 1, tzinfo=UTC)
    )


def test_the_client_clock_does_not_follow_steps_of_the_wall_clock():
    with (
        mock.patch("time.time_ns", side_effect=[5_000_000_000, 1_000_000_000]),
        mock.patch("time.monotonic_ns", side_effect=[700_000, 1_700_000]),
    ):
        clock = ClientClock()
        assert clock.now_us() == 5_000_000 + 1000


@given(st.integers(0, 10**12))
def test_monotonic_readings_and_instants_convert_back(us):
    clock = ClientClock()
    instant = clock.now_us() + us
    assert abs(clock.us_of_monotonic(clock.monotonic_s_of(instant)) - instant) <= 1
