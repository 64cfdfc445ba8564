"""Metric windows are aligned, bounded, and read again until they settle."""

from hypothesis import given
from hypothesis import strategies as st

from loadgen.collect.base import Answer
from loadgen.collect.metrics import COMPONENT_METRICS, VARIANT_METRICS, datapoints, queries, window
from loadgen.collect.variant import Watched
from traces.clock import to_datetime

US = 1_000_000
MINUTE = 60 * US


@given(since=st.integers(0, 10**13), complete=st.integers(0, 10**12), later=st.integers(0, 10**12))
def test_windows(since: int, complete: int, later: int) -> None:
    complete += since
    now = complete + later
    start, end = window(since, complete, now)
    assert start % MINUTE == 0
    assert end % MINUTE == 0
    assert start <= now < end
    assert now - start <= 3 * 3600 * US  # what the service keeps of data finer than a minute
    assert start >= since - MINUTE
    # Nothing that could still change, and is still kept, is left out.
    assert start <= max(since, complete - 5 * MINUTE, now - 3 * 3600 * US + MINUTE)


def test_queries_are_unique_and_ask_for_the_variant() -> None:
    for watched, values, count in (
        (Watched("e", "v"), {"e", "v"}, len(VARIANT_METRICS)),
        (Watched("e", "v", 0, "c"), {"c"}, len(COMPONENT_METRICS)),
    ):
        asked = queries(watched)
        assert len({q.id for q in asked}) == len(asked) == count
        documents = [q.document["MetricStat"]["Metric"] for q in asked]
        assert {d["Value"] for document in documents for d in document["Dimensions"]} == values


def test_datapoints_survive_strange_results() -> None:
    good = {"Id": "m0", "Timestamps": [to_datetime(10 * US), "x"], "Values": [3, 4]}
    answer = Answer({"MetricDataResults": [good, {"Id": "unknown", "Values": [1]}, {"Id": "m1"}, {}]}, 1, 2)
    (row,) = datapoints(answer, queries(Watched("e", "v")), "r")
    assert (row["metric"], row["value"], row["period_us"]) == ("ConcurrentRequestsPerModel", 3.0, 10 * US)
    assert row["statistic"] == "Maximum"
