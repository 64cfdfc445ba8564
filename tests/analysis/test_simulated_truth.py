"""Scale-outs simulated in virtual time, held to the simulation's truth: bounds, sums, and who had its image cached."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from analysis.analyse import analyse_run
from analysis.arms import arms_of
from analysis.cache import SURE, arm_odds
from analysis.compare import compare_runs
from tests.truth import true_length
from traces.clock import to_us

pytestmark = pytest.mark.timeout(300)

SCENARIO = """
name = "{name}"
[trace]
path = "corpus:reference-burst"
[target]
kind = "sagemaker"
endpoint_name = "demo"
region = "us-east-1"
[emulator_model.startup]
image_cache = {cache}
image_cache_miss_share = {missed}
provisioning_jitter_s = 6.0
[run]
condition = "{name}"
"""


def simulated(folder, name, cache, missed, seeds):
    (folder / f"{name}.toml").write_text(SCENARIO.format(name=name, cache=cache, missed=missed))
    command = [sys.executable, "-m", "ramptrace", "simulate", f"{name}.toml", "--seeds", str(seeds), "--run-dir", name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    paths = sorted((folder / name).glob("seed-*"))
    assert len(paths) == seeds
    return [analyse_run(path) for path in paths]


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    return simulated(folder, "uncached", "false", 0.0, 3), simulated(folder, "half", "true", 0.5, 6)


def truth_of(run):
    rows = pl.read_parquet(run.path / "truth.parquet").sort("at").iter_rows(named=True)
    found = {}
    for row in rows:
        found.setdefault((row["unit_id"], row["anchor"]), to_us(row["at"]))
    return found


def test_every_anchor_and_phase_holds_the_truth_and_shares_sum(arms):
    outside, checked = [], 0
    for run in [*arms[0], *arms[1]]:
        truth, found = truth_of(run), run.scale_outs[0]
        assert sum(r.critical_us for r in found.phases if r.parent is None) == found.time_to_capacity_us
        for anchor in found.anchors:
            at = truth.get((anchor.unit_id, anchor.anchor))
            if at is not None:
                checked += 1
                if not (anchor.lo_us or 0) <= at <= (anchor.hi_us or 2**62):
                    outside.append((run.path.name, anchor.anchor))
        for row in found.phases:
            length = true_length(truth, row.phase, found.marginal_unit)
            if length is not None:
                checked += 1
                if not row.lo_us <= length <= row.hi_us:
                    outside.append((run.path.name, row.phase))
    assert checked > 100
    assert outside == []


def test_the_odds_tell_which_units_pulled(arms):
    before, after = arms_of([*arms[0], *arms[1]])
    units = [(event.run, unit) for event in after.events for unit in event.scale_out.units]
    odds = arm_odds([unit for _, unit in units], before.units())
    pulled = 0
    for (run, unit), o in zip(units, odds, strict=True):
        truth = truth_of(run)
        took = truth[unit.unit_id, "pull_finished"] - truth[unit.unit_id, "pull_started"]
        pulled += took > 5_000_000
        assert (o.probability >= SURE) == (took <= 5_000_000)
    assert 0 < pulled < len(units)


def test_the_pairs_pull_holds_the_true_one_on_both_sides(arms):
    pair = compare_runs([*arms[0], *arms[1]]).pairs[0]
    assert pair.pull.before_lo_us <= 333_000_000 <= pair.pull.before_hi_us
    event = arms_of(arms[1])[0].representative()
    truth = truth_of(event.run)
    took = truth[event.unit.unit_id, "pull_finished"] - truth[event.unit.unit_id, "pull_started"]
    assert pair.pull.after_lo_us <= took <= pair.pull.after_hi_us
    assert pair.split.structural + pair.split.relief + pair.split.rest == pair.delta_us
