"""The compiled queue is the virtual queue: every instant, datapoint and truth row is equal, whatever the load."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.emulator.config import EmulatorConfig, Scaling, Serving, Startup
from loadgen.emulator.virtual_load import Load
from loadgen.emulator.virtual_model import WORTH_COMPILING, VirtualModel, is_compiled

numba = pytest.importorskip("numba")

S = 1_000_000
START = 1_780_000_020 * S


def history(config, seed, load, *, compiled):
    model = VirtualModel(config, seed, START, load, compiled=compiled)
    end_us = model.finish(900 * S)
    served, span = model.queue.served, (START, end_us, 10 * S, end_us)
    columns = [
        list(getattr(served, name)) for name in ("due_us", "admitted_us", "first_us", "done_us", "unit", "outcome")
    ]
    points = [model.concurrency.between(*span)]
    points += [series.between(START, end_us, 60 * S, end_us) for _, series in sorted(model.invocations.items())]
    state = (end_us, model.queue.outstanding, model.queue.arrived, model.queue.finished, model.queue.unit_ids)
    return columns, points, model.truth(), state


@st.composite
def loads(draw):
    size = draw(st.integers(1, 250))
    gaps = draw(st.lists(st.integers(0, 2 * S) | st.just(0), min_size=size, max_size=size))
    lengths = st.lists(st.integers(1, 300), min_size=size, max_size=size)
    arrivals, at = [], 0
    for gap in gaps:
        at += gap
        arrivals.append(at)
    outputs = draw(lengths)
    more = {}
    if draw(st.booleans()):
        more["leaves"] = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    if draw(st.booleans()):
        more["patience_us"] = draw(st.lists(st.none() | st.integers(0, 20 * S), min_size=size, max_size=size))
    if draw(st.booleans()):
        more["before"] = [draw(st.none() | st.integers(0, k - 1)) if k else None for k in range(size)]
        more["think_us"] = draw(st.lists(st.integers(0, 5 * S), min_size=size, max_size=size))
    return Load(
        row_id=range(size),
        arrival_us=arrivals,
        input_tokens=draw(lengths),
        output_tokens=outputs,
        tokens=outputs,
        **more,
    )


@settings(max_examples=60)
@given(
    load=loads(),
    seed=st.integers(0, 100),
    slots=st.integers(1, 6),
    patience_s=st.sampled_from([1, 20, 600]),
    cached=st.booleans(),
    low=st.integers(1, 3),
)
def test_both_loops_give_the_same_history(load, seed, slots, patience_s, cached, low):
    """Units come and go: what is idle is scaled in within minutes."""
    config = EmulatorConfig(
        serving=Serving(slots_per_instance=slots, queue_timeout_s=patience_s),
        scaling=Scaling(target=1.0, max_instances=20, statistic="Average", low_datapoints=low, scale_in_cooldown_s=30),
        startup=Startup(image_cache=cached, provisioning_s=20, image_gb=1, model_gb=1),
    )
    assert history(config, seed, load, compiled=True) == history(config, seed, load, compiled=False)


def test_more_units_than_there_was_room_for_at_first():
    size = 3_000
    load = Load(
        row_id=range(size),
        arrival_us=[k * 50_000 for k in range(size)],
        input_tokens=[100] * size,
        output_tokens=[200] * size,
        tokens=[200] * size,
    )
    config = EmulatorConfig(
        serving=Serving(slots_per_instance=2),
        scaling=Scaling(target=1.0, max_instances=60, scale_out_cooldown_s=10),
        startup=Startup(provisioning_s=10, image_gb=0, model_gb=0),
    )
    found = history(config, 1, load, compiled=True)
    assert len(found[3][4]) > 32
    assert found == history(config, 1, load, compiled=False)


def test_it_is_taken_where_it_pays_and_knows_the_routing():
    def of(size):
        return Load(row_id=range(size), arrival_us=(), input_tokens=(), output_tokens=(), tokens=())

    spread = EmulatorConfig(serving=Serving(routing="RANDOM"))
    assert is_compiled(EmulatorConfig(), of(WORTH_COMPILING))
    assert not is_compiled(EmulatorConfig(), of(WORTH_COMPILING - 1))
    assert not is_compiled(spread, of(WORTH_COMPILING))
