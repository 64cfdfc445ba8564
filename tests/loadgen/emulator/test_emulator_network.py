import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.emulator.network import Flow, completion_times, max_min_rates


def flow(size=1.0, work=1.0, **more):
    return Flow(size=size, work={"c": work}, **more)


def test_fl1_equal_share():
    assert completion_times([flow(10), flow(4)], {"c": 2}) == pytest.approx([7, 4])


def test_fl2_a_capped_flow_leaves_its_share_to_the_other():
    assert completion_times([flow(10, cap=0.5), flow(4)], {"c": 2}) == pytest.approx([20, 8 / 3])


def test_fl3_rates_under_caps():
    caps = [1, 4, math.inf]
    assert max_min_rates([flow(cap=cap) for cap in caps], {"c": 10}) == pytest.approx([1, 4, 5])
    caps = [1, math.inf, math.inf]
    assert max_min_rates([flow(cap=cap) for cap in caps], {"c": 10}) == pytest.approx([1, 4.5, 4.5])


def test_fl4_equal_share_of_the_resource():
    pull, download = completion_times([flow(17_700, work=3, weight=1 / 3), flow(16_000)], {"c": 207.79})
    assert pull == pytest.approx(332.5, abs=0.1)
    assert download == pytest.approx(154.0, abs=0.1)


def test_fl5_weighted_share_gives_the_seed():
    share, work = 0.4583, 3.0054
    flows = [flow(17_700, work=work, weight=(1 - share) / work), flow(16_000, weight=share)]
    pull, download = completion_times(flows, {"c": 207.79})
    assert pull == pytest.approx(333, abs=0.1)
    assert download == pytest.approx(168, abs=0.1)
    assert completion_times([flow(16_000)], {"c": 207.79}) == pytest.approx([77], abs=0.1)


def test_the_tightest_of_two_resources_limits_a_flow():
    flows = [Flow(size=10, work={"a": 1, "b": 1}), Flow(size=10, work={"a": 1})]
    assert max_min_rates(flows, {"a": 10, "b": 2}) == pytest.approx([2, 8])


def test_a_flow_may_start_later_or_after_another():
    ends = completion_times([flow(10), flow(10, start_s=2, after=0), flow(5, start_s=30)], {"c": 1})
    assert ends == pytest.approx([10, 22, 35])


def test_nothing_to_move_ends_at_once_and_a_dry_resource_never():
    assert completion_times([flow(0)], {"c": 1}) == [0]
    assert completion_times([flow(1)], {"c": 0}) == [math.inf]
    assert completion_times([], {"c": 1}) == []


positive = st.floats(0.01, 1e4)
flows_on_one_resource = st.lists(
    st.builds(flow, size=positive, work=st.floats(0.1, 10), weight=st.floats(0.1, 10)), min_size=1, max_size=6
)


@given(flows_on_one_resource, positive)
def test_work_is_conserved_on_one_resource(flows, capacity):
    """Without caps the resource is never idle, so the last flow ends when all the work is done, not before or after."""
    work = sum(f.size * f.work["c"] for f in flows)
    assert max(completion_times(flows, {"c": capacity})) == pytest.approx(work / capacity, rel=1e-6)


@given(flows_on_one_resource, positive, positive)
def test_no_flow_beats_its_bounds_and_no_resource_its_capacity(flows, capacity, cap):
    capped = [flow(f.size, f.work["c"], weight=f.weight, cap=cap) for f in flows]
    ends = completion_times(capped, {"c": capacity})
    for f, end in zip(capped, ends, strict=True):
        assert end >= f.size / cap * (1 - 1e-9)
        assert end >= f.size * f.work["c"] / capacity * (1 - 1e-9)
    rates = max_min_rates(capped, {"c": capacity})
    assert sum(f.work["c"] * rate for f, rate in zip(capped, rates, strict=True)) <= capacity * (1 + 1e-9)
    assert all(rate <= cap for rate in rates)


@given(positive, positive, positive)
def test_one_flow_alone_takes_size_over_cap(size, cap, capacity):
    assert completion_times([flow(size, cap=cap)], {"c": capacity}) == pytest.approx([size / min(cap, capacity)])


@given(flows_on_one_resource, positive)
def test_rates_are_max_min_fair(flows, capacity):
    """No flow can have more without one of a smaller or equal weighted rate having less: here, all levels are equal."""
    rates = max_min_rates(flows, {"c": capacity})
    levels = [rate / f.weight for f, rate in zip(flows, rates, strict=True)]
    assert max(levels) == pytest.approx(min(levels))
