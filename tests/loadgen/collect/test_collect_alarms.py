"""Alarm histories: the JSON is read as far as it goes, and never stops the collection."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.collect.alarms import first_breach, history_rows, parse_instant_us
from loadgen.collect.base import Answer
from tests.loadgen.collect.fake_aws import ALARM, US, history_item
from traces.clock import to_us

ANSWER = Answer({}, 1, 2)
HIGH = {"ComparisonOperator": "GreaterThanThreshold"}
AT = to_us(datetime(2026, 7, 1, 10, 0, 12, 345_000, tzinfo=UTC))


def test_a_change_to_alarm_gives_alarm_and_first_breach() -> None:
    points = [(AT - 12 * US, 8.0), (AT - 22 * US, 7.0), (AT - 32 * US, 5.0)]
    alarm, breach = history_rows(history_item(AT, points), HIGH, ANSWER, "r")
    assert (alarm["anchor"], to_us(alarm["lo"]), to_us(alarm["hi"])) == ("alarm", AT, AT)
    assert alarm["native_id"] == f"{ALARM}:{AT}:alarm"
    facts = json.loads(alarm["detail"])
    assert (facts["period_s"], facts["threshold"], facts["statistic"]) == (10, 5, "Maximum")
    assert [p["value"] for p in facts["evaluated_datapoints"]] == [8, 7, 5]
    assert facts["query_date"].endswith("+0000")
    # The value at the threshold is no breach; the earliest beyond it is.
    assert (breach["anchor"], to_us(breach["lo"]), to_us(breach["hi"])) == ("breach", AT - 22 * US, AT - 12 * US)
    assert breach["resolution_us"] == 10 * US
    assert json.loads(breach["detail"]) == {"alarm_name": ALARM, "period_s": 10, "value": 7, "threshold": 5}


@pytest.mark.parametrize(
    ("operator", "value", "breaches"),
    [
        ("GreaterThanThreshold", 5.0, False),
        ("GreaterThanOrEqualToThreshold", 5.0, True),
        ("LessThanThreshold", 5.0, False),
        ("LessThanThreshold", 4.9, True),
        ("LessThanOrEqualToThreshold", 5.0, True),
        ("SomethingNew", 9.0, False),
        (None, 9.0, False),
    ],
)
def test_breach_follows_the_comparison_and_is_never_guessed(operator: str | None, value: float, breaches: bool) -> None:
    points = [{"timestamp": "2026-07-01T10:00:00.000+0000", "value": value}]
    facts = {"threshold": 5.0, "comparison": operator, "evaluated_datapoints": points}
    assert (first_breach(facts) is not None) == breaches


def test_the_comparison_is_taken_from_the_prose_when_the_alarm_may_not_be_read() -> None:
    item = history_item(AT, [(AT - 12 * US, 8.0)])
    data = json.loads(item["HistoryData"])
    data["newState"]["stateReason"] = "Threshold Crossed: 1 datapoint [8.0 (..)] was greater than the threshold (5.0)."
    rows = history_rows(item | {"HistoryData": json.dumps(data)}, {}, ANSWER, "r")
    assert [row["anchor"] for row in rows] == ["alarm", "breach"]
    assert [row["anchor"] for row in history_rows(item, {}, ANSWER, "r")] == ["alarm"]


def test_other_items_are_kept_without_an_anchor() -> None:
    (row,) = history_rows(history_item(AT, [], state="OK"), HIGH, ANSWER, "r")
    assert row["anchor"] is None
    action = {"AlarmName": ALARM, "Timestamp": datetime.now(UTC), "HistoryItemType": "Action", "HistorySummary": "done"}
    (row,) = history_rows(action, HIGH, ANSWER, "r")
    assert (row["anchor"], json.loads(row["detail"])["summary"]) == (None, "done")
    assert history_rows({"AlarmName": ALARM}, HIGH, ANSWER, "r") == []


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["newState", "stateValue", "stateReasonData", "evaluatedDatapoints", "period", "threshold"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(data=anything)
def test_strange_history_data_never_breaks_and_never_invents_a_breach(data: Any) -> None:
    item = history_item(AT, []) | {"HistoryData": json.dumps(data)}
    rows = history_rows(item, HIGH, ANSWER, "r")
    assert rows
    assert all(row["anchor"] != "breach" for row in rows)


@given(text=st.text(max_size=30))
def test_an_unreadable_history_still_dates_the_alarm(text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        rows = history_rows(history_item(AT, []) | {"HistoryData": text}, HIGH, ANSWER, "r")
        assert [row["anchor"] for row in rows] == ["alarm"]


def test_instants() -> None:
    assert parse_instant_us("1970-01-01T00:00:01.500+0000") == 1_500_000
    assert parse_instant_us("1970-01-01T01:00:01.500+0100") == 1_500_000
    assert parse_instant_us("soon") is None
    assert parse_instant_us(None) is None
