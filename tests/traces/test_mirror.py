"""Run directories in S3: what is copied when, and what comes back."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.errors import BadInputError, UnreachableError
from traces.manifest import Manifest
from traces.mirror import Mirror, changes, fetch_run, stamps
from traces.run import RunDir, ShardWriter
from traces.schema import TABLES, Sample

URI = "s3://runs/team/soak"


def rows(first: int, count: int = 3):
    names = pl.Schema(Sample)
    base = dict.fromkeys(names)
    start = pl.Series([first]).cast(pl.Datetime("us", "UTC"))[0]
    return [
        base | {"source": "t", "metric": "m", "start": start, "period_us": 1, "value": float(first + i)}
        for i in range(count)
    ]


@pytest.fixture
def run(tmp_path) -> RunDir:
    return RunDir.create(tmp_path / "run", Manifest(run_id="r-1"))


def values(run: RunDir) -> list[float]:
    return run.scan("samples").collect()["value"].sort().to_list()


versions = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 2), st.integers(0, 2)))


@given(versions, versions)
def test_writing_and_deleting_what_changed_makes_the_copy_equal(copied, present):
    written, deleted = changes(copied, present)
    after = {**copied, **{name: present[name] for name in written}}
    for name in deleted:
        del after[name]
    assert after == present
    assert not {name for name in written if copied.get(name) == present[name]}, "nothing is written twice"


def test_a_copy_holds_what_the_run_held_at_the_last_sync(s3, run):
    writer, mirror = ShardWriter(run, "samples", "w"), Mirror(run.path, URI)
    mirror.open()
    for first in (0, 10, 20):
        writer.write(rows(first))
        assert mirror.sync() > 0
        copy = fetch_run(URI)
        assert values(RunDir.open(copy.folder)) == values(run)
    assert mirror.sync() == 0, "nothing new, nothing sent"
    run.compact("samples")
    run.write_snapshot("policies", {"a": 1})
    mirror.sync()
    copy = fetch_run(URI + "/")
    assert {name: size for name, (size, _) in stamps(copy.folder).items()} == {
        name: size for name, (size, _) in stamps(run.path).items()
    }
    assert values(RunDir.open(copy.folder)) == values(run)
    folder = copy.folder
    del copy
    assert not folder.exists(), "what was fetched goes with its last user"


def test_a_reader_between_the_two_steps_of_a_compaction_sees_each_row_once(s3, run, monkeypatch):
    writer, mirror = ShardWriter(run, "samples", "w"), Mirror(run.path, URI)
    mirror.open()
    for first in (0, 10):
        writer.write(rows(first))
    mirror.sync()
    run.compact("samples")

    def refuse(_name):
        raise OSError("the network went away")

    monkeypatch.setattr(mirror, "_delete", refuse)
    with pytest.raises(BadInputError):
        mirror.sync()
    assert values(RunDir.open(fetch_run(URI).folder)) == values(run)


def test_another_run_is_never_written_over_and_the_same_is_taken_up(s3, run, tmp_path):
    first = Mirror(run.path, URI)
    first.open()
    ShardWriter(run, "samples", "w").write(rows(0))
    first.sync()
    other = RunDir.create(tmp_path / "other", Manifest(run_id="r-2"))
    with pytest.raises(BadInputError, match="a run is already there"):
        Mirror(other.path, URI).open()
    run.compact("samples", at_least=1)
    again = Mirror(run.path, URI)
    again.open()
    again.sync()
    assert {key for _, key in s3.objects} == {f"team/soak/{name}" for name in stamps(run.path)}


def test_what_cannot_be_written_is_said_before_the_load(s3, run):
    with pytest.raises(BadInputError, match=r"s3://secret/x: S3 refused .*PutObject"):
        Mirror(run.path, "s3://secret/x").open()
    s3.broken = True
    with pytest.raises(BadInputError, match="AccessDenied"):
        Mirror(run.path, URI).open()
    with pytest.raises(BadInputError, match="no bucket"):
        Mirror(run.path, "s3://")
    s3.stop()
    s3.start = s3.stop = lambda: None
    with pytest.raises(UnreachableError, match="does not answer"):
        Mirror(run.path, URI).open()


def test_a_failed_round_is_made_up_for_by_the_next(s3, run):
    mirror = Mirror(run.path, URI)
    mirror.open()
    ShardWriter(run, "samples", "w").write(rows(0))
    s3.broken = True
    with pytest.raises(BadInputError):
        mirror.sync()
    s3.broken = False
    mirror.sync()
    assert values(RunDir.open(fetch_run(URI).folder)) == values(run)


def test_a_prefix_without_a_run_is_refused_and_a_key_cannot_lead_elsewhere(s3, tmp_path):
    s3.objects["runs", "empty/notes.txt"] = b"x"
    with pytest.raises(BadInputError, match=r"not a run directory \(no run\.json"):
        fetch_run("s3://runs/empty")
    s3.objects["runs", "evil/run.json"] = b"{}"
    s3.objects["runs", "evil/../../outside.txt"] = b"x"
    copy = fetch_run("s3://runs/evil")
    assert sorted(stamps(copy.folder)) == ["run.json"]
    assert not (copy.folder.parent.parent / "outside.txt").exists()
    assert not Path(copy.folder.parent, "outside.txt").exists()


def test_every_table_has_a_place_in_the_copy(s3, run):
    for table in TABLES:
        (run.path / table).mkdir(exist_ok=True)
        (run.path / table / "w-1-000001.parquet").write_bytes(b"PAR1PAR1")
    (run.path / "samples" / ".part-w.parquet").write_bytes(b"half")
    mirror = Mirror(run.path, URI)
    mirror.open()
    mirror.sync()
    assert not [key for _, key in s3.objects if ".part-" in key], "an unfinished file is no one's"
    assert len(s3.objects) == len(TABLES) + 1
