import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from loadgen.emulator.config import EmulatorConfig, Faults, Scaling, Serving, Startup
from loadgen.emulator.model import Model
from loadgen.emulator.serving import Finished, TimedOut
from loadgen.emulator.startup import plan_start

S = 1_000_000
START = 1_780_000_020 * S
assert START % (60 * S) == 0


def replay(config, seed=0, until_s=1000, stops=()):
    """Send the reference burst: a request a second, from the 60th second on three a second. 100 tokens each."""
    model = Model(config, seed, START)
    effects = []
    arrivals = list(range(0, 60 * S, S)) + [60 * S + k * S // 3 for k in range(3 * 600)]
    for k, at in enumerate(arrivals):
        for stop in stops:
            if stop < at:
                effects += model.advance(max(model.now_us, START + stop))
        effects += model.arrive(START + at, f"r{k}", 500, 100)
    effects += model.advance(START + until_s * S)
    return model, effects


def anchors(model, unit=None):
    """Return the truth of one unit (the first launched) and of the scaling, in seconds from the decision."""
    rows = model.truth()
    decision = next(row.at_us for row in rows if row.anchor == "decision")
    units = [row.unit_id for row in rows if row.anchor == "launched"]
    chosen = {None, units[0] if unit is None else unit}
    return {row.anchor: (row.at_us - decision) / S for row in rows if row.unit_id in chosen}


@pytest.mark.parametrize(("cached", "startup_s"), [(False, 525), (True, 258)])
def test_the_reference_case_starts_in_the_published_time(cached, startup_s):
    model, _ = replay(EmulatorConfig(startup=Startup(image_cache=cached)))
    at = anchors(model)
    assert at["in_service"] == pytest.approx(startup_s, rel=0.01)
    assert at["launched"] == pytest.approx(120, abs=1.01)
    pull = at["pull_finished"] - at["pull_started"]
    assert pull == pytest.approx(0 if cached else 333, abs=0.1)
    download = at["download_finished"] - at["download_started"]
    assert download == pytest.approx(77 if cached else 168, abs=0.1)
    assert at["container_started"] == max(at["pull_finished"], at["download_finished"])
    assert at["ready"] - at["container_started"] == pytest.approx(61 if cached else 72)
    assert at["load_finished"] - at["load_started"] == pytest.approx(30)
    assert at["breach"] < at["alarm"] < at["decision"] < at["in_service"] < at["first_served"]


def test_one_scale_out_to_the_maximum_answers_the_burst():
    model, effects = replay(EmulatorConfig())
    scaled = [a for a in model.autoscaler.activities if a.desired is not None]
    assert [a.description for a in scaled] == ["Setting desired instance count to 3."]
    assert scaled[0].status == "Successful"
    assert scaled[0].message == (
        "Successfully set desired instance count to 3. Change successfully fulfilled by sagemaker."
    )
    assert scaled[0].cause.endswith(f"in state ALARM triggered policy {model.autoscaler.policy_name}")
    in_service = {row.at_us for row in model.truth() if row.anchor == "in_service"}
    assert len(in_service) == 1, "instances of one update come into service together"
    assert scaled[0].ended_us == in_service.pop() + 500_000
    assert sum(isinstance(effect, TimedOut) for effect in effects) > 0
    assert sum(isinstance(effect, Finished) for effect in effects) > 500


def test_the_first_ones_are_no_truth_and_units_are_new():
    model, _ = replay(EmulatorConfig())
    first, *launched = [instance.unit_id for instance in model.fleet.instances]
    assert {row.unit_id for row in model.truth()} == {None, *launched}
    assert len({first, *launched}) == 3


def test_arms_of_one_seed_share_their_instances():
    cached, pulled = (plan_start(EmulatorConfig(startup=Startup(image_cache=c)), 7, 1, 0) for c in (True, False))
    assert cached.unit_id == pulled.unit_id
    assert cached.launched_us == pulled.launched_us
    assert plan_start(EmulatorConfig(), 8, 1, 0).launched_us != cached.launched_us


def test_a_cached_copy_may_be_missing():
    plans = [plan_start(EmulatorConfig(startup=Startup(image_cache_miss_share=0.5)), 0, k, 0) for k in range(40)]
    assert {plan.image_cached for plan in plans} == {True, False}
    for plan in plans:
        assert (plan.pull_finished_us == plan.pull_started_us) == plan.image_cached


def test_capacity_errors_delay_the_launch_and_are_counted():
    config = EmulatorConfig(faults=Faults(capacity_errors=2, capacity_retry_s=45))
    model, _ = replay(config)
    assert anchors(model)["launched"] == pytest.approx(90 + 120, abs=1.01)
    counts = [s.value for s in model.fleet.operation_samples if s.name == "ice_count"]
    assert counts == [1, 1, 1, 1], "two errors for each of the two new instances"


def test_a_failed_pull_starts_over():
    plain = EmulatorConfig(startup=Startup(image_cache=False))
    failing = replace(plain, faults=Faults(failed_pulls=1, failed_pull_at_share=0.5, pull_retry_s=15))
    once, twice = plan_start(plain, 0, 1, 0), plan_start(failing, 0, 1, 0)
    # Half the image again, pulled while the download runs for part of it, and the pause.
    longer = (twice.pull_finished_us - once.pull_finished_us) / S
    assert longer == pytest.approx(0.5 * 17_700 * 3.0054 / 207.79 + 15, abs=16)
    assert longer > 0.5 * 17_700 * 3.0054 / 207.79


def test_operation_metrics_tell_the_phases_and_are_stamped_at_their_end():
    model, _ = replay(EmulatorConfig(startup=Startup(image_cache=False)))
    unit = model.fleet.instances[1]
    mine = {s.name: s for s in model.fleet.operation_samples if s.labels.get("@resource.host.id") == unit.unit_id}
    assert mine["model_download_time"].value == pytest.approx(168, abs=0.1)
    assert mine["gpu_load_time"].value == pytest.approx(30)
    assert mine["container_start_time"].value == pytest.approx(72)
    assert mine["container_start_time"].at_us == unit.timeline.ready_us
    total = next(s for s in model.fleet.operation_samples if s.name == "e2e_duration")
    assert total.value == pytest.approx(525, rel=0.01)
    assert total.labels["aws.sagemaker.scaling.direction"] == "ScaleOut"


def test_the_host_label_can_be_left_out():
    model, _ = replay(EmulatorConfig(host_id_label=False), until_s=10)
    assert not any("@resource.host.id" in s.labels for s in model.fleet.operation_samples)


def test_the_log_of_a_start_brackets_its_phases():
    model, _ = replay(EmulatorConfig())
    unit = model.fleet.instances[1]
    at = {line.message.rpartition("] ")[2]: line.at_us for line in unit.log}
    assert unit.log[0].at_us == unit.timeline.container_started_us + 300_000
    assert at["Loading weights took 30.00 seconds"] == unit.timeline.load_finished_us
    assert next(t for m, t in at.items() if m.startswith("Starting to load")) == unit.timeline.load_started_us
    assert unit.timeline.ready_us - S < unit.log[-1].at_us < unit.timeline.ready_us
    assert len({line.event_id for line in unit.log}) == len(unit.log)


def test_same_seed_and_arrivals_same_history_however_time_is_cut():
    (one, effects), (two, same) = replay(EmulatorConfig()), replay(EmulatorConfig(), stops=range(0, 400 * S, 7_777_777))
    assert one.truth() == two.truth()
    assert effects == same
    assert [a.activity_id for a in one.autoscaler.activities] == [a.activity_id for a in two.autoscaler.activities]
    assert one.autoscaler.high.history == two.autoscaler.high.history
    assert replay(EmulatorConfig(), seed=1)[0].truth() != one.truth()


def step(onset_s, period, statistic, burst=10, target=9.0, **scaling):
    """Let `burst` endless requests arrive at an onset; return how long after it the decision fell."""
    config = EmulatorConfig(
        serving=Serving(queue_timeout_s=100_000),
        scaling=Scaling(
            metric_period_s=period,
            statistic=statistic,
            target=target,
            **{"publish_lag_s": 0, "evaluation_offset_s": 0, "reaction_s": 0, **scaling},
        ),
    )
    model = Model(config, 0, START)
    for k in range(burst):
        model.arrive(START + round(onset_s * S), f"r{k}", 10, 1_000_000)
    model.advance(START + 600 * S)
    activity = next(a for a in model.autoscaler.activities if a.desired is not None)
    return (activity.started_us - START) / S - onset_s, model


@pytest.mark.parametrize(
    ("onset_s", "period", "statistic", "expected_s"),
    [
        (70, 60, "Average", 230),
        (70, 60, "Maximum", 170),
        (119, 60, "Average", 181),
        (119, 60, "Maximum", 121),
        (119, 10, "Average", 31),
        (119, 10, "Maximum", 21),
    ],
)
def test_dt_detection_is_periods_and_the_place_of_the_onset(onset_s, period, statistic, expected_s):
    assert step(onset_s, period, statistic)[0] == pytest.approx(expected_s)


@settings(max_examples=25)
@given(st.integers(0, 59_999), st.sampled_from([10, 60]), st.integers(1, 5))
def test_detection_follows_the_arithmetic_for_every_onset(onset_ms, period, datapoints):
    onset_s = onset_ms / 1000
    took_s, _ = step(onset_s, period, "Maximum", high_datapoints=datapoints)
    assert took_s == pytest.approx(datapoints * period - onset_s % period)


def test_lags_add_to_detection():
    took_s, model = step(119, 10, "Maximum", publish_lag_s=4, evaluation_offset_s=7, reaction_s=1.2)
    # 21 s of windows; seen 4 s later, at the 144th second; looked at in the 147th; decided 1.2 s after that.
    assert took_s == pytest.approx(21 + 7 + 1.2)
    truth = {row.anchor: (row.at_us - START) / S for row in model.truth()}
    assert truth["breach"] == pytest.approx(119)
    assert truth["alarm"] == pytest.approx(147)
    assert truth["decision"] == pytest.approx(148.2)


@pytest.mark.parametrize("bad", [{"max_instances": 0}, {"min_instances": 4, "max_instances": 3}])
def test_limits_must_make_sense(bad):
    from loadgen.strict_toml import convert_strictly
    from traces.errors import BadInputError

    with pytest.raises(BadInputError, match="instances"):
        convert_strictly({"scaling": bad}, EmulatorConfig, origin="x.toml", table="emulator_model")
