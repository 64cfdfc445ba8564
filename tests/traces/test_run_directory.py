"""The run directory: no row lost, none doubled, whatever was interrupted."""

from __future__ import annotations

import contextlib
import os
import resource
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.clock import EndpointClock
from traces.errors import BadInputError
from traces.manifest import Manifest, TraceUsed
from traces.run import RunDir, ShardWriter, columns_of, is_complete, write_atomically, write_parquet
from traces.schema import TABLES, Gap, Observation, Sample


def sample(value: float, source: str = "replay") -> dict[str, object]:
    return {
        "source": source,
        "metric": "hub_latency_us",
        "resource": "r",
        "unit_id": None,
        "start": 1_000_000,
        "period_us": 0,
        "statistic": "Value",
        "value": value,
        "received": 1_000_001,
    }


def new_run(folder: Path) -> RunDir:
    return RunDir.create(folder, Manifest(run_id="r"))


def values(run: RunDir) -> list[float]:
    return sorted(run.scan("samples").collect()["value"].to_list())


@settings(deadline=None, max_examples=25)
@given(
    batches=st.lists(st.tuples(st.sampled_from(["a", "b"]), st.lists(st.integers(0, 9), max_size=4)), max_size=8),
    compact_after=st.sets(st.integers(0, 7)),
)
def test_shards_of_any_order_and_compactions_between_are_one_table(tmp_path_factory, batches, compact_after):
    run = new_run(tmp_path_factory.mktemp("run") / "r")
    writers = {name: ShardWriter(run, "samples", name) for name in "ab"}
    written: list[float] = []
    for number, (name, numbers) in enumerate(batches):
        writers[name].write([sample(float(n)) for n in numbers])
        written += numbers
        if number in compact_after:
            run.compact("samples")
        assert values(run) == sorted(written)


def test_one_writers_rows_stay_in_order(tmp_path):
    run = new_run(tmp_path / "r")
    writer = ShardWriter(run, "samples", "a")
    for number in range(12):
        writer.write([sample(number)])
    assert run.scan("samples").collect()["value"].to_list() == list(range(12))


@pytest.mark.parametrize("unlinked", [0, 1, 2])
def test_a_compaction_that_dies_between_its_steps_loses_and_doubles_nothing(tmp_path, unlinked):
    run = new_run(tmp_path / "r")
    writer = ShardWriter(run, "samples", "a")
    for number in range(3):
        writer.write([sample(number)])
    die_while_unlinking(run, after=unlinked)
    assert values(run) == [0, 1, 2]
    # What was left behind must stay dead through later compactions, whole or interrupted.
    writer.write([sample(3)])
    assert values(run) == [0, 1, 2, 3]
    die_while_unlinking(run, after=1)
    assert values(run) == [0, 1, 2, 3]
    writer.write([sample(4)])
    run.compact("samples")
    assert values(run) == [0, 1, 2, 3, 4]
    assert len(list((run.path / "samples").iterdir())) == 1
    run.compact("samples")
    assert values(run) == [0, 1, 2, 3, 4]


def die_while_unlinking(run: RunDir, after: int) -> None:
    unlink, calls = Path.unlink, []

    def dying(path: Path, *arguments: object, **options: object) -> None:
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(path)
        unlink(path)

    with mock.patch.object(Path, "unlink", dying), pytest.raises(KeyboardInterrupt):
        run.compact("samples")


def test_a_compaction_that_dies_before_its_rename_changes_nothing(tmp_path):
    run = new_run(tmp_path / "r")
    writer = ShardWriter(run, "samples", "a")
    for number in range(3):
        writer.write([sample(number)])
    with mock.patch.object(Path, "rename", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        run.compact("samples")
    assert values(run) == [0, 1, 2]
    run.compact("samples")
    assert values(run) == [0, 1, 2]


@pytest.mark.parametrize("keep", [0, 3, 100])
def test_a_torn_shard_is_skipped_and_named(tmp_path, keep):
    run = new_run(tmp_path / "r")
    writer = ShardWriter(run, "samples", "a")
    whole, torn = writer.write([sample(1)]), writer.write([sample(2)])
    assert whole is not None
    assert torn is not None
    torn.write_bytes(torn.read_bytes()[:keep])
    assert values(run) == [1]
    assert run.unreadable("samples") == [torn]
    assert not is_complete(torn)
    writer.write([sample(3)])
    run.compact("samples")
    assert values(run) == [1, 3]
    assert torn.exists()


def test_a_half_written_file_is_invisible(tmp_path):
    run = new_run(tmp_path / "r")
    writer = ShardWriter(run, "samples", "a")
    writer.write([sample(1)])
    (run.path / "samples" / ".part-a-1-000001.parquet").write_bytes(b"PAR1")
    assert values(run) == [1]
    assert run.unreadable("samples") == []


def test_tables_never_written_are_empty_and_have_their_schema(tmp_path):
    run = new_run(tmp_path / "r")
    for table, schema in TABLES.items():
        empty = run.scan(table).collect()
        assert empty.is_empty()
        assert empty.schema == pl.Schema(schema)


def test_columns_that_an_older_version_lacked_are_null_and_unknown_ones_ignored(tmp_path):
    run = new_run(tmp_path / "r")
    ShardWriter(run, "samples", "a").write([sample(1)])
    old = pl.DataFrame([sample(2)], schema=pl.Schema(Sample)).drop("unit_id").with_columns(later=pl.lit(1))
    write_parquet(run.path / "samples" / "a-0-000000.parquet", old)
    assert values(run) == [1, 2]
    assert run.scan("samples").collect().schema == pl.Schema(Sample)


@pytest.mark.parametrize("compacted", [False, True])
def test_shards_of_an_older_version_are_read_whatever_words_were_added_since(tmp_path, compacted):
    run = RunDir.create(tmp_path / "r", Manifest(run_id="r", schema_version="1.0"))
    schema = pl.Schema(Observation)
    fewer = {**schema, "platform": pl.Enum(["sagemaker", "gone"])}
    base = dict.fromkeys(schema) | {"platform": "sagemaker", "resource": "r", "source": "s", "method": "polled"}
    base |= {
        "native_id": "n",
        "clock": "client",
        "response_received": datetime(2026, 1, 1, tzinfo=UTC),
        "verified": False,
    }
    old = pl.DataFrame([base, base | {"platform": "gone"}], schema=fewer).drop("request_sent")
    (run.path / "observations").mkdir()
    write_parquet(run.path / "observations" / "a-0-000000.parquet", old)
    ShardWriter(run, "observations", "b").write([base | {"platform": "other"}])
    if compacted:
        run.compact("observations")
    found = run.scan("observations").collect()
    assert found.schema == schema
    assert sorted(found["platform"], key=str) == [None, "other", "sagemaker"], "a word that is none any more is null"


def test_no_rows_write_no_shard_and_columns_write_like_rows(tmp_path):
    run = new_run(tmp_path / "r")
    writer = ShardWriter(run, "samples", "a")
    assert writer.write([]) is None
    writer.write(columns_of([sample(1), sample(2)], Sample))
    assert values(run) == [1, 2]


def test_rows_that_lack_a_key_are_null_there():
    assert columns_of([{"source": "s"}, {"reason": "denied"}], Gap)["reason"] == [None, "denied"]


names = st.text(st.characters(codec="utf-8"), max_size=8)
manifests = st.builds(
    Manifest,
    run_id=names,
    name=names,
    condition=st.none() | names,
    state=st.sampled_from(["running", "finished", "interrupted"]),
    emulated=st.booleans(),
    t0_us=st.none() | st.integers(0, 2**53),
    clock=st.builds(
        EndpointClock,
        client_epoch_us=st.integers(0, 2**53),
        endpoint_epoch_us=st.integers(0, 2**53),
        time_scale=st.floats(0.01, 1000),
        error_us=st.integers(0, 10**6),
    ),
    trace=st.none() | st.builds(TraceUsed, source=names, rows=st.none() | st.integers(0, 10**9)),
    scenario=st.dictionaries(names, names | st.integers(-9, 9) | st.none(), max_size=3),
    verdict=st.none() | st.dictionaries(names, st.booleans(), max_size=3),
)


@settings(deadline=None, max_examples=40)
@given(manifests)
def test_the_manifest_survives_a_round_trip(tmp_path_factory, manifest):
    run = RunDir.create(tmp_path_factory.mktemp("run") / "r", manifest)
    assert RunDir.open(run.path).manifest() == manifest


def test_a_run_is_never_written_over(tmp_path):
    new_run(tmp_path / "r")
    with pytest.raises(BadInputError, match="already there"):
        new_run(tmp_path / "r")
    (tmp_path / "file").touch()
    with pytest.raises(BadInputError, match="cannot write"):
        new_run(tmp_path / "file")


def test_what_is_not_a_run_is_told(tmp_path):
    with pytest.raises(BadInputError, match="not a run directory"):
        RunDir.open(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(BadInputError, match="not a readable manifest"):
        RunDir.open(tmp_path).manifest()
    (tmp_path / "run.json").write_text('{"run_id": "r", "schema_version": "99.0", "versions": {"ramptrace": "9.9"}}')
    with pytest.raises(BadInputError, match=r"99\.0.*9\.9"):
        RunDir.open(tmp_path).manifest()


@pytest.mark.parametrize(
    "damage",
    ['"clock": {"time_scale": 0}', '"clock": {"time_scale": -3}', '"t0_us": 9999999999999999999', '"created_us": -1'],
)
def test_a_manifest_of_impossible_instants_is_told(tmp_path, damage):
    (tmp_path / "run.json").write_text(f'{{"run_id": "r", {damage}}}')
    with pytest.raises(BadInputError, match="damaged"):
        RunDir.open(tmp_path).manifest()


def test_snapshots_come_back_and_damaged_or_half_written_ones_do_not(tmp_path):
    run = new_run(tmp_path / "r")
    assert run.snapshots() == {}
    run.write_snapshot("alarms", {"a": [1]})
    (run.path / "snapshots" / "bad.json").write_text("{")
    (run.path / "snapshots" / ".part-later.json").write_text("{}")
    assert run.snapshots() == {"alarms": {"a": [1]}}


def test_an_interrupted_write_keeps_the_old_manifest(tmp_path):
    run = new_run(tmp_path / "r")
    with mock.patch.object(os, "fsync", side_effect=OSError), pytest.raises(OSError):
        run.write_manifest(Manifest(run_id="other"))
    assert run.manifest().run_id == "r"


@contextlib.contextmanager
def no_room_beyond(size):
    """Let the system refuse to make any file larger than `size` bytes, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_an_oserror_and_leaves_no_torn_file(tmp_path):
    run = new_run(tmp_path / "r")
    writer = ShardWriter(run, "samples", "a")
    with no_room_beyond(200), pytest.raises(OSError):
        writer.write([sample(i) for i in range(100)])
    assert list((run.path / "samples").iterdir()) == []
    writer.write([sample(1)])
    assert values(run) == [1]


def test_a_name_that_is_none_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match="file's name"):
        write_atomically(Path(), b"x")


def test_a_device_or_a_folder_is_never_replaced(tmp_path):
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder):
        with pytest.raises(BadInputError, match="not a regular file"):
            write_atomically(path, b"x")
    assert pipe.is_fifo()
