"""Pure transforms and figures of a trace frame."""

from __future__ import annotations

import itertools
import statistics

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.describe import describe
from traces.readers import open_trace
from traces.transform import no_rows_message, window

arrivals_us = st.lists(st.integers(0, 10**8), min_size=1, max_size=30).map(sorted)


def frame_of(arrivals: list[int]) -> pl.LazyFrame:
    rows = len(arrivals)
    columns = {"row_id": range(rows), "arrival_us": arrivals, "input_tokens": [1] * rows, "output_tokens": [2] * rows}
    return pl.LazyFrame(columns)


@given(arrivals_us, st.integers(0, 10**8), st.integers(1, 10**8))
def test_a_window_is_half_open_and_re_based(arrivals, start, length):
    cut = window(frame_of(arrivals), start, start + length).collect()
    expected = [(i, us - start) for i, us in enumerate(arrivals) if start <= us < start + length]
    assert cut.select("row_id", "arrival_us").rows() == expected


@given(arrivals_us, st.integers(0, 10**8))
def test_two_windows_that_meet_hold_the_whole(arrivals, middle):
    frame = frame_of(arrivals)
    before, after = window(frame, 0, middle).collect(), window(frame, middle).collect()
    joined = [*before["arrival_us"], *(after["arrival_us"] + middle)]
    assert joined == arrivals


def test_the_message_for_an_empty_window_names_the_extent():
    message = no_rows_message("t.csv", 60_000_000, 90_000_000, 9_000_000, 12)
    expected = "t.csv: no arrival in the window 60 s..90 s; its 12 rows arrive from 0 s to 9 s, choose a window inside"
    assert message == expected


@given(st.lists(st.integers(0, 10**8), min_size=3, max_size=30, unique=True).map(sorted))
def test_figures_agree_with_the_standard_library(arrivals):
    described = describe(frame_of(arrivals))
    gaps = [b - a for a, b in itertools.pairwise(arrivals)]
    assert described.rows == len(arrivals)
    assert described.mean_rate_per_s == pytest.approx(1e6 / statistics.mean(gaps))
    assert described.interarrival_cv == pytest.approx(statistics.stdev(gaps) / statistics.mean(gaps))
    for peak, bin_us in ((described.peak_rate_1s_per_s, 10**6), (described.peak_rate_10s_per_s, 10**7)):
        bins = [us // bin_us for us in arrivals]
        assert peak == pytest.approx(max(bins.count(b) for b in bins) * 1e6 / bin_us)


def test_figures_of_one_row_are_unknown_not_zero():
    described = describe(frame_of([0]))
    assert (described.mean_rate_per_s, described.interarrival_cv, described.peak_rate_1s_per_s) == (None, None, 1.0)


def test_the_public_code_trace_is_as_bursty_as_published(shared_traces):
    described = describe(open_trace(str(shared_traces / "AzureLLMInferenceTrace_code.csv")).scan())
    assert described.interarrival_cv == pytest.approx(13.2, abs=0.05)
    assert (described.output_tokens["min"], described.input_tokens["max"]) == (6, 7437)
