"""The example soak of `deploy/ci`, one burst of it: found, in the truth, passed; with a slower pull failed, and named.

All thirty bursts, by hand: `python -m tests.bench.ci_soak`.
"""

from __future__ import annotations

import pytest

from tests.soaking import SLOWER_PULL, outside, soak

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TIME_SCALE = 25
# A busy machine is not the matter here.
LENIENT = {"[gate]": "[verdict]\ninvalid_lag_p99_ms = 60000.0\ninvalid_untrusted_share = 1.0\n\n[gate]"}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return soak(tmp_path_factory.mktemp("soak") / "good", laps=1, time_scale=TIME_SCALE, changes=LENIENT)


def test_each_scale_out_is_found_and_holds_the_truth(good):
    assert good.code == 0, good.said
    analysis = good.analysis()
    assert len(analysis.scale_outs) == len(good.truth) == 1
    held, wrong = outside(analysis, good.truth)
    assert held >= 10
    assert wrong == []
    assert [finding.text for finding in analysis.findings if finding.code == "contradiction"] == []
    # The platform was no easy one: what could not be read is written down.
    assert {"throttled", "unreachable"} & set(analysis.gaps["reason"])


def test_the_gate_says_what_it_could_not_judge(good):
    skipped = {gate["expr"]: gate["reason"] for gate in good.gate["gates"] if gate["status"] == "skipped"}
    assert "baseline" in skipped["regression(start, baseline) < 20%"]
    assert "10 scale-outs" in skipped["hi(startup.p90) < 2m"]


def test_a_slower_pull_fails_the_gate_and_is_named(good, tmp_path):
    baseline = good.folder / "soak" / "run"
    found = soak(tmp_path / "slower", laps=1, time_scale=TIME_SCALE, changes=LENIENT | SLOWER_PULL, baseline=baseline)
    assert found.code == 3, found.said
    status = {gate["expr"]: gate["status"] for gate in found.gate["gates"]}
    assert status["regression(provisioning+pull, baseline) < 20%"] == "fail"
    assert status["regression(start, baseline) < 20%"] == "pass"
    worst = next(line for line in found.said.splitlines() if line.startswith("  fail "))
    assert "regression(provisioning+pull, baseline)" in worst
