"""Onset of demand and ready capacity."""

from __future__ import annotations

import random

import polars as pl
import pytest

from analysis.capacity import calibrate, marginal, units_needed
from analysis.demand import load_per_bin
from analysis.onset import change_point, cusum, cusum_detection, find_onset

S = 1_000_000


def arrivals(seed, before, after, change_s, end_s):
    rng, t, found = random.Random(seed), 0.0, []
    while t < end_s:
        t += rng.expovariate(before if t < change_s else after)
        found.append(round(t * S))
    return pl.Series(found[:-1])


def test_cs1_cusum():
    levels = cusum([9, 11, 10, 12, 38, 41], 10, 40, 1)
    assert [round(x, 2) for x in levels] == [0, 0, 0, 0, 22.68, 49.52]
    # The vector counts bins from 1: detected at k = 5, onset after k = 4.
    assert cusum_detection(levels, 20) == (4, 3)
    assert cusum_detection(levels, 60) is None


def test_change_point_finds_a_step_and_its_interval_covers_it_about_as_often_as_it_says():
    held = 0
    for seed in range(60):
        onset = change_point(arrivals(seed, 1, 6, 100, 160), 0, 160 * S)
        assert onset is not None
        assert abs(onset.at_us - 100 * S) < 8 * S
        assert onset.lo_us <= onset.at_us <= onset.hi_us
        held += onset.lo_us <= 100 * S <= onset.hi_us
    assert held >= 54


@pytest.mark.parametrize("seed", range(5))
def test_constant_load_has_no_change_point(seed):
    due = arrivals(seed, 5, 5, 0, 200)
    assert change_point(due, 0, 200 * S) is None
    assert find_onset(due, None, 200 * S, None).how == "load-start"
    assert find_onset(due, 50 * S, 200 * S, None) is None


def test_falling_load_is_no_onset():
    assert change_point(arrivals(1, 20, 2, 100, 200), 0, 200 * S) is None


@pytest.mark.parametrize("seed", range(40))
def test_a_rise_too_small_to_be_evident_is_within_the_interval(seed):
    """In sparse traffic chance can hide a step; the start of the load is then a guess, and its interval says so."""
    due = arrivals(seed, 0.2, 0.45, 60, 110)
    onset = find_onset(due, None, 110 * S, 85 * S)
    if onset.how == "load-start":
        assert onset.lo_us <= 60 * S <= onset.hi_us <= 85 * S


@pytest.mark.parametrize("seed", range(10))
def test_dense_load_that_is_high_from_the_start_has_a_short_interval(seed):
    onset = find_onset(arrivals(seed, 8, 8, 0, 120), None, 120 * S, 100 * S)
    assert onset.how == "load-start"
    assert onset.hi_us - onset.lo_us < 30 * S


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("begin_s", [None, 50])
def test_a_burst_before_a_lull_does_not_hide_the_rise_after_it(seed, begin_s):
    lull = arrivals(seed, 4, 0.3, 300, 600)
    burst = arrivals(100 + seed, 4, 4, 0, 40) + 600 * S
    begin = None if begin_s is None else begin_s * S
    onset = find_onset(pl.concat([lull, burst]), begin, 640 * S, None)
    assert onset is not None
    assert onset.how == "change-point"
    assert abs(onset.at_us - 600 * S) < 8 * S
    assert onset.lo_us <= 600 * S + 2 * S
    assert onset.rate_before < 1 < onset.rate_after


def test_offered_load_has_no_gaps_and_keeps_every_request():
    frame = pl.LazyFrame(
        {"due_us": [0, 1, 5 * S], "tokens": [10, None, 20]}, schema={"due_us": pl.Int64, "tokens": pl.Int64}
    )
    done = pl.Series([2 * S + 1, None, 5 * S + 2]).cast(pl.Datetime("us", "UTC"))
    load = load_per_bin(frame, pl.LazyFrame({"done": done}), S)
    assert load["in_flight"].to_list() == [2, 2, 1, 1, 1, 1]
    assert load["start_us"].to_list() == [i * S for i in range(6)]
    assert load["requests_per_s"].sum() == 3
    assert load["tokens_per_s"].to_list() == [10, 0, 0, 0, 0, 20]


def test_tc3_the_second_of_three_completes_the_capacity():
    assert marginal([200, 240, 300], 2) == 1
    assert marginal([200], 2) is None


def test_units_needed_of_the_design_example():
    assert units_needed(40, 6) == 7
    assert units_needed(36, 6) == 6


def test_calibration_needs_saturation():
    done = pl.Series([i * S // 5 for i in range(500)]).cast(pl.Datetime("us", "UTC"))
    frame = pl.DataFrame(
        {"done": done, "outcome": ["ok"] * 500, "output_tokens": [100] * 500, "planned_output_tokens": [100] * 500}
    )
    rate = calibrate(frame, 0, 100 * S, 1, offered_per_s=20)
    assert rate.requests_per_s == pytest.approx(5, rel=0.02)
    assert rate.tokens_per_s == pytest.approx(500, rel=0.02)
    assert calibrate(frame, 0, 100 * S, 2, offered_per_s=20).requests_per_s == pytest.approx(2.5, rel=0.02)
    assert calibrate(frame, 0, 100 * S, 1, offered_per_s=5) is None
