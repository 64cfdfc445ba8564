"""Whole runs from a known truth: results hold the truth, sum exactly, and never claim what is hidden."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import msgspec
import polars as pl
import pytest
import run_builder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_builder import EPOCH, Case, S, Unit, after_case, build, observation, write

from analysis.analyse import analyse, analyse_run
from analysis.entry import run_entry
from analysis.inputs import open_run
from analysis.reached import Objective
from traces.clock import to_datetime
from traces.errors import BadInputError
from traces.run import RunDir


def rows_of(analysis, index=0):
    return {row.phase: row for row in analysis.scale_outs[index].phases if row.parent is None}


def codes(analysis):
    return {finding.code for finding in analysis.findings}


def assert_sums(analysis):
    for found in analysis.scale_outs:
        if found.time_to_capacity_us is not None:
            total = sum(row.critical_us for row in found.phases if row.parent is None)
            assert total == found.time_to_capacity_us
        for row in found.phases:
            assert 0 <= row.critical_lo_us <= row.critical_us <= row.critical_hi_us
            if row.duration_us is not None and row.lo_us is not None:
                assert row.lo_us <= row.duration_us <= row.hi_us


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_reference_before_holds_the_truth(tmp_path, scale):
    case = Case(time_scale=scale)
    analysis = analyse_run(build(tmp_path / "run", case))
    assert_sums(analysis)
    found, rows = analysis.scale_outs[0], rows_of(analysis)
    assert found.marginal_unit == "i-0bbb"
    assert (found.units_before, found.units_desired) == (1, 3)
    # The scaler notices half a second after the truth; nothing observes the difference.
    assert found.startup_us == 525_500_000
    joint = rows["provisioning+pull"]
    assert joint.method == "derived"
    assert joint.lo_us <= 453 * S <= joint.hi_us
    assert joint.critical_lo_us <= 453 * S <= joint.critical_hi_us
    assert (joint.critical_lo_us, joint.critical_hi_us) == pytest.approx((285 * S, 453 * S), abs=4 * S)
    download = rows["download"]
    assert (download.duration_us, download.critical_us, download.critical_lo_us) == (168 * S, 0, 0)
    assert download.critical_hi_us >= 168 * S
    assert rows["start"].duration_us == 72 * S
    assert rows["detection"].lo_us <= (case.decision_s - case.onset_s) * S <= rows["detection"].hi_us
    assert "pull" not in rows
    assert "provisioning" not in rows


def test_reference_after_bounds_hold_provisioning_without_a_pull(tmp_path):
    rows = rows_of(analyse_run(build(tmp_path / "run", after_case())))
    joint = rows["provisioning+pull"]
    assert joint.critical_lo_us <= 120 * S <= joint.critical_hi_us
    assert (joint.critical_lo_us, joint.critical_hi_us) == pytest.approx((120 * S, 197 * S), abs=4 * S)


def test_detection_has_its_three_parts_and_start_its_weights(tmp_path):
    entry = run_entry(analyse_run(build(tmp_path / "run", Case())))
    phases = entry["scale_outs"][0]["phases"]
    parts = phases["detection"]["parts"]
    assert list(parts) == ["emission", "evaluation", "decision"]
    assert sum(p["critical_s"] for p in parts.values()) == pytest.approx(phases["detection"]["critical_s"])
    assert parts["evaluation"]["critical_s"] == pytest.approx(25.3)
    assert phases["start"]["parts"]["weights"]["duration_s"] == 30.0
    json.dumps(entry, allow_nan=False)


def test_order_and_doubles_of_observations_change_nothing(tmp_path):
    entries = []
    for i, options in enumerate(({}, {"shuffle": 3}, {"shuffle": 4, "double": True})):
        entry = run_entry(analyse_run(build(tmp_path / f"run{i}", Case(), **options)))
        entry.pop("path")
        entries.append(entry)
    assert entries[0] == entries[1] == entries[2]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    provisioning=st.floats(60, 200),
    pull=st.floats(0, 400),
    download=st.floats(0, 300),
    start=st.floats(5, 100),
    scale=st.sampled_from([1.0, 20.0]),
    ready_logs=st.booleans(),
    unit_labels=st.booleans(),
    logs=st.booleans(),
)
def test_truth_lies_within_every_bound(
    tmp_path_factory, provisioning, pull, download, start, scale, ready_logs, unit_labels, logs
):
    unit = Unit(
        "i-1", provisioning_s=provisioning, pull_s=pull, download_s=download, start_s=start, weights_s=start / 2
    )
    case = Case(
        units=[unit], time_scale=scale, ready_logs=ready_logs and logs, unit_labels=unit_labels, container_logs=logs,
        end_s=400.0, burst_rate=6.0, unit_rate=2.5,
    )  # fmt: skip
    analysis = analyse_run(build(tmp_path_factory.mktemp("run") / "r", case))
    assert_sums(analysis)
    times = case.times(unit)
    for anchor in analysis.scale_outs[0].anchors:
        if anchor.anchor in times:
            truth = EPOCH + times[anchor.anchor] * S
            assert anchor.lo_us - 1 <= truth <= anchor.hi_us + 1, anchor
    joint = rows_of(analysis).get("provisioning+pull")
    if joint is not None:
        walked = provisioning + pull if pull >= download else provisioning
        assert joint.critical_lo_us - 1 <= walked * S <= joint.critical_hi_us + 1
    assert "contradiction" not in codes(analysis)


def test_time_shift_moves_instants_and_nothing_else(tmp_path, monkeypatch):
    first = run_entry(analyse_run(build(tmp_path / "a", Case())))
    monkeypatch.setattr(run_builder, "EPOCH", EPOCH + 86_400 * S)
    second = run_entry(analyse_run(build(tmp_path / "b", Case())))
    assert first["scale_outs"][0]["phases"] == second["scale_outs"][0]["phases"]
    assert first["scale_outs"][0]["onset"] != second["scale_outs"][0]["onset"]


def test_unlabelled_reports_hold_for_either_unit(tmp_path):
    units = [Unit("i-1", download_s=160.0), Unit("i-2", download_s=168.0)]
    analysis = analyse_run(build(tmp_path / "run", Case(units=units, unit_labels=False)))
    assert_sums(analysis)
    download = rows_of(analysis)["download"]
    assert download.lo_us <= 160 * S
    assert download.hi_us >= 168 * S


def test_without_reported_metrics_the_download_is_unknown(tmp_path):
    analysis = analyse_run(build(tmp_path / "run", Case(promql=False)))
    assert_sums(analysis)
    rows = rows_of(analysis)
    assert rows["download"].duration_us is None
    assert rows["provisioning+pull"].critical_lo_us == 0
    assert "start" not in rows
    assert rows["start+registration"].critical_us > 0


def test_without_container_logs_one_joint_phase_is_left(tmp_path):
    analysis = analyse_run(build(tmp_path / "run", Case(promql=False, container_logs=False)))
    assert_sums(analysis)
    rows = rows_of(analysis)
    assert set(rows) == {"detection", "provisioning+pull+download+start+registration", "unattributed"}


def test_without_activities_polled_counts_date_the_decision(tmp_path):
    case = Case(activities=False)
    analysis = analyse_run(build(tmp_path / "run", case))
    assert_sums(analysis)
    found = analysis.scale_outs[0]
    assert found.decision.method == "polled"
    assert found.decision.lo_us <= EPOCH + case.decision_s * S <= found.decision.hi_us
    assert (found.units_before, found.units_desired) == (1, 3)


def test_capacity_never_reached_is_censored_and_said(tmp_path):
    analysis = analyse_run(build(tmp_path / "run", Case(complete=False)))
    found = analysis.scale_outs[0]
    assert found.censored
    assert found.time_to_capacity_us is None
    assert "censored" in codes(analysis)
    assert run_entry(analysis)["scale_outs"][0]["time_to_capacity_s"] is None


def test_contradicting_report_is_dropped_and_both_are_named(tmp_path):
    # The whole window is 453 s; a download of 900 s cannot have been in it.
    path = build(tmp_path / "run", Case())
    for shard in (path / "observations").glob("*.parquet"):
        frame = pl.read_parquet(shard)
        long = pl.when(pl.col("anchor") == "download_finished").then(900 * S).otherwise(pl.col("duration_us"))
        frame.with_columns(long.alias("duration_us")).write_parquet(shard)
    analysis = analyse_run(path)
    assert_sums(analysis)
    texts = [f.text for f in analysis.findings if f.code == "contradiction"]
    assert texts
    assert all("promql:model_download_time" in text and "application-autoscaling:activity" in text for text in texts)


def pull_rows(case, unit):
    from run_builder import observation

    launched = case.decision_s + unit.provisioning_s
    times = {
        "launched": launched,
        "pull_started": launched + 2,
        "pull_finished": launched + 2 + unit.pull_s,
        "download_started": launched,
        "download_finished": launched + unit.download_s,
        "container_started": launched + 2 + max(unit.pull_s, unit.download_s),
        "ready": launched + 2 + max(unit.pull_s, unit.download_s) + unit.start_s,
    }
    rows = [
        observation(case, "kubernetes:event", anchor, t, t, "event", "node", f"{unit.name}:{anchor}", unit_id=unit.name)
        for anchor, t in times.items()
    ]
    return rows, times


@pytest.mark.parametrize(("pull", "download"), [(100.0, 40.0), (40.0, 100.0)])
def test_platforms_that_date_the_pull_get_it_split(tmp_path, monkeypatch, pull, download):
    unit = Unit("pod-1", provisioning_s=60.0, pull_s=pull, download_s=download, start_s=20.0)
    case = Case(units=[unit], end_s=420.0)
    monkeypatch.setattr(run_builder, "unit_rows", lambda case, unit: pull_rows(case, unit)[0])
    monkeypatch.setattr(run_builder, "polled_rows", lambda case: [])
    monkeypatch.setattr(Case, "in_service_s", property(lambda self: pull_rows(self, unit)[1]["ready"]))
    analysis = analyse_run(build(tmp_path / "run", case))
    assert_sums(analysis)
    rows = rows_of(analysis)
    assert rows["provisioning"].critical_us == 60 * S
    longer, shorter = ("pull", "download") if pull > download else ("download", "pull")
    assert rows[longer].critical_us == 100 * S
    assert rows[shorter].critical_us == 0
    assert rows["pull"].duration_us == pull * S
    assert "provisioning+pull" not in rows
    if longer == "pull":
        assert rows["wait:pull"].critical_us == 2 * S


def test_killed_replay_is_analysed_and_told(tmp_path):
    path = build(tmp_path / "run", Case(), state="running")
    shard = next((path / "requests").glob("*.parquet"))
    frame = pl.read_parquet(shard)
    frame.head(3000).write_parquet(shard)
    (path / "requests" / "torn-1-000000.parquet").write_bytes(b"PAR1 torn")
    analysis = analyse_run(path)
    assert {"unfinished", "rows-lost", "damaged-files"} <= codes(analysis)
    assert analysis.fidelity["recomputed"]
    assert analysis.fidelity["verdict"] == "INVALID"
    assert_sums(analysis)
    assert analysis.scale_outs[0].time_to_capacity_us is not None


def test_silent_collector_is_told(tmp_path):
    path = build(tmp_path / "run", Case())
    shard = next((path / "samples").glob("*.parquet"))
    pl.read_parquet(shard).head(20).write_parquet(shard)
    silent = next(f for f in analyse_run(path).findings if f.code == "collector-silent")
    assert "collector silent from 14:14:55" in silent.text


def test_empty_run_says_what_is_missing(tmp_path):
    from traces.manifest import Manifest

    RunDir.create(tmp_path / "run", Manifest(run_id="empty"))
    analysis = analyse_run(tmp_path / "run")
    assert {"no-trace", "no-requests", "no-observations", "no-collector", "no-scale-out"} <= codes(analysis)
    entry = run_entry(analysis)
    assert entry["scale_outs"] == []
    assert entry["verdict"] is None


def test_not_a_run_directory_is_bad_input(tmp_path):
    with pytest.raises(BadInputError, match="not a run directory"):
        analyse_run(tmp_path)


def test_load_high_from_the_start_begins_at_its_first_request(tmp_path):
    case = replace(Case(), base_rate=12.0, onset_s=0.0, breach_start_s=0.0)
    analysis = analyse_run(build(tmp_path / "run", case))
    onset = analysis.scale_outs[0].onset
    assert onset.how == "load-start"
    assert onset.at_us - EPOCH < 1 * S
    assert_sums(analysis)


def more_steps(case, extra):
    """A second activity, taken while the first is under way, that brings the last unit."""
    from run_builder import observation

    rows = []
    before, total = case.units_before, case.units_before + len(case.units)
    ends = sorted(case.times(u)["in_service"] for u in case.units)
    plan = [("act-1", case.decision_s, total - 1, ends[-2]), ("act-2", case.decision_s + extra, total, ends[-1])]
    for name, decided, desired, end in plan:
        detail = {
            "desired": desired,
            "cause": "monitor alarm TargetTracking-demo-AlarmHigh",
            "status_code": "Successful",
        }
        source = "application-autoscaling:activity"
        rows.append(observation(case, source, "decision", decided, decided, "event", "service", f"{name}:decision",
                                scaling_id=name, detail=detail))  # fmt: skip
        rows.append(observation(case, source, "in_service", decided, end + 0.5, "event", "service",
                                f"{name}:in_service", scaling_id=name, detail=detail))  # fmt: skip
    assert before < total
    return rows


def test_a_second_step_before_the_first_is_done_is_staging(tmp_path, monkeypatch):
    units = [Unit("i-1"), Unit("i-2", provisioning_s=180.0)]
    case = Case(units=units, end_s=1000.0)
    whole = run_builder.observations_of

    def in_two_steps(case):
        others = [r for r in whole(case) if r["source"] != "application-autoscaling:activity"]
        return others + more_steps(case, 60.0)

    monkeypatch.setattr(run_builder, "observations_of", in_two_steps)
    analysis = analyse_run(build(tmp_path / "run", case))
    assert_sums(analysis)
    assert len(analysis.scale_outs) == 1
    rows = rows_of(analysis)
    assert analysis.scale_outs[0].marginal_unit == "i-2"
    assert rows["staging"].critical_us == 60 * S
    assert rows["provisioning+pull"].duration_us == pytest.approx((180 - 60 + 333) * S, abs=S)


def with_steps(monkeypatch, extra):
    whole = run_builder.observations_of

    def stepped(case):
        others = [r for r in whole(case) if r["source"] != "application-autoscaling:activity"]
        return others + more_steps(case, extra)

    monkeypatch.setattr(run_builder, "observations_of", stepped)


def test_a_later_step_of_a_burst_that_goes_on_counts_from_the_bursts_onset(tmp_path, monkeypatch):
    """The first step was fulfilled, and too little: what the second brings ends the same wait."""
    with_steps(monkeypatch, 600.0)
    units = [Unit("i-1"), Unit("i-2", provisioning_s=720.0)]
    analysis = analyse_run(build(tmp_path / "run", Case(units=units, end_s=1500.0)))
    assert_sums(analysis)
    first, second = analysis.scale_outs
    assert (first.onset.how, second.onset.how, second.onset.at_us) == ("change-point", "same-burst", first.onset.at_us)
    assert (first.burst, second.burst) == (0, 0)
    assert second.time_to_capacity_us == first.time_to_capacity_us + 600 * S
    rows = rows_of(analysis, 1)
    assert rows["detection"].critical_us == rows_of(analysis, 0)["detection"].critical_us
    assert rows["staging"].critical_us == 600 * S
    assert second.decision.at_us - first.decision.at_us == 600 * S
    # The burst's damage is counted once.
    assert (first.cost is None, second.cost is None) == (False, True)
    assert "no-onset" not in codes(analysis)


def thinned(arrivals, since_s):
    rng = random.Random(8)
    return [t for t in arrivals if t < since_s or rng.random() < 0.05]


def test_a_later_step_after_the_burst_has_no_onset_of_its_own(tmp_path, monkeypatch):
    with_steps(monkeypatch, 600.0)
    steady = run_builder.arrivals_of
    monkeypatch.setattr(run_builder, "arrivals_of", lambda case: thinned(steady(case), 700))
    units = [Unit("i-1"), Unit("i-2", provisioning_s=720.0)]
    analysis = analyse_run(build(tmp_path / "run", Case(units=units, end_s=1500.0)))
    assert analysis.scale_outs[1].onset is None
    assert "no-onset" in codes(analysis)


def test_the_onset_is_the_rise_that_exceeded_capacity(tmp_path, monkeypatch):
    """Demand rises twice, the second time by more; the first rise already was beyond what one unit can do."""

    def ramp(case):
        rng = random.Random(3)
        times, t = [], 0.0
        while t < case.end_s:
            t += rng.expovariate(1.0 if t < 60 else (7.0 if t < 130 else 40.0))
            times.append(t)
        return times[:-1]

    monkeypatch.setattr(run_builder, "arrivals_of", ramp)
    analysis = analyse_run(build(tmp_path / "run", Case(end_s=720.0)))
    onset = analysis.scale_outs[0].onset
    assert onset.lo_us - EPOCH <= 60 * S <= onset.hi_us - EPOCH
    assert onset.at_us - EPOCH == pytest.approx(60 * S, abs=6 * S)
    assert_sums(analysis)


def test_each_units_own_path_sums_and_definitions_stand_side_by_side(tmp_path):
    units = [Unit("i-1"), Unit("i-2", provisioning_s=150.0), Unit("i-3", provisioning_s=300.0)]
    case = Case(units=units, burst_rate=12.0, unit_rate=4.5, end_s=1700.0)
    analysis = analyse_run(build(tmp_path / "run", case), Objective(ttft_us=5 * S), price_per_unit_hour=3.6)
    found = analysis.scale_outs[0]
    for unit in found.units:
        assert sum(unit.critical_us.values()) == unit.total_us
    entry = run_entry(analysis)["scale_outs"][0]
    json.dumps(entry, allow_nan=False)
    reached = entry["reached"]
    # Three units do for the demand, of four asked for: the marginal one is not the last.
    assert found.marginal_unit == "i-2"
    assert reached["in_service"]["s"] == entry["time_to_capacity_s"]
    assert reached["capacity_covers_demand"]["s"] == pytest.approx(reached["in_service"]["s"], abs=6)
    assert reached["all_in_service"]["s"] - reached["in_service"]["s"] == pytest.approx(150, abs=6)
    assert reached["first_served"] is None
    assert reached["backlog_drained"]["s"] > reached["all_in_service"]["s"]
    assert reached["slo_recovered"]["s"] == pytest.approx(reached["backlog_drained"]["s"], abs=120)
    phases = entry["user_cost"]["phases"]
    assert next(iter(phases)) == "detection"
    assert list(phases)[-1] == "recovery"
    inside = sum(p["requests"] for p in phases.values())
    assert entry["user_cost"]["violations"] == sum(p["late"] for p in phases.values()) <= inside
    assert entry["user_cost"]["attained"] == pytest.approx(1 - entry["user_cost"]["violations"] / inside)
    assert entry["user_cost"]["idle_money"] == pytest.approx(entry["user_cost"]["idle_unit_s"] / 1000)


def test_a_failed_activity_is_told_and_its_retry_goes_on_in_the_same_scale_out(tmp_path, monkeypatch):
    whole = run_builder.observations_of

    def with_failure(case):
        detail = {"desired": 3, "status_code": "Failed", "status_message": "no capacity of that type"}
        source = "application-autoscaling:activity"
        failed = [
            run_builder.observation(case, source, anchor, at, at, "event", "service", f"act-0:{suffix}",
                                    scaling_id="act-0", detail=detail)
            for anchor, suffix, at in (("decision", "decision", 168.0), (None, "not-scaled", 168.0))
        ]  # fmt: skip
        return failed + whole(case)

    monkeypatch.setattr(run_builder, "observations_of", with_failure)
    analysis = analyse_run(build(tmp_path / "run", Case(counts=False)))
    assert_sums(analysis)
    assert len(analysis.scale_outs) == 1
    assert rows_of(analysis)["staging"].critical_us == 2_400_000
    assert any("no capacity of that type" in f.text for f in analysis.findings)


def test_scale_in_and_old_activities_are_no_scale_outs(tmp_path, monkeypatch):
    whole = run_builder.observations_of

    def with_others(case):
        source = "application-autoscaling:activity"
        others = [("act-old", -4000.0, 2, 1), ("act-in", 890.0, 1, 3)]
        return whole(case) + [
            run_builder.observation(case, source, "decision", at, at, "event", "service", f"{name}:decision",
                                    scaling_id=name, detail={"desired": desired})
            for name, at, desired, _ in others
        ]  # fmt: skip

    monkeypatch.setattr(run_builder, "observations_of", with_others)
    analysis = analyse_run(build(tmp_path / "run", Case()))
    assert [s.scaling_id for s in analysis.scale_outs] == ["act-1"]


def test_alarm_stamped_after_its_decision_is_reported_and_left_out(tmp_path):
    analysis = analyse_run(build(tmp_path / "run", Case(alarm_s=170.9)))
    assert_sums(analysis)
    assert "contradiction" in codes(analysis)
    assert analysis.scale_outs[0].startup_us == 525_500_000


def test_weights_are_those_of_the_innermost_engine_and_ready_is_the_last_line(tmp_path, monkeypatch):
    whole = run_builder.unit_rows

    def with_lines(case, unit):
        started = case.times(unit)["container_started"]
        lines = [
            ("djl", "load_started", 1.0, None), ("vllm", "load_started", 22.0, None),
            ("vllm", "load_finished", 52.0, 30.0), ("vllm", "load_finished", 52.4, 30.4),
            ("djl", "load_finished", 71.7, 71.7), ("vllm", "ready", 70.0, None), ("djl", "ready", 71.8, None),
        ]  # fmt: skip
        return whole(case, unit) + [
            run_builder.observation(
                case, "logs:pattern", anchor, started + after, started + after, "event", "instance",
                f"{unit.name}:{engine}:{anchor}:{after}", unit_id=unit.name, detail={"engine": engine, "pattern": "x"},
                duration_us=None if length is None else round(length * S), resolution_us=1000,
            )
            for engine, anchor, after, length in lines
        ]  # fmt: skip

    monkeypatch.setattr(run_builder, "unit_rows", with_lines)
    analysis = analyse_run(build(tmp_path / "run", Case()))
    assert_sums(analysis)
    assert "contradiction" not in codes(analysis)
    weights = next(row for row in analysis.scale_outs[0].phases if row.phase == "weights")
    assert weights.duration_us == 30 * S
    # First line 0.25 s after the start, last 71.8 s after it.
    assert rows_of(analysis)["start"].duration_us == 71_550_000


def test_a_snapshot_of_another_shape_is_no_obstacle(tmp_path):
    run = build(tmp_path / "r", Case())
    for name in ("describe-endpoint-first", "describe-endpoint-config", "describe-model"):
        (run / "snapshots").mkdir(exist_ok=True)
        (run / "snapshots" / f"{name}.json").write_text('{"ProductionVariants": [3], "PrimaryContainer": 4}')
    found = analyse_run(run)
    assert found.scale_outs[0].time_to_capacity_us is not None


def read_afterwards(path, monkeypatch):
    """Make a run as it is read once all is over: three units are described, and nobody polled while they came."""
    case = Case()
    told = run_builder.observations_of(case)
    rows = [row for row in told if row["source"] != "sagemaker:describe-endpoint"]
    assert len(rows) < len(told)
    monkeypatch.setattr(run_builder, "observations_of", lambda _: rows)
    run = build(path, case)
    sent_us = case.clock.to_client_us(EPOCH + 3000 * S)
    stamp = {"_ramptrace": {"sent_us": sent_us, "received_us": sent_us + 5000}}
    RunDir.open(run).write_snapshot("describe-endpoint-first", run_builder.endpoint(3) | stamp)
    return analyse_run(run)


def test_what_is_described_after_all_is_over_was_not_so_at_the_start(tmp_path, monkeypatch):
    (found,) = read_afterwards(tmp_path / "run", monkeypatch).scale_outs
    assert (found.units_before, found.units_desired) == (None, 3)
    assert found.startup_us == pytest.approx(525 * S, abs=2 * S)


def test_a_scale_in_is_none_where_the_units_before_are_unknown(tmp_path, monkeypatch):
    name = "TargetTracking-endpoint/demo/variant/AllTraffic-AlarmLow-1"
    said = {"desired": 2, "status_code": "Successful", "alarm_name": name}
    fell = ("application-autoscaling:activity", "decision", 5, 5, "reported", "service", "low")
    case = Case()
    row = observation(case, *fell, detail=said, scaling_id="low")
    plain = run_builder.observations_of
    monkeypatch.setattr(run_builder, "observations_of", lambda c: [row, *plain(c)])
    (found,) = read_afterwards(tmp_path / "run", monkeypatch).scale_outs
    assert (found.units_before, found.units_desired) == (2, 3)


def test_an_interrupted_load_ends_with_what_was_sent_not_with_what_was_planned(tmp_path):
    inputs = open_run(build(tmp_path / "r", Case(), state="interrupted"))
    stopped = to_datetime(EPOCH + 200 * S)
    sent = pl.when(pl.col("due") <= stopped).then("sent")
    inputs = msgspec.structs.replace(
        inputs,
        requests=inputs.requests.with_columns(sent=sent),
        samples=inputs.samples.filter((pl.col("metric") != "heartbeat") | (pl.col("received") <= stopped)),
    )
    assert not inputs.samples.filter(pl.col("metric") == "heartbeat").is_empty()
    assert "collector-silent" not in codes(analyse(inputs))


@pytest.mark.parametrize("source", ["sagemaker:describe-endpoint", "eventbridge"])
def test_an_endpoint_that_follows_the_decision_contradicts_nothing(tmp_path, source):
    """The endpoint's own status changes when the scaler's call is accepted, by whichever way it is told."""
    case = Case()
    path = build(tmp_path / "run", case)
    followed_s = case.decision_s + 0.3
    told = observation(case, source, "decision", followed_s, followed_s, "event", "service", "variant-status:1")
    write(RunDir(path), "observations", [told])
    analysis = analyse_run(path)
    assert [f for f in analysis.findings if f.code == "contradiction"] == []
    decision = next(a for a in analysis.scale_outs[0].anchors if a.anchor == "decision")
    assert decision.at_us == EPOCH + round(case.decision_s * S)
