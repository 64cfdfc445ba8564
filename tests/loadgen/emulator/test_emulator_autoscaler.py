import json

import pytest

from loadgen.emulator.alarms import Alarm, AlarmRule
from loadgen.emulator.config import EmulatorConfig, Scaling, Serving
from loadgen.emulator.metrics import Gauge, Series, Tally
from loadgen.emulator.model import Model

S = 1_000_000
START = 1_780_000_020 * S


def load(model, at_s, count, tokens=250):
    """Send requests at an instant (10 s each in a full batch)."""
    for k in range(count):
        model.arrive(START + round(at_s * S), f"{at_s}-{k}", 100, tokens)


def busy(config, until_s, every_s=10, count=40):
    model = Model(config, 0, START)
    for at_s in range(0, until_s, every_s):
        load(model, at_s, count)
    return model


def test_a_gauge_weighs_its_average_by_time_and_remembers_when_it_was_exceeded():
    gauge = Gauge(0, watch_above=4)
    gauge.set(2 * S, 6)
    gauge.set(8 * S, 1)
    point = gauge.close(10 * S, lag_us=3)
    assert (point.minimum, point.maximum) == (0, 6)
    assert point.statistic("Average") == pytest.approx((0 * 2 + 6 * 6 + 1 * 2) / 10)
    assert (point.start_us, point.period_us, point.visible_us, point.exceeded_us) == (0, 10 * S, 10 * S + 3, 2 * S)
    following = gauge.close(20 * S, lag_us=0)
    assert (following.minimum, following.maximum, following.exceeded_us) == (1, 1, None)


def test_a_tally_has_no_datapoint_when_nothing_happened():
    tally = Tally()
    assert tally.close(0, 60 * S, 0) is None
    tally.add(2)
    tally.add(3)
    point = tally.close(60 * S, 120 * S, 0)
    assert (point.total, point.samples, point.statistic("Average")) == (5, 2, 2.5)


def test_a_series_shows_nothing_before_it_is_published_and_merges_longer_periods():
    gauge, series = Gauge(0, watch_above=4), Series(10 * S)
    for k, value in enumerate([1, 5, 3, 0, 0, 2], start=1):
        gauge.set((k - 1) * 10 * S, value)
        series.add(gauge.close(k * 10 * S, lag_us=4 * S))
    assert series.over(0, 10 * S, 13 * S) is None
    assert series.over(0, 10 * S, 14 * S).maximum == 1
    minute = series.over(0, 60 * S, 64 * S)
    assert (minute.minimum, minute.maximum, minute.samples, minute.exceeded_us) == (0, 5, 6, 10 * S)
    assert [p.start_us for p in series.between(5 * S, 60 * S, 20 * S, 100 * S)] == [20 * S, 40 * S]


def rule(**changes):
    base = {"name": "n", "arn": "a", "above": True, "threshold": 4.0, "period_us": 10 * S, "datapoints": 3}
    return AlarmRule(**{**base, "statistic": "Maximum", **changes})


def series_of(*values, lag_us=0):
    series = Series(10 * S)
    for k, value in enumerate(values):
        gauge = Gauge(k * 10 * S, watch_above=4)
        gauge.set(k * 10 * S, float(value))
        series.add(gauge.close((k + 1) * 10 * S, lag_us))
    return series


def test_an_alarm_needs_all_its_datapoints():
    alarm = Alarm(rule(), 0)
    assert alarm.evaluate(50 * S, series_of(9, 9, 4, 9, 9))
    assert alarm.state == "OK"
    assert alarm.evaluate(60 * S, series_of(9, 9, 4, 9, 9, 9))
    assert alarm.state == "ALARM"


def test_the_threshold_itself_does_not_breach():
    assert not rule().breaches(series_of(4).over(0, 10 * S, 10 * S))
    assert rule(above=False, threshold=4.1).breaches(series_of(4).over(0, 10 * S, 10 * S))


def test_no_data_is_insufficient_and_too_little_changes_nothing():
    alarm = Alarm(rule(), 0)
    alarm.evaluate(30 * S, series_of(9, 9, 9))
    assert alarm.state == "ALARM"
    assert not alarm.evaluate(60 * S, series_of(9, 9, 9))
    assert alarm.state == "ALARM"
    assert alarm.evaluate(200 * S, series_of(9, 9, 9))
    assert alarm.state == "INSUFFICIENT_DATA"


def test_a_late_datapoint_is_not_looked_at_yet():
    late = series_of(0, 0, 9, 9, 9, lag_us=4 * S)
    alarm = Alarm(rule(), 0)
    alarm.evaluate(52 * S, late)
    assert alarm.state == "OK"
    alarm.evaluate(54 * S, late)
    assert alarm.state == "ALARM"


def test_the_history_of_an_alarm_is_what_cloudwatch_writes():
    alarm = Alarm(rule(), 0)
    alarm.evaluate(30 * S, series_of(0, 0, 0))
    alarm.evaluate(60 * S + 123_456, series_of(0, 0, 0, 7, 8, 9))
    item = alarm.history[-1]
    assert (item.kind, item.summary, item.at_us) == ("StateUpdate", "Alarm updated from OK to ALARM", 60 * S + 123_456)
    data = json.loads(item.data)
    assert data["oldState"]["stateValue"] == "OK"
    new = data["newState"]
    assert new["stateReason"].startswith("Threshold Crossed: 3 datapoints [9.0 (01/01/70 00:00:50), 8.0 (")
    assert new["stateReason"].endswith("were greater than the threshold (4.0).")
    assert new["stateReasonData"] == {
        "version": "1.0",
        "queryDate": "1970-01-01T00:01:00.123+0000",
        "startDate": "1970-01-01T00:00:30.000+0000",
        "statistic": "Maximum",
        "period": 10,
        "recentDatapoints": [7.0, 8.0, 9.0],
        "threshold": 4.0,
        "evaluatedDatapoints": [
            {"timestamp": "1970-01-01T00:00:50.000+0000", "sampleCount": 1.0, "value": 9.0},
            {"timestamp": "1970-01-01T00:00:40.000+0000", "sampleCount": 1.0, "value": 8.0},
            {"timestamp": "1970-01-01T00:00:30.000+0000", "sampleCount": 1.0, "value": 7.0},
        ],
    }


def test_an_endpoint_that_was_idle_starts_with_settled_alarms():
    scaler = Model(EmulatorConfig(), 0, START).autoscaler
    assert (scaler.high.state, scaler.low.state) == ("OK", "ALARM")
    assert [a.not_scaled for a in scaler.activities] == ["AlreadyAtMinCapacity"]
    assert scaler.activities[0].status == "Failed"
    assert scaler.activities[0].description == "Attempting to scale due to alarm triggered"


def test_without_data_when_idle_nothing_is_scaled():
    model = Model(EmulatorConfig(scaling=Scaling(emit_when_idle=False)), 0, START)
    assert model.autoscaler.high.state == model.autoscaler.low.state == "INSUFFICIENT_DATA"
    assert model.autoscaler.activities == []


def test_desired_is_the_ceiling_of_current_times_metric_over_target():
    # Five outstanding on one instance, target 4: two instances, though three are allowed.
    config = EmulatorConfig(serving=Serving(queue_timeout_s=10_000))
    model = Model(config, 0, START)
    load(model, 0, 5, tokens=100_000)
    model.advance(START + 100 * S)
    assert [a.desired for a in model.autoscaler.activities if a.desired] == [2]


def test_an_activity_passes_through_its_states_and_the_endpoint_updates_meanwhile():
    model = busy(EmulatorConfig(), 60)
    activity = next(a for a in model.autoscaler.activities if a.desired)
    began = activity.started_us
    seen = []
    for at_us in (began, began + 299_999, began + 300_000, began + 259 * S, began + 260 * S):
        model = busy(EmulatorConfig(), 20)
        model.advance(at_us)
        found = next(a for a in model.autoscaler.activities if a.desired)
        status = model.fleet.variant_status
        seen.append((found.status, status and status.message, model.fleet.desired, model.fleet.current))
    assert seen == [
        ("Pending", None, 1, 1),
        ("Pending", None, 1, 1),
        ("InProgress", "Launching 2 instance(s).", 3, 1),
        ("InProgress", None, 3, 3),
        ("Successful", None, 3, 3),
    ]


def test_at_the_maximum_it_says_so_once_and_scales_no_further():
    model = busy(EmulatorConfig(), 900)
    assert [(a.desired, a.not_scaled) for a in model.autoscaler.activities] == [
        (None, "AlreadyAtMinCapacity"),
        (3, None),
        (None, "AlreadyAtMaxCapacity"),
    ]


def test_after_quiet_it_scales_in_and_the_newest_instances_go():
    model = busy(EmulatorConfig(), 60)
    model.advance(START + 3600 * S)
    last = [a for a in model.autoscaler.activities if a.desired][-1]
    assert (last.desired, last.status) == (1, "Successful")
    assert "AlarmLow" in last.cause
    assert [instance.state for instance in model.fleet.instances] == ["in_service", "terminated", "terminated"]
    assert last.ended_us - last.started_us == pytest.approx(60.8 * S)
    out = next(a for a in model.autoscaler.activities if a.desired == 3)
    assert last.started_us - out.ended_us > 300 * S
    # Fifteen quiet minutes have to pass.
    assert last.started_us - START > 900 * S


def test_no_scale_in_within_the_cooldown():
    slow = EmulatorConfig(scaling=Scaling(scale_out_cooldown_s=2000))
    model = busy(slow, 60)
    model.advance(START + 2200 * S)
    assert [a.desired for a in model.autoscaler.activities if a.desired] == [3]
    model.advance(START + 2500 * S)
    assert [a.desired for a in model.autoscaler.activities if a.desired] == [3, 1]
