"""Pairs of runs: the pull that only the pair shows, the split of the change, and refusals."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from run_builder import EPOCH, Case, S, Unit, after_case, build

from analysis.analyse import analyse_run
from analysis.compare import compare_runs
from analysis.compare_entry import comparison_entry
from traces.clock import to_datetime
from traces.errors import BadInputError
from traces.run import RunDir, ShardWriter


def analysed(tmp_path, *cases):
    return [analyse_run(build(tmp_path / f"run{i}", case)) for i, case in enumerate(cases)]


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_reference_pair(tmp_path, scale):
    runs = analysed(tmp_path, Case(time_scale=scale), after_case(time_scale=scale))
    comparison = compare_runs(runs)
    pair = comparison.pairs[0]
    assert pair.delta_us == 267 * S
    assert (pair.split.structural, pair.split.relief, pair.split.rest) == (165 * S, 91 * S, 11 * S)
    assert pair.pull.before_us == 333 * S
    assert pair.pull.before_lo_us <= 333 * S <= pair.pull.before_hi_us
    assert pair.pull.before_hi_us - pair.pull.before_lo_us < 16 * S
    assert (pair.pull.after_us, pair.pull.after_lo_us) == (0, 0)
    assert pair.sensitivity.elimination == (172 * S, 210.5 * S)
    assert pair.sensitivity.relief == (45.5 * S, 84 * S)
    assert comparison.confounders == ()
    entry = comparison_entry(comparison)
    json.dumps(entry, allow_nan=False)
    c = entry["compare"]
    assert (c["structural_s"] + c["relief_s"] + c["rest_s"], c["pull"]["method"]) == (c["delta_s"], "derived")
    assert c["pull"]["lo_s"] <= 333 <= c["pull"]["hi_s"]


def test_pull_hidden_behind_the_download_is_only_bounded(tmp_path):
    units = [Unit("i-1", pull_s=100.0, download_s=168.0)]
    after = [Unit("i-2", pull_s=0.0, download_s=168.0, start_s=61.0)]
    pair = compare_runs(analysed(tmp_path, Case(units=units), after_case(units=after))).pairs[0]
    assert pair.pull.before_us is None
    assert pair.pull.before_lo_us == 0
    assert pair.pull.before_hi_us >= 100 * S
    assert pair.split.structural == 0
    assert pair.split.structural + pair.split.relief + pair.split.rest == pair.delta_us
    assert "only bounded" in pair.notes[0]


def test_a_pull_that_exceeds_the_download_within_the_bounds_is_only_bounded(tmp_path):
    """The download hid the pull; provisioning that differs by chance must not make the difference a pull."""
    units = [Unit("i-1", provisioning_s=121.0, pull_s=50.0, download_s=220.0)]
    after = [Unit("i-2", provisioning_s=120.0, pull_s=0.0, download_s=77.0, start_s=61.0)]
    pair = compare_runs(analysed(tmp_path, Case(units=units), after_case(units=after))).pairs[0]
    assert pair.pull.before_us is None
    assert pair.pull.before_lo_us == 0
    assert pair.pull.before_hi_us >= 220 * S
    assert pair.sensitivity is None
    assert "only bounded" in pair.notes[0]


def test_arms_that_waited_differently_for_capacity_do_not_tell_the_pull(tmp_path):
    paths = [build(tmp_path / "b", Case()), build(tmp_path / "a", after_case())]
    start = to_datetime(EPOCH + 200 * S)
    row = {
        "source": "promql", "metric": "ice_count", "resource": "endpoint/demo", "unit_id": None, "start": start,
        "period_us": 0, "statistic": "Value", "value": 1.0, "received": start,
    }  # fmt: skip
    ShardWriter(RunDir(paths[1]), "samples", "more").write([row, row | {"start": to_datetime(EPOCH + 240 * S)}])
    runs = [analyse_run(path) for path in paths]
    assert [f.text for f in runs[1].findings if f.code == "capacity-errors"] != []
    pair = compare_runs(runs).pairs[0]
    assert (pair.pull, pair.split) == (None, None)
    assert "insufficient capacity 0× before and 2× after" in pair.notes[0]


def test_without_a_reported_download_only_totals_are_compared(tmp_path):
    pair = compare_runs(analysed(tmp_path, Case(promql=False), after_case())).pairs[0]
    assert (pair.pull, pair.split) == (None, None)
    assert pair.delta_us > 0
    assert "cannot be told" in pair.notes[0]


def test_runs_of_one_condition_form_an_arm(tmp_path):
    second = replace(
        Case(), run_id="again", seed=5, units=[Unit("i-7", provisioning_s=140.0), Unit("i-8", provisioning_s=141.0)]
    )
    comparison = compare_runs(analysed(tmp_path, Case(), second, after_case()))
    assert len(comparison.pairs) == 1
    pull = comparison.pairs[0].pull
    # Provisioning 20 s longer in one of the runs: the pull is that much less certain.
    assert pull.before_lo_us <= 333 * S <= pull.before_hi_us
    assert pull.before_hi_us - pull.before_lo_us > 20 * S


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"instance_type": "ml.g5.xlarge"}, "instance type"),
        ({"trace_sha": "cd" * 32}, "trace"),
        ({"emulated": False}, "emulated"),
        ({"complete": False}, "no scale-out"),
        ({"condition": "image-cache-off"}, "same|nothing to compare"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, change, message):
    with pytest.raises(BadInputError, match=message):
        compare_runs(analysed(tmp_path, Case(), after_case(**change)))


def test_other_differences_are_confounders(tmp_path):
    comparison = compare_runs(analysed(tmp_path, Case(), after_case(time_scale=20.0)))
    assert any("time scale" in text for text in comparison.confounders)


def test_a_unit_that_missed_the_cache_is_not_given_a_pull_of_zero(tmp_path):
    """One of two units fell back to an ordinary pull; it came last, so that it is the one that capacity waited for."""
    after = [Unit("i-hit", pull_s=0.0, download_s=77.0, start_s=61.0), Unit("i-miss", provisioning_s=120.0)]
    pair = compare_runs(analysed(tmp_path, Case(), after_case(units=after))).pairs[0]
    odds = {o.unit_id: o.probability for o in pair.odds}
    assert odds["i-hit"] > 0.99
    assert odds["i-miss"] < 0.05
    assert pair.pull.after_us == pytest.approx(333 * S, abs=2 * S)
    assert pair.pull.after_lo_us <= 333 * S <= pair.pull.after_hi_us
    assert pair.pull.before_us == pytest.approx(333 * S, abs=2 * S)
    assert pair.split.structural + pair.split.relief + pair.split.rest == pair.delta_us
    assert abs(pair.split.structural) < 4 * S
    assert "look like units that pulled" in pair.notes[-1]
    entry = comparison_entry(compare_runs(list(pair.runs_before + pair.runs_after)))["compare"]["image_cache"]
    assert entry["hit_rate"] == pytest.approx(0.5, abs=0.03)


def test_an_arm_that_missed_the_cache_altogether_leaves_the_pull_unknown(tmp_path):
    after = [Unit("i-1", provisioning_s=119.0), Unit("i-2", provisioning_s=121.0)]
    comparison = compare_runs(analysed(tmp_path, Case(), after_case(units=after)))
    pull = comparison.pairs[0].pull
    assert (pull.before_us, pull.after_us) == (None, None)
    assert pull.before_lo_us <= 333 * S <= pull.before_hi_us
    assert pull.after_lo_us <= 333 * S <= pull.after_hi_us
    assert all(0.3 < o.probability < 0.5 for o in comparison.pairs[0].odds)
    assert comparison_entry(comparison)["compare"]["pull"]["after_s"] is None


def test_the_explanation_sums_to_the_difference(tmp_path):
    pair = compare_runs(analysed(tmp_path, Case(), after_case())).pairs[0]
    assert sum(c.saved_us for c in pair.explained) == pair.capacity_before_us - pair.capacity_after_us
    assert {c.phase for c in pair.explained} >= {"detection", "provisioning+pull", "start"}


def test_a_run_that_never_got_its_capacity_is_censored_not_dropped(tmp_path):
    cases = [Case(run_id=f"b{i}", seed=i + 1) for i in range(2)] + [Case(run_id="b9", complete=False)]
    comparison = compare_runs(analysed(tmp_path, *cases, after_case()))
    found = comparison.pairs[0].statistics["time_to_capacity"]
    assert (found.censored_before, found.censored_after, found.effect) == (1, 0, None)
    assert found.restricted_mean["until"] == pytest.approx(298.9, abs=1)
    assert comparison_entry(comparison)["compare"]["statistics"]["time_to_capacity"]["verdict"] == "censored"


def test_too_few_scale_outs_for_a_verdict_are_said_to_be(tmp_path):
    found = compare_runs(analysed(tmp_path, Case(), after_case())).pairs[0].statistics["time_to_capacity"].effect
    assert (found.verdict, found.n_before, found.least_p) == ("insufficient", 1, 1.0)
