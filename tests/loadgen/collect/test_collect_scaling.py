"""Scaling activities change after they appeared: what is written last is what holds."""

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.collect.base import Answer, Reading
from loadgen.collect.journal import Journal
from loadgen.collect.scaling import activity_rows
from traces.manifest import Manifest
from traces.run import RunDir

BEGAN = datetime(2026, 7, 1, 10, 0, 0, 498_000, tzinfo=UTC)


def activity(code: str, ended_s: float | None = None, **more: object) -> dict:
    found = {
        "ActivityId": "a",
        "Description": "Setting desired instance count to 4.",
        "Cause": "monitor alarm TargetTracking-endpoint/e/variant/v-AlarmHigh-1 in state ALARM triggered policy p q",
        "StartTime": BEGAN,
        "StatusCode": code,
    }
    return found | ({} if ended_s is None else {"EndTime": BEGAN + timedelta(seconds=ended_s)}) | more


def rows_of(found: dict) -> dict[str, dict]:
    return {row["native_id"]: row for row in activity_rows(found, Answer({}, 1, 2), "r")}


def test_an_activity_under_way_is_a_decision() -> None:
    rows = rows_of(activity("InProgress"))
    assert list(rows) == ["a:decision"]
    row = rows["a:decision"]
    assert (row["anchor"], row["lo"], row["hi"], row["scaling_id"]) == ("decision", BEGAN, BEGAN, "a")
    detail = json.loads(row["detail"])
    assert (detail["desired"], detail["policy_name"]) == (4, "p q")
    assert detail["alarm_name"] == "TargetTracking-endpoint/e/variant/v-AlarmHigh-1"


def test_its_end_is_an_upper_bound_of_in_service() -> None:
    row = rows_of(activity("Successful", 425.689))["a:in_service"]
    assert (row["anchor"], row["lo"]) == ("in_service", BEGAN)
    assert row["hi"] - row["lo"] == timedelta(seconds=425.689)
    assert "a:in_service" not in rows_of(activity("Successful"))


@pytest.mark.parametrize("code", ["Failed", "Unfulfilled", "Overridden"])
def test_one_that_did_not_end_well_is_never_in_service(code: str) -> None:
    rows = rows_of(activity(code, 30))
    assert set(rows) == {"a:decision", "a:not-scaled"}
    assert rows["a:not-scaled"]["anchor"] is None


def test_one_that_asked_for_nothing_is_no_decision() -> None:
    rows = rows_of(activity("Successful", 1, NotScaledReasons=[{"Code": "AlreadyAtMaxCapacity", "MaxCapacity": 4}]))
    assert list(rows) == ["a:not-scaled"]
    assert json.loads(rows["a:not-scaled"]["detail"])["reasons"][0]["Code"] == "AlreadyAtMaxCapacity"


@pytest.mark.parametrize("broken", [{}, {"ActivityId": "a"}, {"StartTime": BEGAN}, {"ActivityId": "a", "StartTime": 7}])
def test_fields_may_be_missing(broken: dict) -> None:
    assert rows_of(broken) == {}
    assert json.loads(rows_of({"ActivityId": "a", "StartTime": BEGAN})["a:decision"]["detail"])["desired"] is None


@given(readings=st.lists(st.sampled_from(["InProgress", "Successful"]), min_size=1, max_size=8))
def test_rows_are_written_again_only_when_they_changed(
    readings: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = RunDir.create(Path(tmp_path_factory.mktemp("run")) / "r", Manifest(run_id="r"))
    journal = Journal(run)
    for number, code in enumerate(readings):
        found = activity(code, 9.0 if code == "Successful" else None)
        journal.take(Reading(observations=activity_rows(found, Answer({}, number, number + 1), "r")), "sagemaker")
    journal.write(journal.cut())
    written = run.scan("observations").collect().sort("response_received")
    decisions = written.filter(written["native_id"] == "a:decision")
    runs = 1 + sum(a != b for a, b in itertools.pairwise(readings))
    assert decisions.height == runs
    assert json.loads(decisions["detail"][-1])["status_code"] == readings[-1]
    assert (written["anchor"] == "in_service").sum() == ("Successful" in readings)
