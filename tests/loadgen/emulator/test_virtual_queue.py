"""The virtual queue is the serving model: every instant, datapoint and truth row is equal, whatever the load."""

from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.emulator.config import EmulatorConfig, Scaling, Serving, Startup
from loadgen.emulator.model import Model
from loadgen.emulator.serving import Admitted, Finished
from loadgen.emulator.virtual_load import CANCELLED, OK, TIMED_OUT, Load, load_of
from loadgen.emulator.virtual_model import VirtualModel
from loadgen.scenario import ReplaySection

S = 1_000_000
START = 1_780_000_020 * S


def load(arrivals, inputs, outputs, **optional):
    return Load(
        row_id=range(len(arrivals)),
        arrival_us=arrivals,
        input_tokens=inputs,
        output_tokens=outputs,
        tokens=outputs,
        **optional,
    )


def event_by_event(config, seed, given, end_us):
    model, admitted, finished, gone = Model(config, seed, START), {}, {}, {}

    def take(effects):
        for effect in effects:
            k = int(effect.request_id)
            if isinstance(effect, Admitted):
                admitted[k] = (effect.at_us, effect.unit_id)
            elif isinstance(effect, Finished):
                finished[k] = effect.at_us
            else:
                gone[k] = effect.at_us

    for k, at_us in enumerate(given.arrival_us):
        take(model.arrive(START + at_us, str(k), given.input_tokens[k], given.output_tokens[k]))
    take(model.advance(end_us))
    return model, admitted, finished, gone


@settings(max_examples=25)
@given(
    seed=st.integers(0, 100),
    gaps=st.lists(st.integers(0, 2 * S), min_size=30, max_size=300),
    slots=st.integers(1, 6),
    routing=st.sampled_from(["LEAST_OUTSTANDING_REQUESTS", "RANDOM"]),
    cached=st.booleans(),
    period=st.sampled_from([10, 60]),
    data=st.data(),
)
def test_both_models_give_the_same_history(seed, gaps, slots, routing, cached, period, data):
    arrivals, at = [], 0
    for gap in gaps:
        at += gap
        arrivals.append(at)
    inputs = data.draw(st.lists(st.integers(1, 3000), min_size=len(gaps), max_size=len(gaps)))
    outputs = data.draw(st.lists(st.integers(1, 300), min_size=len(gaps), max_size=len(gaps)))
    config = EmulatorConfig(
        serving=Serving(slots_per_instance=slots, routing=routing, queue_timeout_s=20),
        scaling=Scaling(target=1.0, metric_period_s=period, statistic="Average"),
        startup=Startup(image_cache=cached, provisioning_s=20, image_gb=1, model_gb=1),
    )
    given_load = load(arrivals, inputs, outputs)
    virtual = VirtualModel(config, seed, START, given_load)
    end_us = virtual.finish(120 * S)
    model, admitted, finished, gone = event_by_event(config, seed, given_load, end_us)
    served, ids = virtual.queue.served, virtual.queue.unit_ids
    for k, outcome in enumerate(served.outcome):
        if outcome == OK:
            assert (served.admitted_us[k], ids[served.unit[k]]) == admitted[k]
            assert served.done_us[k] == finished[k]
        else:
            assert outcome == TIMED_OUT
            assert served.done_us[k] == gone[k]
    assert virtual.truth() == model.truth()
    span = (START, end_us, period * S, end_us)
    assert virtual.concurrency.between(*span) == model.concurrency.between(*span)
    for name, series in model.invocations.items():
        assert virtual.invocations[name].between(START, end_us, 60 * S, end_us) == series.between(
            START, end_us, 60 * S, end_us
        )


def test_a_turn_waits_for_the_one_before_and_its_think_time():
    found = load([0, S, 2 * S], [100] * 3, [200, 50, 50], before=[None, 0, None], think_us=[0, 3 * S, 0])
    virtual = VirtualModel(EmulatorConfig(), 0, START, found)
    virtual.finish()
    served = virtual.queue.served
    assert served.due_us[1] == served.done_us[0] + 3 * S
    assert served.due_us[2] == START + 2 * S
    assert list(served.outcome) == [OK] * 3


def test_clients_that_leave_are_gone_when_they_were():
    found = load([0, 0, 0], [100] * 3, [200, 200, 200], patience_us=[2 * S, None, None], leaves=[False, True, False])
    virtual = VirtualModel(EmulatorConfig(), 0, START, found)
    virtual.finish()
    served = virtual.queue.served
    assert list(served.outcome) == [CANCELLED, CANCELLED, OK]
    assert served.done_us[0] == START + 2 * S


def test_turns_of_a_trace_follow_the_replays_rules():
    import polars as pl

    from traces.schema import Trace

    rows = {
        "row_id": [5, 6, 7, 8, 9],
        "arrival_us": [0, 1, 2, 3, 4],
        "session_id": ["a", "a", "a", "b", None],
        "turn": [1, 2, 2, 1, None],
        "parent_row": [None, None, None, None, 6],
    }
    schema = pl.Schema(Trace)
    frame = pl.DataFrame(rows, schema_overrides={k: v for k, v in schema.items() if k in rows})
    frame = frame.with_columns(pl.lit(None, kind).alias(k) for k, kind in schema.items() if k not in rows)
    found = load_of(frame, ReplaySection(default_input_tokens=7))
    # The second of two rows with one turn branches off the same answer, and waits for nothing.
    assert list(found.before) == [None, 0, None, None, 1]
    assert list(found.input_tokens) == [7] * 5
