"""Shares of a plan: conversations stay whole, nothing is lost or doubled; clocks and clients seen together."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.abort import AbortWatch, parse_rule
from loadgen.histogram import Histogram
from loadgen.offsets import best, offset_of, widened
from loadgen.parts import broken, worst
from loadgen.sharding import keep_shard, shard_cap, shard_laps, shard_of_rows
from traces.errors import BadInputError
from traces.manifest import Laps, WorkerPart


def frame(sessions, parents):
    ids = range(len(sessions))
    schema = {"row_id": pl.Int64, "session_id": pl.String, "parent_row": pl.Int64}
    return pl.DataFrame({"row_id": ids, "session_id": sessions, "parent_row": parents}, schema=schema)


@st.composite
def traces(draw):
    size = draw(st.integers(1, 40))
    sessions = draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=size, max_size=size))
    parents = [draw(st.none() | st.integers(0, i - 1)) if i else None for i in range(size)]
    return frame(sessions, parents)


@settings(max_examples=40, deadline=None)
@given(traces(), st.integers(1, 5))
def test_rows_that_wait_for_each_other_stay_together(rows, shards):
    found = rows.with_columns(shard=shard_of_rows(rows, shards))
    assert found["shard"].is_between(0, shards - 1).all()
    per_session = found.drop_nulls("session_id").group_by("session_id").agg(pl.col("shard").n_unique())
    assert (per_session["shard"] == 1).all()
    turns = found.join(found.select("row_id", before="shard"), left_on="parent_row", right_on="row_id")
    assert (turns["shard"] == turns["before"]).all()


@settings(max_examples=40, deadline=None)
@given(traces(), st.integers(1, 5))
def test_the_shares_are_the_plan(rows, shards):
    kept = [keep_shard(rows.lazy(), shard, shards).collect() for shard in range(shards)]
    assert all(part["row_id"].is_sorted() for part in kept)
    assert pl.concat(kept).sort("row_id").equals(rows)


@given(st.integers(1, 200), st.integers(1, 7))
def test_rows_alone_are_dealt_out_evenly_at_all_times(size, shards):
    dealt = shard_of_rows(frame([None] * size, [None] * size), shards).to_list()
    assert dealt == [i % shards for i in range(size)]


def test_sessions_beside_single_rows_are_shared_too():
    rows = frame([f"s{i % 7}" if i % 2 else None for i in range(200)], [None] * 200)
    assert sorted(shard_of_rows(rows, 2).value_counts()["count"]) == pytest.approx([100, 100], abs=10)


def test_a_cap_is_shared_and_never_becomes_none():
    assert [shard_cap(5, k, 2) for k in range(2)] == [3, 2]
    with pytest.raises(BadInputError, match="2 workers"):
        shard_cap(1, 0, 2)


def test_a_share_without_rows_has_no_laps():
    laps = Laps(rows=4, length_us=10, stride=4, until_us=25)
    assert shard_laps(laps, 0) is None
    assert shard_laps(laps, 1) == Laps(rows=1, length_us=10, stride=4, until_us=25)


@given(st.integers(-(10**12), 10**12), st.integers(0, 10**6), st.integers(0, 10**6))
def test_an_offset_is_within_its_error_however_unequal_the_ways(true_us, there_us, back_us):
    sent = 10**15
    found = offset_of(sent, sent + there_us + true_us, sent + there_us + back_us)
    assert abs(found.offset_us - true_us) <= found.error_us


@given(st.lists(st.tuples(st.integers(0, 10**5), st.integers(0, 10**5)), min_size=1))
def test_the_best_reading_is_the_tightest_and_still_right(ways):
    found = best(offset_of(0, there + 77, there + back) for there, back in ways)
    assert abs(found.offset_us - 77) <= found.error_us
    assert found.error_us <= min(there + back for there, back in ways) // 2 + 2


def test_a_drift_widens_the_error():
    first, last = offset_of(0, 1_050, 100), offset_of(10**9, 10**9 + 1_250, 10**9 + 100)
    assert widened(first, last).offset_us == 1_000
    assert widened(first, last).error_us >= 200 + last.error_us


@given(st.lists(st.integers(1, 10**7)), st.lists(st.integers(1, 10**7)))
def test_histograms_sent_over_the_wire_are_as_if_counted_here(here, there):
    one, other, both = Histogram(), Histogram(), Histogram()
    for us in here:
        one.add(us)
        both.add(us)
    for us in there:
        other.add(us)
        both.add(us)
    one.merge(Histogram.from_document(other.to_document()))
    assert [one.quantile_us(q) for q in (0.1, 0.5, 0.99)] == [both.quantile_us(q) for q in (0.1, 0.5, 0.99)]


def test_a_rule_sees_what_ended_on_all_workers():
    rule = parse_rule("errors>50%")
    watches = [AbortWatch([rule], window_us=10_000_000, grace_us=0) for _ in range(3)]
    master, first, second = watches
    for second_of in range(3):
        for _ in range(3):
            first.ended(second_of * 1_000_000, failed=True, lag_us=1, latency_us=1)
        second.ended(second_of * 1_000_000, failed=False, lag_us=1, latency_us=1)
    late = second.take()
    master.merge(first.take())
    master.merge(late)
    assert "75%" in (master.check(3_000_000) or "")
    assert first.take() == []
    master.merge([{**document, "at": 100, "failed": 0} for document in late])
    assert master.check(100_500_000) is None


def test_the_worst_worker_stands_for_all_and_broken_ones_are_named():
    workers = [
        WorkerPart(shard=0, host="a", state="finished", cpu_share=0.2, hub_latency_p99_us=900),
        WorkerPart(shard=1, host="b", state="lost", detail="it quit", cpu_share=0.9, shared=False),
        WorkerPart(shard=2, host="c", state="merged"),
    ]
    assert (worst(workers).cpu_share, worst(workers).hub_latency_p99_us) == (0.9, 900)
    (text,) = broken(workers)
    assert "worker 1 on b" in text
    assert "it quit" in text
    assert "ramptrace merge" in text
