"""The parts of a long run: laps, the checkpoint, merging shards, Locust's statistics."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.checkpoint import Checkpoint
from loadgen.laps import in_lap, planned_rows
from traces.clock import to_datetime
from traces.errors import BadInputError
from traces.manifest import Laps, Manifest
from traces.run import RunDir, ShardWriter
from traces.schema import Trace


def trace_rows(arrivals_us, **columns):
    data = {name: [None] * len(arrivals_us) for name in pl.Schema(Trace)}
    data |= {"row_id": list(range(5, 5 + len(arrivals_us))), "arrival_us": arrivals_us} | columns
    return pl.DataFrame(data, schema=pl.Schema(Trace))


@given(st.lists(st.integers(0, 99), min_size=1, max_size=20), st.integers(1, 1000))
def test_laps_have_as_many_rows_as_planned_and_ids_of_their_own(arrivals, until):
    frame = trace_rows(sorted(arrivals))
    laps = Laps(rows=frame.height, length_us=100, stride=5 + frame.height, until_us=until)
    sent = pl.concat([in_lap(frame, lap, laps) for lap in range(12)])
    assert sent.height == planned_rows(laps, frame["arrival_us"])
    assert sent["row_id"].is_unique().all()
    assert sent["arrival_us"].is_sorted()
    assert sent.is_empty() or sent["arrival_us"].max() < until


def test_conversations_begin_anew_in_each_lap():
    frame = trace_rows([0, 10, 20], session_id=["a", "a", None], parent_row=[None, 5, None])
    laps = Laps(rows=3, length_us=30, stride=8)
    again = in_lap(frame, 2, laps)
    assert again["row_id"].to_list() == [21, 22, 23]
    assert again["parent_row"].to_list() == [None, 21, None]
    assert again["session_id"].to_list() == ["a~2", "a~2", None]
    assert in_lap(frame, 0, laps).equals(frame)
    assert planned_rows(laps, frame["arrival_us"]) is None


def test_a_checkpoint_is_settled_up_to_the_first_row_under_way(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    for row in (30, 10, 20, 40):
        checkpoint.take(row)
    assert (checkpoint.taken, checkpoint.settled) == (4, 0)
    checkpoint.recorded([10, 40])
    assert checkpoint.settled == 0
    checkpoint.recorded([30])
    assert checkpoint.settled == 2
    with pytest.raises(BadInputError, match="another replay"):
        Checkpoint(tmp_path)
    checkpoint.close()
    again = Checkpoint(tmp_path)
    assert (again.taken, again.settled) == (4, 2)
    again.settle({40: 3})
    assert (again.taken, again.settled) == (4, 3)
    again.take(40)
    again.take(50)
    assert (again.taken, again.settled) == (5, 3), "a row that was held back has its place already"
    again.recorded([50])
    assert again.settled == 3
    again.recorded([40])
    assert again.settled == 5
    again.settle({})
    again.close()
    last = Checkpoint(tmp_path)
    assert (last.taken, last.settled) == (5, 5)
    last.close()


def test_what_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "checkpoint.bin").write_bytes(b"x" * 24)
    with pytest.raises(BadInputError, match="not a checkpoint"):
        Checkpoint(tmp_path)


def request(row_id):
    return {"row_id": row_id, "shard": 0, "due": to_datetime(row_id), "outcome": "ok", "endpoint": "x"}


def columns(ids):
    from traces.run import columns_of
    from traces.schema import TABLES

    return columns_of([request(i) for i in ids], TABLES["requests"])


def test_merging_one_writers_shards_keeps_every_row_and_the_others_files(tmp_path):
    run = RunDir.create(tmp_path / "run", Manifest(run_id="r"))
    worker, unsent = ShardWriter(run, "requests", "worker0"), ShardWriter(run, "requests", "unsent")
    unsent.write(columns([1000]))
    for start in range(0, 40, 10):
        worker.write(columns(range(start, start + 5)))
        worker.write(columns(range(start + 5, start + 10)))
        run.compact("requests", writer="worker0", at_least=2)
    assert sorted(run.scan("requests").collect()["row_id"]) == [*range(40), 1000]
    names = [path.name for path in run.shards("requests")]
    assert len(names) == 5
    assert sum(name.startswith("compacted-") for name in names) == 4
    assert any(name.startswith("unsent-") for name in names)
    worker.write(columns([40]))
    run.compact("requests", writer="worker0", at_least=2)
    assert len(run.shards("requests")) == 6, "too few to merge"
    run.compact("requests")
    assert len(run.shards("requests")) == 1
    assert sorted(run.scan("requests").collect()["row_id"]) == [*range(41), 1000]


@pytest.fixture
def locust_stats(monkeypatch):
    """The module, with a Locust that does not patch the process in which all other tests run."""
    monkeypatch.setenv("LOCUST_SKIP_MONKEY_PATCH", "1")
    from loadgen import locust_stats

    return locust_stats


def test_response_times_keep_three_digits(locust_stats):
    rng = random.Random(1)
    for ms in (10 ** rng.uniform(-3, 7) for _ in range(2000)):
        assert locust_stats.three_digits(ms) == pytest.approx(ms, rel=0.0051, abs=0.0005)


def test_locusts_histories_stay_bounded_and_its_figures_stay(locust_stats):
    from locust.stats import RequestStats

    prune, stats = locust_stats.prune, RequestStats()
    for second in range(10_000):
        for entry in (stats.total, stats.get("a", "POST")):
            entry.num_reqs_per_sec[second] += 1
            entry.num_fail_per_sec[second] += 1
        stats.history.append({"time": second})
        if second % 10 == 0:
            prune(stats)
    prune(stats)
    for entry in (stats.total, stats.get("a", "POST")):
        assert len(entry.num_reqs_per_sec) <= 130
        assert min(entry.num_reqs_per_sec) > 9_800
        assert max(entry.num_fail_per_sec) == 9_999
    assert len(stats.history) <= 1000
    assert stats.history[0] == {"time": 0}
    assert stats.history[-1]["time"] > 9_900
