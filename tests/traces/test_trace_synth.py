"""Synthesis: seeded, and of the stated rate and lengths."""

from __future__ import annotations

import itertools
import math
import statistics

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.errors import BadInputError
from traces.schema import Trace
from traces.synth import Lengths, Step, poisson_arrivals_us, synthesise, token_counts

SHORT = Lengths(median=10, sigma=0.5, low=2, high=40)


def test_the_same_seed_gives_the_same_frame_and_another_seed_another():
    steps = [Step(length_s=5, rate_per_s=10)]
    made = synthesise(steps, SHORT, SHORT, seed=4)
    assert made.equals(synthesise(steps, SHORT, SHORT, seed=4))
    assert not made.equals(synthesise(steps, SHORT, SHORT, seed=5))
    assert made.schema == pl.Schema(Trace)
    Trace.validate(made)


def test_changing_lengths_leaves_arrivals_as_they_were():
    steps = [Step(length_s=5, rate_per_s=10)]
    one, other = (synthesise(steps, lengths, SHORT, seed=4) for lengths in (SHORT, Lengths(median=3)))
    assert one["arrival_us"].equals(other["arrival_us"])
    assert one["output_tokens"].equals(other["output_tokens"])


@given(st.integers(0, 2**32))
def test_rates_hold_in_each_step_and_silence_stays_silent(seed):
    steps = [Step(length_s=10, rate_per_s=60), Step(length_s=5, rate_per_s=0), Step(length_s=10, rate_per_s=20)]
    arrivals = poisson_arrivals_us(steps, seed)
    assert arrivals == sorted(arrivals)
    assert arrivals[0] == 0
    counts = [sum(a <= us / 1e6 < b for us in arrivals) for a, b in ((0, 10), (10, 15), (15, 25))]
    # Six standard deviations: a seed in a billion fails.
    assert abs(counts[0] - 601) < 6 * math.sqrt(600)
    assert counts[1] == 0
    assert abs(counts[2] - 200) < 6 * math.sqrt(200)
    assert arrivals[-1] <= 25_000_000


def test_arrivals_are_poisson():
    arrivals = poisson_arrivals_us([Step(length_s=1000, rate_per_s=20)], seed=9)
    gaps = [b - a for a, b in itertools.pairwise(arrivals)]
    assert statistics.mean(gaps) == pytest.approx(50_000, rel=0.03)
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(1, abs=0.03)
    # The share of gaps beyond the mean is 1/e.
    assert sum(gap > 50_000 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.02)


def test_lengths_have_their_median_and_bounds():
    counts = token_counts(Lengths(median=400, sigma=0.7, low=16, high=4000), 20_000, 1, "input")
    assert statistics.median(counts) == pytest.approx(400, rel=0.03)
    assert statistics.stdev([math.log(count) for count in counts]) == pytest.approx(0.7, abs=0.02)
    assert 16 <= min(counts) <= max(counts) <= 4000
    assert set(token_counts(Lengths(median=20), 10, 1, "output")) == {20}


@pytest.mark.parametrize("step", [Step(length_s=0, rate_per_s=1), Step(length_s=1, rate_per_s=-1)])
def test_impossible_steps_are_refused(step):
    with pytest.raises(BadInputError, match="steps need"):
        poisson_arrivals_us([step], 1)
