"""Changes seen between two polls: the interval holds the true change, whatever the polls' timing."""

import itertools
import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from loadgen.collect.base import Answer
from loadgen.collect.endpoint_state import Seen, changes, fields, variant_statuses
from traces.clock import to_datetime, to_us


def endpoint(current: int, desired: int, statuses: list | None = None, status: str = "InService") -> dict:
    variant = {"VariantName": "v", "CurrentInstanceCount": current, "DesiredInstanceCount": desired}
    return {"EndpointStatus": status, "ProductionVariants": [variant | {"VariantStatus": statuses or []}]}


steps = st.lists(st.tuples(st.integers(1, 1_000), st.integers(0, 5)), min_size=1, max_size=20)
polls = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 100), st.integers(0, 100)), min_size=2, max_size=40)


@given(steps=steps, polls=polls)
def test_every_interval_holds_a_true_change(steps: list[tuple[int, int]], polls: list[tuple[int, int, int]]) -> None:
    """A count that steps at known times, read by polls whose service instant lies anywhere in [sent, received]."""
    history, at = [(0, 1)], 0
    for pause, value in steps:
        at += pause
        history.append((at, value))

    def value_at(us: int) -> int:
        return [value for when, value in history if when <= us][-1]

    seen: dict[str, Seen] = {}
    now, rows = 0, []
    for pause, to_service, back in polls:
        sent = now + pause
        read = sent + to_service
        now = read + back
        found = fields(endpoint(value_at(read), 1), "v")
        rows += changes(seen, found, Answer({}, sent, now), "r")
        seen |= {key: Seen(value, sent) for key, value in found.items()}

    assert len({row["native_id"] for row in rows}) == len(rows)
    for row in rows:
        detail = json.loads(row["detail"])
        lo, hi = to_us(row["lo"]), to_us(row["hi"])
        times = [when for when, value in history if lo <= when <= hi]
        assert times, "no change at all within the interval"
        assert value_at(lo - 1) == detail["from"] or any(v == detail["from"] for t, v in history if lo <= t <= hi)
        assert any(value == detail["to"] for when, value in history if when <= hi)
        assert (row["anchor"] == "in_service") == (detail["to"] > detail["from"])
        assert row["clock"] == "client"
        assert row["method"] == "polled"
    for earlier, later in itertools.pairwise(rows):
        assert json.loads(earlier["detail"])["to"] == json.loads(later["detail"])["from"]


def test_desired_up_is_a_decision_down_is_not() -> None:
    seen = {"DesiredInstanceCount": Seen(1, 100)}
    (row,) = changes(seen, {"DesiredInstanceCount": 3}, Answer({}, 200, 250), "r")
    assert (row["anchor"], row["native_id"]) == ("decision", "desired:1->3:250")
    assert (to_us(row["lo"]), to_us(row["hi"])) == (100, 250)
    assert json.loads(row["detail"]) == {"from": 1, "to": 3}
    (row,) = changes(seen, {"DesiredInstanceCount": 0}, Answer({}, 200, 250), "r")
    assert row["anchor"] is None
    assert json.loads(row["detail"]) == {"field": "DesiredInstanceCount", "from": 1, "to": 0}


def test_a_variant_that_is_missing_for_once_changes_nothing() -> None:
    updating = {"EndpointStatus": "Updating", "FailureReason": ""}
    assert fields({"EndpointStatus": "Updating"}, "v") == updating
    assert fields({"EndpointStatus": "Updating", "ProductionVariants": None}, "v") == updating
    seen = {"EndpointStatus": Seen("Updating", 1)}
    assert changes(seen, {"EndpointStatus": "Updating"}, Answer({}, 2, 3), "r") == []


def test_variant_status_dates_the_decision_by_the_service() -> None:
    began = datetime(2026, 7, 1, 10, 0, 0, 250_000, tzinfo=UTC)
    statuses = [{"Status": "Updating", "StartTime": began, "StatusMessage": "Launching 1 instance(s)."}]
    (row,) = variant_statuses(Answer(endpoint(1, 2, statuses), 5, 9), "v", "r")
    assert (row["anchor"], row["lo"], row["hi"], row["clock"]) == ("decision", began, began, "service")
    assert row["native_id"] == f"variant-status:{to_us(began)}"
    assert row["response_received"] == to_datetime(9)


def test_variant_status_of_a_scale_in_dates_nothing() -> None:
    statuses = [{"Status": "Updating", "StartTime": datetime(2026, 7, 1, tzinfo=UTC)}]
    (row,) = variant_statuses(Answer(endpoint(2, 1, statuses), 5, 9), "v", "r")
    assert row["anchor"] is None
    assert (
        variant_statuses(Answer(endpoint(1, 1, [{"Status": "Updating"}, {"Status": "Baking"}]), 5, 9), "v", "r") == []
    )
