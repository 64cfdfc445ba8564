"""Parts of the report: the detection ladder, distributions, gaps, provenance, pictures, and what it all may weigh."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from run_builder import Case, Unit, after_case, at, build, observation, write

from analysis.analyse import analyse_run
from analysis.cli import report
from analysis.compare import compare_runs
from analysis.report.charts import demand_chart
from analysis.report.ecdf import ecdf_note, reached
from analysis.report.html import page, sections
from analysis.report.ladder import AlarmRule, alarm_rule, ladder
from analysis.report.pictures import write_pictures
from analysis.report.summary import capacity_bounds
from analysis.report.text import WIDTH, report_text
from traces.run import RunDir

EVIL = "</script><img src=x onerror=alert(1)>\"'&"
ALARM = {"ComparisonOperator": "GreaterThanThreshold", "Period": 10, "EvaluationPeriods": 3, "DatapointsToAlarm": 3}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    return [analyse_run(build(folder / "before", Case())), analyse_run(build(folder / "after", after_case()))]


@given(st.lists(st.floats(0.1, 1000).map(lambda x: round(x, 1)), min_size=1, max_size=30))
def test_without_censoring_the_share_is_that_of_the_sample(times):
    for t, share in reached(times, []):
        assert math.isclose(share, sum(x <= t for x in times) / len(times), abs_tol=6e-4)


@given(st.lists(st.integers(1, 50), min_size=1), st.lists(st.integers(1, 60)))
def test_shares_rise_and_stay_below_one_where_something_was_never_reached(times, censored):
    found = reached(times, censored)
    shares = [share for _, share in found]
    assert shares == sorted(shares)
    assert all(0 < share <= 1 for share in shares)
    if censored and max(censored) > max(times):
        assert shares[-1] < 1


def test_few_scale_outs_are_said_to_be_few(runs):
    note = ecdf_note(compare_runs(runs).pairs[0])
    assert "1 reached" in note
    assert "repeat the runs" in note


def test_the_rule_of_the_alarm_that_scales_out_is_read():
    low = ALARM | {"ComparisonOperator": "LessThanThreshold", "Period": 60, "DatapointsToAlarm": 15}
    assert alarm_rule({"alarms": {"MetricAlarms": [low, ALARM]}}) == AlarmRule(period_s=10, datapoints=3)
    assert alarm_rule({"alarms": {"MetricAlarms": [ALARM, ALARM | {"Period": 60}]}}) is None
    for broken in ({}, {"alarms": None}, {"alarms": {"MetricAlarms": [{}]}}):
        assert alarm_rule(broken) is None


def test_the_ladder_has_a_rung_per_part_of_detection(runs):
    (found,) = runs[0].scale_outs
    spec = ladder(found, AlarmRule(period_s=10, datapoints=3))
    bands, dots = spec["layer"][0]["data"]["values"], spec["layer"][-1]["data"]["values"]
    assert {b["rung"]: (b["lo"], b["hi"]) for b in bands} == {
        "first breaching period closed": (0, 20),
        "alarm fired": (20, 40),
    }
    case = Case()
    told = {dot["rung"]: dot["t"] for dot in dots}
    zero = found.onset.at_us
    assert told["alarm fired"] == pytest.approx((at(case.alarm_s).timestamp() * 1e6 - zero) / 1e6, abs=0.2)
    assert told["scaler decided"] == pytest.approx((found.decision.at_us - zero) / 1e6)
    assert "lo" not in dots[0]
    assert ladder(found, None) is not None


def test_the_first_figures_hold_their_bounds(runs):
    (found,) = runs[0].scale_outs
    low, high = (float(part) for part in capacity_bounds(found).removeprefix("within [").removesuffix("] s").split("…"))
    assert low <= found.time_to_capacity_us / 1e6 <= high


@pytest.mark.parametrize(("count", "told"), [(1, "demand rises"), (30, "30"), (90, "88")])
def test_of_many_scale_outs_each_has_a_number_and_no_words_lie_on_each_other(runs, count, told):
    (one,) = runs[0].scale_outs
    anchors = [
        tuple(msgspec.structs.replace(a, at_us=a.at_us + k * 400_000_000) for a in one.anchors) for k in range(count)
    ]
    many = tuple(
        msgspec.structs.replace(
            one,
            index=k,
            anchors=anchors[k],
            onset=msgspec.structs.replace(one.onset, at_us=one.onset.at_us + k * 400_000_000),
            decision=msgspec.structs.replace(one.decision, at_us=one.decision.at_us + k * 400_000_000),
        )
        for k in range(count)
    )
    chart = json.dumps(demand_chart(msgspec.structs.replace(runs[0], scale_outs=many)))
    words = [word for word in re.findall(r'"what": "([^"]*)"', chart) if word]
    assert any(told in word for word in words)
    assert len(set(words)) <= 30
    assert ("demand rises" in chart) == (count <= 3)


def test_gaps_and_provenance_are_told(tmp_path):
    path = build(tmp_path / "run", Case())
    gap = {"source": "logs", "start": at(300), "end": at(420), "reason": "throttled", "detail": "slow down"}
    open_gap = {"source": "promql", "start": at(500), "end": None, "reason": "denied", "detail": None}
    write(RunDir.open(path), "gaps", [gap, open_gap])
    text = page([analyse_run(path)], None)
    assert "When a source could not be read" in text
    assert "slow down" in text
    assert "2 min 0 s" in text
    assert "still lasting" in text
    assert "The scenario as it was resolved" in text
    assert "describe-endpoint-first" in text


def test_what_a_platform_or_a_trace_says_stays_text(tmp_path):
    case = Case(units=[Unit(EVIL), Unit("i-2")], condition=EVIL, name=EVIL)
    path = build(tmp_path / "run", case)
    run = RunDir.open(path)
    write(run, "gaps", [{"source": EVIL, "start": at(1), "end": at(2), "reason": "denied", "detail": EVIL}])
    evil_line = {"line": EVIL, "Code": EVIL}
    refused = observation(case, EVIL, None, 300, 300, "event", "service", f"{EVIL}:not-scaled", detail=evil_line)
    write(run, "observations", [refused])
    manifest = run.manifest()
    manifest.scenario = {"collect": {"endpoint_name": EVIL}}
    manifest.trace.source = EVIL
    manifest.versions = {EVIL: EVIL}
    manifest.verdict = {"status": "VALID", "reasons": [EVIL]}
    run.write_manifest(manifest)
    text = page([analyse_run(path)], None)
    assert EVIL not in text
    assert "<img" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert text.count("</script>") == 2, "the charts' data and the one script"


def test_pictures_are_the_pages_charts_with_title_and_key(runs, tmp_path):
    charts = sections(runs, compare_runs(runs))[1]
    files = write_pictures(charts, tmp_path / "pictures")
    assert {file.stem for file in files} == set(charts)
    for file in files:
        if file.suffix == ".png":
            assert file.read_bytes().startswith(b"\x89PNG")
            continue
        root = ET.fromstring(file.read_text())
        words = [element.text for element in root.iter() if element.tag.endswith("text")]
        assert charts[file.stem]["usermeta"]["title"] in words
        assert {text for _, text in charts[file.stem]["usermeta"]["keys"]} <= set(words)


def test_the_command_writes_pictures_and_prints_text(runs, tmp_path):
    paths = [str(run.path) for run in runs]
    done = CliRunner().invoke(report, [*paths, "--text", "--svg", str(tmp_path / "svg")], standalone_mode=False)
    assert done.exception is None
    assert done.stdout == f"{report_text(runs, compare_runs(runs))}\n"
    assert max(map(len, done.stdout.splitlines())) <= WIDTH
    assert "\x1b" not in done.stdout
    assert not (runs[0].path / "report.html").exists()
    assert len(list((tmp_path / "svg").glob("*.svg"))) > 5
    refused = CliRunner().invoke(report, [*paths, "--text", "--json"])
    assert "--text prints" in str(refused.exception)


def test_a_run_of_an_hour_weighs_under_three_megabytes(tmp_path):
    case = Case(end_s=3600.0, burst_rate=11.0)
    found = analyse_run(build(tmp_path / "run", case))
    assert found.request_count > 35_000
    assert len(page([found], None).encode()) < 3_000_000
