"""What each transform does to the index of dispersion, before and after, as docs/traces-shaping.md states it."""

from __future__ import annotations

import polars as pl
import pytest

from traces import superpose, transform
from traces.dispersion import BinCounts, idc, idc_by_window, idc_of
from traces.superpose import facts_of
from traces.synth import Lengths, Step, synthesise
from traces.units import US_PER_S

S = US_PER_S
FLAT = Lengths(median=8)
POISSON = synthesise([Step(length_s=4000, rate_per_s=10)], FLAT, FLAT, seed=1)
# Two minutes quiet, two minutes eight times as busy: bursts far longer than any jitter used here.
BURSTY = synthesise([Step(length_s=120, rate_per_s=rate) for _ in range(25) for rate in (2, 16)], FLAT, FLAT, seed=2)


def dispersion(frame: pl.LazyFrame | pl.DataFrame, window_s: float) -> float:
    found = idc_of(frame.lazy().collect()["arrival_us"], round(window_s * S))
    assert found is not None
    return found


def test_the_index_is_variance_over_mean_of_whole_windows():
    bins = BinCounts()
    bins.add(pl.Series([0, 1, 150_000, 2_000_000 - 1]))
    assert bins.table().rows() == [(0, 2), (1, 1), (19, 1)]
    counts = [2, 1, *[0] * 17, 1]
    mean = sum(counts) / 20
    assert idc_by_window(bins, 2_000_000)[100_000] == pytest.approx(sum((c - mean) ** 2 for c in counts) / 19 / mean)
    assert idc_by_window(bins, 2_000_000)[S] is None  # two windows tell nothing
    assert idc([], 50) is None


def test_poisson_arrivals_have_one_and_bursts_more():
    assert dispersion(POISSON, 1) == pytest.approx(1, abs=0.1)
    assert dispersion(POISSON, 10) == pytest.approx(1, abs=0.25)
    assert dispersion(BURSTY, 10) > 40


@pytest.mark.parametrize("window_s", [1, 10])
def test_thinning_moves_it_towards_one(window_s):
    share = 0.4
    before = dispersion(BURSTY, window_s)
    after = dispersion(superpose.thin(BURSTY.lazy(), share, 5, facts_of(BURSTY.lazy())), window_s)
    assert after == pytest.approx(1 + share * (before - 1), rel=0.06)


def test_time_scale_moves_it_to_another_window():
    faster = transform.time_scale(BURSTY.lazy(), 4)
    assert dispersion(faster, 2.5) == pytest.approx(dispersion(BURSTY, 10), rel=0.01)


def test_superposition_is_calm_below_the_jitter_and_multiplies_above():
    factor, facts = 3, facts_of(BURSTY.lazy())
    made = superpose.superpose(BURSTY.lazy(), factor, 10 * S, 7, facts).collect()
    assert made.height == factor * BURSTY.height
    assert dispersion(made, 60) == pytest.approx(factor * dispersion(BURSTY, 60), rel=0.1)
    before = dispersion(POISSON, 0.1)
    calm = superpose.superpose(POISSON.lazy(), factor, 10 * S, 7, facts_of(POISSON.lazy()))
    assert dispersion(calm, 0.1) == pytest.approx(1 + (before - 1) / factor, abs=0.05)


def test_copies_at_the_same_instants_would_multiply_it_everywhere():
    """What superposition with jitter is there to avoid."""
    cloned = pl.concat([POISSON] * 3).sort("arrival_us")
    assert dispersion(cloned, 0.1) == pytest.approx(3 * dispersion(POISSON, 0.1), rel=1e-6)
    jittered = superpose.superpose(POISSON.lazy(), 3, 10 * S, 7, facts_of(POISSON.lazy()))
    assert dispersion(jittered, 0.1) < 1.1


def test_jitter_of_ties_dissolves_the_grid_and_leaves_longer_windows():
    grid = BURSTY.with_columns(pl.col("arrival_us") // (3 * S) * (3 * S))
    spread = transform.jitter_ties(grid.lazy(), 3).collect()
    assert dispersion(grid, 0.1) > 3 * dispersion(BURSTY, 0.1)
    assert dispersion(spread, 0.1) == pytest.approx(dispersion(BURSTY, 0.1), rel=0.15)
    # A row stays within its grid interval, so windows of whole intervals hold what they held.
    assert dispersion(spread, 30) == pytest.approx(dispersion(grid, 30), rel=1e-9)


def test_a_loop_keeps_it_within_a_round():
    facts = facts_of(BURSTY.lazy())
    looped = superpose.loop(BURSTY.lazy(), 3, facts).collect()
    assert looped.height == 3 * BURSTY.height
    assert dispersion(looped, 10) == pytest.approx(dispersion(BURSTY, 10), rel=0.02)


def test_a_merge_has_the_mean_weighted_by_rate():
    length_us = int(POISSON["arrival_us"][-1])
    other = transform.window(BURSTY.lazy(), 0, length_us).collect()
    merged = superpose.merge(POISSON.lazy(), other.lazy(), facts_of(POISSON.lazy()))
    expected = (POISSON.height * dispersion(POISSON, 10) + other.height * dispersion(other, 10)) / (
        POISSON.height + other.height
    )
    assert dispersion(merged, 10) == pytest.approx(expected, rel=0.1)


def test_lengths_and_models_leave_arrivals_alone():
    clamped = transform.clamp_tokens(BURSTY.lazy(), (4, 6), (None, 2)).collect()
    assert clamped["arrival_us"].equals(BURSTY["arrival_us"])
    assert set(clamped["input_tokens"]) == {6}
    assert set(clamped["output_tokens"]) == {2}
