"""The journal: nothing twice, nothing lost on a full disk, and it resumes where an earlier one ended."""

from pathlib import Path

import pytest

from loadgen.collect import journal as journal_module
from loadgen.collect.anchors import SAGEMAKER
from loadgen.collect.base import Answer, Reading
from loadgen.collect.journal import Journal
from loadgen.collect.rows import observation, sample
from traces.clock import to_datetime, to_us
from traces.manifest import Manifest
from traces.run import RunDir
from traces.schema import Gap, Observation, Sample


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path / "run", Manifest(run_id="r"))


def told(hi_us: int = 50, received_us: int = 2) -> dict:
    return observation(SAGEMAKER["activity.start"], "r", "a:decision", Answer({}, 1, received_us), lo_us=1, hi_us=hi_us)


def point(value: float) -> dict:
    return sample("cloudwatch", "m", resource="r", start_us=10, period_us=10, value=value, received_us=99)


def test_the_same_twice_is_written_once(run: RunDir) -> None:
    journal = Journal(run)
    for received in (2, 3, 4):
        journal.take(Reading(observations=[told(received_us=received)], samples=[point(1.0)]), "sagemaker")
        journal.write(journal.cut())
    assert run.scan("observations").collect().height == 1
    assert run.scan("samples").collect().height == 1
    assert journal.written == {"observations": 1, "samples": 1, "gaps": 0}


def test_a_change_is_written_again(run: RunDir) -> None:
    journal = Journal(run)
    journal.take(Reading(observations=[told(50)], samples=[point(1.0)]), "sagemaker")
    journal.take(Reading(observations=[told(60)], samples=[point(2.0)]), "sagemaker")
    journal.write(journal.cut())
    assert run.scan("observations").collect().height == 2
    assert run.scan("samples").collect()["value"].to_list() == [1.0, 2.0]


def test_a_second_collector_writes_nothing_again(run: RunDir) -> None:
    for _ in range(2):
        journal = Journal(run)
        journal.take(Reading(observations=[told(50), told(60)], samples=[point(1.0), point(2.0)]), "sagemaker")
        journal.write(journal.cut())
        run.compact("observations")
    # The second round met the older content first, and then what holds: both are one change each.
    resumed = Journal(run)
    resumed.take(Reading(observations=[told(60)], samples=[point(2.0)]), "sagemaker")
    assert not any(resumed.cut().rows.values())


def test_a_full_disk_loses_nothing(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(run)
    journal.take(Reading(observations=[told()], samples=[point(1.0)], snapshots={"alarms": {"a": 1}}), "sagemaker")
    batch = journal.cut()
    with monkeypatch.context() as patch:
        patch.setattr(journal_module.ShardWriter, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
        with pytest.raises(OSError, match="No space"):
            journal.write(batch)
    journal.restore(batch)
    journal.take(Reading(snapshots={"alarms": {"a": 2}}), "sagemaker")
    journal.write(journal.cut())
    assert run.scan("observations").collect().height == 1
    assert run.scan("samples").collect().height == 1
    assert run.snapshots() == {"alarms": {"a": 2}}


def test_what_no_memory_can_keep_is_a_gap_and_taken_again(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(run, kept_at_most=2)

    def take(number: int) -> None:
        row = observation(SAGEMAKER["activity.start"], "r", f"a{number}", Answer({}, number, number), lo_us=1, hi_us=2)
        journal.take(Reading(observations=[row]), "sagemaker")

    with monkeypatch.context() as patch:
        patch.setattr(journal_module.ShardWriter, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
        for number in range(10, 15):
            take(number)
            batch = journal.cut()
            with pytest.raises(OSError, match="No space"):
                journal.write(batch)
            journal.restore(batch)
    assert (journal.waiting, journal.lost) == (2, 3)
    take(10)  # the platform still tells the first
    journal.write(journal.cut())
    assert run.scan("observations").collect()["native_id"].to_list() == ["a13", "a14", "a10"]
    (gap,) = run.scan("gaps").collect().rows(named=True)
    assert (gap["source"], gap["reason"], to_us(gap["start"]), to_us(gap["end"])) == ("collector", "disk", 10, 12)
    assert gap["detail"] == "3 rows were lost: nothing could be written"
    assert (journal.waiting, journal.lost) == (0, 0)


def test_rows_fit_the_tables(run: RunDir) -> None:
    journal = Journal(run)
    journal.take(Reading(observations=[told()], samples=[point(1.0)]), "sagemaker")
    journal.write(journal.cut())
    Observation.validate(run.scan("observations").collect())
    Sample.validate(run.scan("samples").collect())
    Gap.validate(run.scan("gaps").collect())


def test_a_long_collection_keeps_few_files(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "MERGE_EVERY", 8)
    journal = Journal(run)
    for second in range(100):
        journal.take(Reading(samples=[point(1.0) | {"start": to_datetime(second)}]), "sagemaker")
        journal.write(journal.cut())
    assert len(run.shards("samples")) <= 100 // 8 + 8
    assert sorted(map(to_us, run.scan("samples").collect()["start"])) == list(range(100))
    again = Journal(run)
    again.take(Reading(samples=[point(1.0) | {"start": to_datetime(second)} for second in range(100)]), "sagemaker")
    assert again.cut().rows["samples"] == []


def test_a_long_collection_remembers_no_more_than_is_read_again(run: RunDir) -> None:
    journal = Journal(run)
    hours, series = 40, 14
    for minute in range(hours * 60):
        points = [point(1.0) | {"metric": f"m{k}", "start": to_datetime(minute * 60_000_000)} for k in range(series)]
        journal.take(Reading(samples=points), "sagemaker")
        journal.cut()
    assert len(journal._sampled) <= 2 * (4 * 60 * series + journal_module._FORGET_AT)
    newest = [point(1.0) | {"metric": "m0", "start": to_datetime((hours * 60 - 5) * 60_000_000)}]
    journal.take(Reading(samples=newest), "sagemaker")
    assert journal.cut().rows["samples"] == []
