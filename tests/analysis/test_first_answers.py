"""When the marginal unit first answered: by requests that name it, else by the platform, else not known."""

from __future__ import annotations

import polars as pl
from run_builder import Case, S, build, observation, write

from analysis.analyse import analyse_run
from traces.run import RunDir


def first_answers(*, named: bool, told: bool, earlier_s: float = 0):
    """A run whose marginal unit first answered 12 s after it was in service, by its requests or by the platform."""

    def make(tmp_path):
        case = Case()
        path = build(tmp_path / "run", case)
        unit = max(case.units, key=lambda u: case.times(u)["in_service"])
        served_s = case.in_service_s + 12
        rows = []
        if told:
            metric = ("cloudwatch:by-instance", "first_served")
            told_s = served_s - earlier_s
            for lo, hi, name in ((told_s - 8, None, "arrived"), (None, told_s + 2, "answered")):
                rows.append(
                    observation(case, *metric, lo, hi, "derived", "service", f"{unit.name}:{name}", unit_id=unit.name)
                )
            write(RunDir(path), "observations", rows)
        if named:
            run = RunDir(path)
            late = run.scan("requests").filter(pl.col("first_token") >= case.client(served_s)).collect()
            files = list((path / "requests").glob("*.parquet"))
            frame = run.scan("requests").collect()
            chosen = late.sort("first_token")["row_id"][0]
            marked = frame.with_columns(
                pl.when(pl.col("row_id") == chosen).then(pl.lit(unit.name)).otherwise(None).alias("unit_id")
            )
            for file in files:
                file.unlink()
            write(run, "requests", marked.to_dicts())
        found = analyse_run(path)
        return found.scale_outs[0], served_s - case.onset_s

    return make


def test_the_platform_tells_within_bounds_when_the_marginal_unit_first_answered(tmp_path):
    found, served_s = first_answers(named=False, told=True)(tmp_path)
    length = found.reached["first_served"]
    assert length.lo_us <= served_s * S <= length.hi_us
    assert length.hi_us - length.lo_us <= (found.onset.hi_us - found.onset.lo_us) + 11 * S
    (anchor,) = [a for a in found.anchors if a.anchor == "first_served"]
    assert anchor.unit_id == found.marginal_unit


def test_answers_that_name_their_unit_tell_more_exactly(tmp_path):
    found, served_s = first_answers(named=True, told=True)(tmp_path)
    length = found.reached["first_served"]
    assert served_s * S <= length.hi_us
    assert length.hi_us - length.lo_us == found.onset.hi_us - found.onset.lo_us


def test_others_may_have_been_answered_before(tmp_path):
    """The platform counted an answer of the unit 5 s before the first that this replay got from it."""
    found, served_s = first_answers(named=True, told=True, earlier_s=5)(tmp_path)
    assert found.reached["first_served"].hi_us < served_s * S


def test_without_either_it_is_not_known(tmp_path):
    found, _ = first_answers(named=False, told=False)(tmp_path)
    assert found.reached["first_served"] is None
