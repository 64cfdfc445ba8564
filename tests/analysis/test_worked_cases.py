"""The worked cases of the method, as docs/attribution.md has them; paths and bounds have a file of their own."""

from __future__ import annotations

import doctest
import importlib
import math
import pkgutil
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import analysis
from analysis import effects, power
from analysis.cache import label, least_cold_pull_us, signature
from analysis.counterfactual import Split, telescope
from analysis.deficit import fluid
from analysis.detection import window_part
from analysis.flows import Flow, fair_rates, finish_times, fit_shared, refutes_line_rate
from analysis.network import Network
from analysis.sampling import drawn
from analysis.shapley import shapley

S = 1_000_000
PULL, TOGETHER, ALONE = 333.0, 168.0, 77.0


def group_gain(pull_alone, detection=0.0):
    """Time saved by eliminating the pull (E), relieving its contention (R), quicker detection (D)."""

    def length(chosen):
        both = {"E", "R"} <= chosen
        if both:
            return ALONE
        if "E" in chosen:
            return TOGETHER
        return max(pull_alone, ALONE) if "R" in chosen else PULL

    return lambda chosen: PULL - length(chosen) + (detection if "D" in chosen else 0.0)


def test_ts1_telescoping_sums_to_the_change():
    found = telescope(group_before=333, download_before=168, download_after=77, rest_before=192, rest_after=181)
    assert found == Split(structural=165, relief=91, rest=11)


@pytest.mark.parametrize(
    ("alone", "elimination", "relief"),
    [(333, 210.5, 45.5), (256, 172, 84), (165, 126.5, 129.5)],
    ids=["SH1", "SH2", "-"],
)
def test_shapley_of_the_reference_case(alone, elimination, relief):
    found = shapley(["E", "R"], group_gain(alone))
    assert (found["E"].value, found["R"].value) == (elimination, relief)
    assert found["E"].lo <= elimination <= found["E"].hi


def test_sh3_serial_detection_does_not_interact():
    found = shapley(["D", "E", "R"], group_gain(333, detection=150.0))
    assert [round(found[p].value, 9) for p in "DER"] == [150, 210.5, 45.5]
    assert found["D"].lo == found["D"].hi == 150
    assert sum(share.value for share in found.values()) == pytest.approx(406)


@given(st.lists(st.floats(-100, 100), min_size=8, max_size=8))
def test_shapley_is_efficient_and_gives_dummies_nothing(values):
    subsets = [frozenset(p for i, p in enumerate("abc") if n >> i & 1) for n in range(8)]
    table = dict(zip(subsets, [0.0, *values[1:]], strict=True))
    found = shapley(["a", "b", "c", "dummy"], lambda chosen: table[chosen - {"dummy"}])
    assert sum(s.value for s in found.values()) == pytest.approx(table[frozenset("abc")], abs=1e-9)
    assert found["dummy"].value == pytest.approx(0, abs=1e-9)
    assert all(s.lo - 1e-9 <= s.value <= s.hi + 1e-9 for s in found.values())


def test_fl1_to_fl3():
    assert finish_times(2, {"I": Flow(work=10), "M": Flow(work=4)}) == {"M": 4, "I": 7}
    capped = finish_times(2, {"I": Flow(work=10, cap=0.5), "M": Flow(work=4)})
    assert (round(capped["M"], 3), capped["I"]) == (2.667, 20)
    caps = {"a": Flow(work=1, cap=1), "b": Flow(work=1, cap=4), "c": Flow(work=1)}
    assert fair_rates(10, caps) == {"a": 1, "b": 4, "c": 5}
    caps["b"] = Flow(work=1)
    assert fair_rates(10, caps) == {"a": 1, "b": 4.5, "c": 4.5}


def test_fl4_and_fl5_the_reference_case_forward_and_back():
    ends = finish_times(207.79, {"I": Flow(work=3 * 17_700), "M": Flow(work=16_000)})
    assert (round(ends["M"], 1), round(ends["I"], 1)) == (154.0, 332.5)
    fit = fit_shared(pull=333, download=168, download_alone=77, image_bytes=17.7e9, model_bytes=16e9)
    assert (round(fit.weight, 4), round(fit.work_per_byte, 4), fit.pull_alone, fit.contention) == (
        0.4583,
        3.0054,
        256,
        77,
    )
    assert round(fit.download_rate / 1e6, 1) == 207.8
    again = finish_times(
        fit.download_rate,
        {
            "I": Flow(work=fit.work_per_byte * 17.7e9, weight=1 - fit.weight),
            "M": Flow(work=16e9, weight=fit.weight),
        },
    )
    assert (again["M"], again["I"]) == (pytest.approx(168), pytest.approx(333))


def test_the_published_figures_refute_the_line_rate():
    assert refutes_line_rate(together=333, download_alone=77, image_bytes=17.7e9, model_bytes=16e9)
    assert round(77 * (1 + 17.7 / 16)) == 162


def test_where_the_shared_model_cannot_hold_there_is_no_fit():
    assert fit_shared(pull=100, download=168, download_alone=77) is None
    assert fit_shared(pull=333, download=60, download_alone=77) is None


flows = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(
        Flow,
        work=st.floats(0.1, 100),
        cap=st.one_of(st.just(math.inf), st.floats(0.1, 20)),
        weight=st.floats(0.1, 5),
    ),
    min_size=1,
)


@given(flows, st.floats(0.5, 50))
def test_flows_conserve_work_and_finish_no_sooner_than_any_bound(some, capacity):
    rates = fair_rates(capacity, some)
    assert sum(rates.values()) <= capacity * (1 + 1e-9)
    assert all(rates[n] <= flow.cap * (1 + 1e-9) for n, flow in some.items())
    ends = finish_times(capacity, some)
    least = max(
        [sum(f.work for f in some.values()) / capacity, *(f.work / min(f.cap, capacity) for f in some.values())]
    )
    assert max(ends.values()) >= least * (1 - 1e-6)
    if len(some) == 1:
        assert max(ends.values()) == pytest.approx(least)


def test_dt1_and_dt2():
    assert (window_part(60, 3, 10, partial_breaches=False), window_part(60, 3, 10, partial_breaches=True)) == (230, 170)
    assert (window_part(60, 3, 59, partial_breaches=False), window_part(60, 3, 59, partial_breaches=True)) == (181, 121)
    assert (window_part(10, 3, 9, partial_breaches=False), window_part(10, 3, 9, partial_breaches=True)) == (31, 21)


def test_ic1_uniform_points_of_the_polytope():
    network = Network(["a", "b", "c", "d"])
    for name, lo, hi in (("a", 0, 0), ("b", 20 * S, 40 * S), ("c", 25 * S, 30 * S), ("d", 60 * S, 60 * S)):
        network.within(name, lo, hi, name)
    for earlier, later in (("a", "b"), ("b", "c"), ("c", "d")):
        network.in_order(earlier, later)
    points = drawn(network, ["b", "c"], chains=6000, sweeps=100)
    assert points["b"].mean() / S == pytest.approx(23.89, abs=0.15)
    assert points["c"].mean() / S == pytest.approx(27.79, abs=0.1)
    assert (points["b"] <= points["c"]).all()
    with pytest.raises(ValueError, match="not bounded"):
        drawn(Network(["x"]), ["x"])


def test_ic4_a_short_phase_between_two_polls_is_mostly_seen_as_nothing():
    rng = random.Random(4)
    seen = [
        math.ceil((start + 5) / 30) * 30 - math.ceil(start / 30) * 30
        for start in (rng.uniform(0, 1e6) for _ in range(40_000))
    ]
    assert sum(seen) / len(seen) == pytest.approx(5, abs=0.2)
    assert seen.count(0) / len(seen) == pytest.approx(0.833, abs=0.01)


def test_tc1_and_tc2():
    slow = fluid([(0, 40.0)], [(0, 12.0), (300 * S, 24.0), (480 * S, 48.0)], 4000 * S)
    assert (slow.covered_us, slow.peak_backlog, slow.drained_us, slow.backlog_area) == (
        480 * S,
        11_280,
        1890 * S,
        10_983_600,
    )
    quick = fluid([(0, 40.0)], [(0, 12.0), (33 * S, 24.0), (213 * S, 48.0)], 4000 * S)
    assert (quick.covered_us, quick.peak_backlog, quick.drained_us / S) == (213 * S, 3804, 688.5)
    assert quick.backlog_area == pytest.approx(1_345_167)


def test_wi1_what_detection_and_cache_are_worth_in_seconds_and_in_damage():
    times = {(d, c): (210, 35)[d] + (525, 258)[c] for d in (0, 1) for c in (0, 1)}
    assert times == {(0, 0): 735, (1, 0): 560, (0, 1): 468, (1, 1): 293}
    found = {k: fluid([(0, 40.0)], [(0, 12.0), (t * S, 48.0)], 10_000 * S) for k, t in times.items()}
    assert {k: f.deficit for k, f in found.items()} == {(0, 0): 20_580, (1, 0): 15_680, (0, 1): 13_104, (1, 1): 8_204}
    assert [round(f.backlog_area / 1e6, 2) for f in found.values()] == [34.03, 13.80, 19.76, 5.41]

    def of(measure):
        return lambda chosen: measure(found[0, 0]) - measure(found[int("D" in chosen), int("C" in chosen)])

    seconds = shapley(["D", "C"], of(lambda f: f.covered_us / S))
    assert (seconds["D"].value, seconds["C"].value) == (175, 267)
    area = shapley(["D", "C"], of(lambda f: f.backlog_area / 1e6))
    assert (round(area["D"].value, 2), round(area["C"].value, 2)) == (11.33, 17.29)
    assert (round(area["D"].hi, 2), round(area["C"].hi, 2)) == (14.28, 20.24)


BEFORE, AFTER = [510, 525, 540, 530, 515], [250, 258, 262, 270, 255]


def test_st1_effect():
    found = effects.effect([[v] for v in BEFORE], [[v] for v in AFTER])
    assert (found.shift, found.difference, round(found.p, 5)) == (265, 267, 0.00794)
    assert found.verdict == "different"
    assert found.shift_ci[0] <= 265 <= found.shift_ci[1]


def test_st2_rows_of_one_event_count_once():
    once = effects.effect([[v] for v in BEFORE], [[v] for v in AFTER])
    assert effects.effect([[v] * 10 for v in BEFORE], [[v] * 10 for v in AFTER]) == once


def test_st3_kaplan_meier():
    curve = effects.kaplan_meier([200, 260, 300, 600, 600], [True, True, True, False, False])
    assert curve[-1] == (300, 0.4)
    assert effects.km_median(curve) == 300
    assert effects.restricted_mean(curve, 600) == pytest.approx(392)


def test_st5_and_st6():
    assert [round(x, 3) for x in effects.wilson(7, 10)] == [0.397, 0.892]
    few = effects.effect([[v] for v in BEFORE[:3]], [[v] for v in AFTER[:3]])
    assert (few.verdict, round(few.least_p, 2), few.shift_ci) == ("insufficient", 0.1, None)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
)
def test_the_exact_p_is_that_of_every_relabelling(before, after):
    from itertools import combinations

    pool = before + after
    ordered = sorted(pool)
    rank = {v: sum(i + 1 for i, w in enumerate(ordered) if w == v) / ordered.count(v) for v in pool}
    mean = len(before) * (len(pool) + 1) / 2
    far = abs(sum(rank[v] for v in before) - mean)
    picks = list(combinations(range(len(pool)), len(before)))
    as_far = sum(1 for pick in picks if abs(sum(rank[pool[i]] for i in pick) - mean) >= far - 1e-9)
    assert effects.permutation_p(before, after) == pytest.approx(as_far / len(picks))
    assert effects.permutation_p(before, after) == pytest.approx(effects.permutation_p(after, before))


def test_the_shift_interval_covers_as_often_as_it_says():
    rng = random.Random(9)
    held = 0
    for _ in range(300):
        b = [rng.gauss(100, 10) for _ in range(6)]
        a = [rng.gauss(80, 10) for _ in range(6)]
        lo, hi = effects.shift_interval(b, a)
        held += lo <= 20 <= hi
    assert held >= 276


@pytest.mark.parametrize(("reduction", "cv"), [(0.2, 0.1), (0.38, 0.2), (0.51, 0.35), (0.2, 0.2)])
def test_so_many_bursts_as_are_planned_tell_the_change(reduction, cv):
    """Drawn anew from another generator, and judged by the test that `compare` uses."""
    bursts, rng, found = power.bursts_needed(reduction, cv), random.Random(3), 0
    sigma = math.sqrt(math.log(1 + cv * cv))
    for _ in range(250):
        b = [math.exp(rng.gauss(0, sigma)) for _ in range(bursts)]
        a = [(1 - reduction) * math.exp(rng.gauss(0, sigma)) for _ in range(bursts)]
        found += effects.permutation_p(b, a) <= 0.05
    assert found / 250 > 0.7
    assert bursts == 4 or power.detectable(bursts - 1, cv) > reduction >= power.detectable(bursts, cv)


@given(st.floats(1.2e-16, 0.999), st.one_of(st.floats(1e-17, 1e-6), st.floats(1e-6, 3.0)))
@example(reduction=0.4, cv=2e-17)  # thirty lengths that differ by rounding alone
@example(reduction=1.2e-16, cv=0.05)
def test_bursts_needed_are_a_number_whatever_the_spread(reduction, cv):
    bursts = power.bursts_needed(reduction, cv)
    assert bursts >= 4
    assert power.bursts_needed(reduction, cv * 2) >= bursts


def test_planned_bursts_of_the_table():
    table = {0.2: (6, 16), 0.38: (4, 5), 0.51: (4, 4)}
    assert {r: tuple(power.bursts_needed(r, cv) for cv in (0.1, 0.2)) for r in table} == {
        r: (pytest.approx(a, abs=1), pytest.approx(b, abs=1)) for r, (a, b) in table.items()
    }
    assert power.bursts_needed(0.51, 0.35) == 6
    assert power.bursts_needed(0.1, 0.1) == pytest.approx(17, abs=3)


def test_ca1_to_ca3():
    least = least_cold_pull_us(17.7e9, 1250e6)
    assert label(0, 10 * S, least) == "hit"
    assert label(0, 60 * S, least) == "unknown"
    assert label(100 * S, 333 * S, least) == "miss"
    assert label(0, S, least, eligible=False) == "ineligible"
    assert signature(new_unit=False, pulled=False, fetched=False) == "data_cache"
    assert signature(new_unit=True, pulled=True, fetched=True) == "cold"
    assert signature(new_unit=True, pulled=False, fetched=True) == "image_cache"
    assert signature(new_unit=True, pulled=False, fetched=False) == "unknown"


def test_examples_hold():
    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(analysis.__path__, "analysis.")]
    results = [doctest.testmod(module) for module in modules]
    assert sum(r.attempted for r in results) > 40
    assert sum(r.failed for r in results) == 0
