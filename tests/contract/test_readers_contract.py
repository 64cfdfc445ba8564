"""What every reader of recorded traffic has to fulfil, run against each."""

from __future__ import annotations

import gzip
import itertools
import json

import polars as pl
import pytest

from tests.contract.reader_samples import ROWS, SAMPLES
from traces.errors import BadInputError
from traces.readers import READERS, open_trace
from traces.readers import own as own_format
from traces.readers.base import NO_OPTIONS, REASONS
from traces.readers.head import Head
from traces.rejects import write_rejects
from traces.schema import Trace

every_reader = pytest.mark.parametrize("name", list(SAMPLES))
every_text_reader = pytest.mark.parametrize("name", [name for name in SAMPLES if name != "own"])
COLUMNS = ("row_id", "arrival_us", "input_tokens", "output_tokens")


@pytest.fixture
def written(tmp_path, name):
    path = tmp_path / "recorded"
    SAMPLES[name].write(path, ROWS)
    return path


def opened(path, name, fmt=None):
    return open_trace(str(path), fmt, SAMPLES[name].options)


def test_no_reader_escapes_the_suite():
    assert {*SAMPLES, "servegen"} == set(READERS)


@every_reader
def test_the_format_is_found_by_content_and_by_no_other_reader(name, written):
    assert opened(written, name).format == name
    head = Head(written, written.read_bytes()[:65536])
    assert [other for other, reader in READERS.items() if reader.sniff(head)] == [name]


@every_reader
def test_rows_come_in_order_from_zero_with_exactly_the_schema(name, written):
    kept = opened(written, name).scan().collect()
    assert kept.schema == pl.Schema(Trace)
    assert kept.select(COLUMNS).rows() == SAMPLES[name].expected()
    Trace.validate(kept)


@every_reader
def test_the_account_adds_up(name, written):
    report = opened(written, name).account()
    arrivals = [ms // SAMPLES[name].grid_ms for ms, _, _ in ROWS]
    assert (report.rows_read, report.rows_kept, report.dropped, report.remarks) == (5, 5, {}, {})
    assert report.inversions == sum(later < earlier for earlier, later in itertools.pairwise(arrivals))
    assert report.ties == len(arrivals) - len(set(arrivals))
    assert report.span_us == 3_600_000_000
    assert (report.input_tokens, report.output_tokens) == ((120, 28) if SAMPLES[name].lengths else (None, None))
    assert len(report.sha256) == 64
    assert READERS[name].times(SAMPLES[name].options) == report.time_text


@every_reader
def test_reading_again_gives_the_same(name, written):
    loaded = opened(written, name, name)
    assert loaded.scan().collect().equals(loaded.scan().collect())
    assert loaded.account() == opened(written, name).account()


@every_reader
@pytest.mark.parametrize("ordered", [False, True])
def test_our_own_file_of_it_reads_back_equal(name, ordered, tmp_path):
    path = tmp_path / "recorded"
    SAMPLES[name].write(path, sorted(ROWS) if ordered else ROWS)
    loaded, output = opened(path, name), tmp_path / "own.parquet"
    # A source in order is written in one pass, another in two: the file is the same either way.
    report = opened(path, name).write(output)
    assert report == loaded.account()
    again = open_trace(str(output))
    assert again.scan().collect().equals(loaded.scan().collect())
    assert (again.account().first_arrival, again.origin_us) == (loaded.account().first_arrival, loaded.origin_us)
    assert again.account().last_arrival == loaded.account().last_arrival
    own_format.write(tmp_path / "two.parquet", loaded.scan(), loaded.origin_us)
    assert pl.read_parquet(tmp_path / "two.parquet").equals(pl.read_parquet(output))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@every_text_reader
def test_a_compressed_file_reads_like_the_plain_one(name, written, tmp_path):
    import pyarrow as pa

    plain = opened(written, name).scan().collect()
    packed = tmp_path / "recorded.gz"
    packed.write_bytes(gzip.compress(written.read_bytes()))
    assert opened(packed, name).scan().collect().equals(plain)
    packed = tmp_path / "recorded.zst"
    with pa.CompressedOutputStream(str(packed), "zstd") as file:
        file.write(written.read_bytes())
    assert opened(packed, name).scan().collect().equals(plain)


@every_text_reader
def test_a_byte_order_mark_changes_nothing(name, written):
    plain = opened(written, name).scan().collect()
    written.write_bytes(b"\xef\xbb\xbf" + written.read_bytes())
    loaded = opened(written, name)
    assert loaded.scan().collect().equals(plain)
    assert loaded.account().byte_order_mark


# Line feeds may lie inside a body of Helicone's.
@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"own", "helicone"}))
def test_crlf_changes_nothing(name, written):
    plain = opened(written, name).scan().collect()
    written.write_bytes(written.read_bytes().replace(b"\n", b"\r\n"))
    loaded = opened(written, name)
    assert loaded.scan().collect().equals(plain)
    assert loaded.account().crlf


@every_reader
def test_a_folder_reads_as_one_trace(name, written, tmp_path):
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").write_text("not read")
    SAMPLES[name].write(folder / "a", ROWS)
    SAMPLES[name].write(folder / "deep" / "b", ROWS)
    loaded = opened(folder, name)
    report, kept = loaded.account(), loaded.scan().collect()
    assert (report.files, report.rows_kept, report.format) == (2, 10, name)
    assert sorted(kept["row_id"]) == list(range(10))
    assert kept["arrival_us"].is_sorted()
    first = kept.filter(pl.col("row_id") < 5).select(COLUMNS)
    assert first.rows() == opened(written, name).scan().collect().select(COLUMNS).rows()


# The sample of OTLP is one document, and rows of Helicone's CSV lie over several lines: they have tests of their own.
@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"own", "helicone", "otel"}))
def test_a_torn_last_row_is_counted_and_kept_apart(name, written, tmp_path):
    content = written.read_bytes()
    written.write_bytes(content + content.splitlines()[-1][:9])
    loaded = opened(written, name)
    report = loaded.account()
    assert (report.rows_read, report.rows_kept, report.final_newline) == (6, 5, False)
    assert (report.dropped, report.examples) == ({"truncated_last_line": 1}, {"truncated_last_line": 6})
    assert write_rejects(tmp_path / "rejects", loaded.batches()) == 1
    [rejected] = [json.loads(line) for line in (tmp_path / "rejects").read_text().splitlines()]
    assert rejected == {"row": 6, "reason": "truncated_last_line", "raw": content.splitlines()[-1][:9].decode()}
    assert (tmp_path / "rejects").stat().st_mode & 0o777 == 0o600


@every_reader
def test_reasons_are_closed_words(name, written):
    for batch in READERS[name].batches(written, SAMPLES[name].options):
        assert batch.rows.schema["reason"] == pl.Enum(REASONS)


@every_reader
@pytest.mark.parametrize("content", [b"a,b,c\n1,2,3\n", b"\x00\x01\x02" * 50, b"plain words\n"])
def test_another_format_by_name_is_one_clear_error(name, content, tmp_path):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=r"other: .*expected") as caught:
        opened(path, name, name)
    assert "\n" not in str(caught.value)


def test_each_format_tells_how_its_times_are_understood():
    assert all(reader.times(NO_OPTIONS) and reader.expected for reader in READERS.values())
