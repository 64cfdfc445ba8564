"""What every reader of recorded traffic has to fulfil, run against each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from traces.errors import BadInputError
from traces.readers import READERS, open_trace
from traces.readers.base import REASONS
from traces.schema import Trace

# Milliseconds of arrival and two lengths: out of order, with a tie and a row of no tokens.
ROWS = [(500, 10, 5), (0, 20, 6), (2000, 0, 0), (2000, 40, 8), (3_600_000, 50, 9)]


def write_azure(path: Path, rows: list[tuple[int, int, int]]) -> None:
    def line(ms: int, i: int, o: int) -> str:
        return f"2024-05-10 {10 + ms // 3_600_000}:00:{ms // 1000 % 60:02d}.{ms % 1000:03d}000+00:00,{i},{o}\n"

    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(line(*row) for row in rows))


def write_mooncake(path: Path, rows: list[tuple[int, int, int]]) -> None:
    keys = ("timestamp", "input_length", "output_length")
    path.write_text("".join(json.dumps({**dict(zip(keys, row, strict=True)), "hash_ids": []}) + "\n" for row in rows))


def write_own(path: Path, rows: list[tuple[int, int, int]]) -> None:
    schema = pl.Schema(Trace)
    columns = dict.fromkeys(schema, [None] * len(rows))
    columns |= {
        "row_id": list(range(len(rows))),
        "arrival_us": [ms * 1000 for ms, _, _ in rows],
        "input_tokens": [i for _, i, _ in rows],
        "output_tokens": [o for _, _, o in rows],
    }
    pl.DataFrame(columns, schema=schema).write_parquet(path)


WRITERS: dict[str, Callable[[Path, list[tuple[int, int, int]]], None]] = {
    "azure": write_azure,
    "mooncake": write_mooncake,
    "own": write_own,
}
every_reader = pytest.mark.parametrize("name", list(READERS))


@pytest.fixture
def written(tmp_path, name):
    path = tmp_path / "recorded"
    WRITERS[name](path, ROWS)
    return path


def test_no_reader_escapes_the_suite():
    assert set(WRITERS) == set(READERS)


@every_reader
def test_the_format_is_found_by_content_and_by_no_other_reader(name, written):
    assert open_trace(str(written)).format == name
    head = written.read_bytes()[:65536]
    assert [other for other, reader in READERS.items() if reader.sniff(head)] == [name]


@every_reader
def test_rows_come_in_order_from_zero_with_exactly_the_schema(name, written):
    kept = open_trace(str(written)).scan().collect()
    assert kept.schema == pl.Schema(Trace)
    assert kept.select("row_id", "arrival_us", "input_tokens", "output_tokens").rows() == [
        (1, 0, 20, 6),
        (0, 500_000, 10, 5),
        (2, 2_000_000, 0, 0),
        (3, 2_000_000, 40, 8),
        (4, 3_600_000_000, 50, 9),
    ]
    Trace.validate(kept)


@every_reader
def test_the_account_adds_up(name, written):
    report = open_trace(str(written)).account()
    assert (report.rows_read, report.rows_kept, report.dropped) == (5, 5, {})
    assert (report.inversions, report.ties, report.span_us) == (1, 1, 3_600_000_000)
    assert (report.input_tokens, report.output_tokens) == (120, 28)
    assert len(report.sha256) == 64
    assert READERS[name].time_text == report.time_text


@every_reader
def test_reading_again_gives_the_same(name, written):
    loaded = open_trace(str(written), name)
    assert loaded.scan().collect().equals(loaded.scan().collect())
    assert loaded.account() == open_trace(str(written)).account()


@every_reader
def test_our_own_file_of_it_reads_back_equal(name, written, tmp_path):
    from traces.readers import own

    loaded = open_trace(str(written))
    own.write(tmp_path / "own.parquet", loaded.scan(), loaded.origin_us)
    again = open_trace(str(tmp_path / "own.parquet"))
    assert again.scan().collect().equals(loaded.scan().collect())
    assert again.account().first_arrival == loaded.account().first_arrival
    assert again.account().last_arrival == loaded.account().last_arrival
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("name", ["azure", "mooncake"])
def test_a_gzip_file_reads_like_the_plain_one(name, written, tmp_path):
    packed = tmp_path / "recorded.gz"
    packed.write_bytes(gzip.compress(written.read_bytes()))
    assert open_trace(str(packed)).scan().collect().equals(open_trace(str(written)).scan().collect())


@every_reader
def test_reasons_are_closed_words(name, written):
    for batch in READERS[name].batches(written):
        assert batch.rows.schema["reason"] == pl.Enum(REASONS)


@every_reader
@pytest.mark.parametrize("content", [b"a,b,c\n1,2,3\n", b"\x00\x01\x02" * 50, b"plain words\n"])
def test_another_format_by_name_is_one_clear_error(name, content, tmp_path):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=r"other: .*expected") as caught:
        open_trace(str(path), name)
    assert "\n" not in str(caught.value)
