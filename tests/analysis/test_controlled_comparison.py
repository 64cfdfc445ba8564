"""Difference in differences: exact on made data, right as often as it says, refused where a control is none."""

from __future__ import annotations

import json
import random

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from run_builder import Case, S, Unit, after_case, build

from analysis.analyse import analyse_run
from analysis.compare import compare_runs
from analysis.compare_entry import comparison_entry
from analysis.controlled import difference_in_differences
from ramptrace import cli
from traces.errors import BadInputError

ARM = st.lists(st.integers(1, 2000), min_size=1, max_size=9)
INELIGIBLE = {"instance_type": "ml.m5.2xlarge", "trace_sha": "ab" * 32}


def control_before(**changes):
    return Case(run_id="c-before", seed=3, **{**INELIGIBLE, **changes})


def control_after(**changes):
    """The same hours, no cache: ten seconds shorter for reasons of its own."""
    units = [Unit("i-c", provisioning_s=109.0), Unit("i-d", provisioning_s=110.0)]
    return after_case(run_id="c-after", seed=4, units=units, **{**INELIGIBLE, **changes})


def analysed(tmp_path, *cases):
    return [analyse_run(build(tmp_path / f"run{i}-{case.run_id}", case)) for i, case in enumerate(cases)]


@given(ARM, ARM, ARM, ARM, st.integers(-500, 500))
def test_what_happens_everywhere_is_no_effect(before, after, control_before, control_after, drift):
    """A drift of all that came after, in runs and controls alike, changes nothing; of the runs alone, it is effect."""
    found = difference_in_differences((before, after), (control_before, control_after))
    moved = difference_in_differences(
        (before, [v - drift for v in after]), (control_before, [v - drift for v in control_after])
    )
    assert moved.effect_s == pytest.approx(found.effect_s)
    alone = difference_in_differences((before, [v - drift for v in after]), (control_before, control_after))
    assert alone.effect_s == pytest.approx(found.effect_s + drift)
    assert found.effect_s == pytest.approx(found.runs_s - found.controls_s)
    if found.effect_ci_s is not None:
        assert moved.effect_ci_s == pytest.approx(found.effect_ci_s)
        assert found.effect_ci_s[0] <= found.effect_ci_s[1]


@given(ARM, ARM)
def test_runs_that_are_their_own_controls_show_nothing(before, after):
    found = difference_in_differences((before, after), (before, after))
    assert found.effect_s == 0
    assert found.verdict != "different"


def test_the_interval_holds_the_effect_as_often_as_it_says():
    """200 experiments of 8 scale-outs in each arm, 10 % of scatter: 267 s of effect, 40 s of drift everywhere."""
    chance = random.Random(7)
    held = 0
    for _ in range(200):
        arms = [[mean * chance.lognormvariate(0, 0.1) for _ in range(8)] for mean in (525, 218, 700, 660)]
        found = difference_in_differences((arms[0], arms[1]), (arms[2], arms[3]))
        assert found.verdict == "different"
        held += found.effect_ci_s[0] <= 267 <= found.effect_ci_s[1]
    assert held >= 0.93 * 200


def test_three_scale_outs_per_arm_are_too_few_for_a_verdict():
    arm, shorter = [500.0, 501.0, 502.0], [100.0, 101.0, 102.0]
    assert difference_in_differences((arm, shorter), (arm, arm)).verdict == "insufficient"


def test_the_controls_take_off_what_changed_everywhere(tmp_path):
    cases = (Case(), after_case(), control_before(), control_after())
    before, after, *controls = analysed(tmp_path, *cases)
    comparison = compare_runs([before, after], controls)
    assert comparison.pairs[0].delta_us == 267 * S
    (found,) = comparison.controlled
    assert (found.before, found.after) == ("image-cache-off", "image-cache-on")
    startup = found.outcomes["startup"]
    assert (startup.runs_s, startup.controls_s, startup.effect_s) == (267, 10, 257)
    assert (startup.verdict, startup.effect_ci_s) == ("insufficient", None)
    assert "parallel trends" in found.notes[0]
    entry = comparison_entry(comparison)
    json.dumps(entry, allow_nan=False)
    assert entry["controlled"][0]["outcomes"]["startup"]["effect_s"] == 257
    assert [run["condition"] for run in entry["controls"]] == ["image-cache-off", "image-cache-on"]


def test_the_command_says_it_in_the_terminal_and_on_the_page(tmp_path):
    paths = [
        str(build(tmp_path / name, case))
        for name, case in zip("abcd", (Case(), after_case(), control_before(), control_after()), strict=True)
    ]
    page = tmp_path / "page.html"
    done = CliRunner().invoke(
        cli, ["compare", *paths[:2], "--control", paths[2], "--control", paths[3], "-o", str(page)]
    )
    assert done.exit_code == 0, done.output
    for text in (done.output, page.read_text()):
        for part in ("Against the controls", "257.0", "267.0", "10.0", "too few", "parallel trends"):
            assert part in text.replace("\n", " "), part
    assert max(len(line) for line in done.output.splitlines() if not line.startswith("report:")) <= 80


@pytest.mark.parametrize(
    ("controls", "message"),
    [
        ((control_before(trace_sha="cd" * 32), control_after(trace_sha="cd" * 32)), "trace"),
        ((control_before(emulated=False), control_after(emulated=False)), "emulated"),
        ((control_before(), control_after(instance_type="ml.m5.4xlarge")), "instance type"),
        ((control_before(condition="off"), control_after(condition="on")), "conditions of the runs"),
        ((control_before(complete=False), control_after()), "no scale-out"),
    ],
)
def test_what_is_no_control_is_refused(tmp_path, controls, message):
    before, after, *rest = analysed(tmp_path, Case(), after_case(), *controls)
    with pytest.raises(BadInputError, match=message):
        compare_runs([before, after], rest)


def test_a_run_is_not_its_own_control(tmp_path):
    before, after = analysed(tmp_path, Case(), after_case())
    with pytest.raises(BadInputError, match="name it once"):
        compare_runs([before, after], [before, after])


def test_a_control_of_other_hours_is_refused(tmp_path, monkeypatch):
    import run_builder

    real = {"emulated": False}
    runs = analysed(tmp_path, Case(**real), after_case(**real))
    monkeypatch.setattr(run_builder, "EPOCH", run_builder.EPOCH + 5 * 3600 * S)
    controls = analysed(tmp_path, control_before(**real), control_after(**real))
    with pytest.raises(BadInputError, match="hours"):
        compare_runs(runs, controls)


def test_a_control_of_the_same_type_is_said_to_be_one_only_perhaps(tmp_path):
    same = {"instance_type": "ml.g6.2xlarge"}
    before, after, *rest = analysed(tmp_path, Case(), after_case(), control_before(**same), control_after(**same))
    assert "same instance type" in compare_runs([before, after], rest).controlled[0].notes[1]
