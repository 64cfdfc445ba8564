"""The Azure reader: exact stamps, and not a row lost or invented whatever stands between them."""

from __future__ import annotations

import gzip
import tempfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.errors import BadInputError
from traces.readers import open_trace
from traces.schema import Trace

HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stamp_2023(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S}.{instant.microsecond:06d}0"


def stamp_2024(instant: datetime) -> str:
    return instant.isoformat(" ")


def stamp_elsewhere(instant: datetime) -> str:
    return instant.astimezone(timezone(timedelta(hours=-7))).isoformat(" ")


instants = st.integers(946_684_800_000_000, 2_208_988_800_000_000).map(lambda us: EPOCH + timedelta(microseconds=us))
stamps = st.sampled_from([stamp_2023, stamp_2024, stamp_elsewhere])
tokens = st.integers(0, 200_000)
good_rows = st.tuples(instants, tokens, tokens, stamps)
garbage = st.one_of(
    st.binary(max_size=40).map(lambda b: b"#" + b.replace(b"\n", b"")),
    st.sampled_from(
        [
            b"",
            b"  ",
            b"\r",
            b",,",
            b",",
            b'"',
            b"\x00",
            b"2023-11-16 18:17:03.9799600",
            b"2023-11-16 18:17:03.9799600,1",
            b"2023-11-16 18:17:03.9799600,1,2,3",
            b"2023-11-16 18:17:03.9799600,1,",
            b"2023-11-16 18:17:03.9799600,-1,2",
            b"2023-11-16 18:17:03.9799600,1,2.5",
            b"2023-11-16 18:17:03.9799600,1,99999999999999999999999",
            b"2023-11-16 18:17:03.9799600,1,2\xff",
            b"2023-02-30 18:17:03.9799600,1,2",
            b"1700000000,1,2",
            HEADER,
        ]
    ),
)


def read(content: bytes, *, chunk: int = 1 << 22, compress: bool = False):
    with tempfile.TemporaryDirectory() as folder, mock.patch("traces.readers.lines._CHUNK_BYTES", chunk):
        path = Path(folder) / "trace"
        path.write_bytes(gzip.compress(content) if compress else content)
        loaded = open_trace(str(path))
        return loaded.account(), loaded.scan().collect()


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.one_of(good_rows, garbage), min_size=1, max_size=25),
    first=good_rows,
    ending=st.sampled_from([b"\n", b"\r\n"]),
    last_ending=st.booleans(),
    bom=st.booleans(),
    chunk=st.sampled_from([3, 50, 1 << 22]),
    compress=st.booleans(),
)
def test_every_row_is_kept_exactly_or_counted(rows, first, ending, last_ending, bom, chunk, compress):
    rows = [*rows, first]
    lines = [r if isinstance(r, bytes) else f"{r[3](r[0])},{r[1]},{r[2]}".encode() for r in rows]
    content = (b"\xef\xbb\xbf" if bom else b"") + ending.join([HEADER, *lines]) + (ending if last_ending else b"")
    report, kept = read(content, chunk=chunk, compress=compress)

    expected = [
        (i, (r[0] - EPOCH) // timedelta(microseconds=1), r[1], r[2])
        for i, r in enumerate(rows)
        if not isinstance(r, bytes)
    ]
    expected.sort(key=lambda row: row[1])
    first_us = expected[0][1]
    assert report.rows_read == len(rows)
    assert report.rows_read == report.rows_kept + sum(report.dropped.values())
    assert kept.select("row_id", "arrival_us", "input_tokens", "output_tokens").rows() == [
        (row_id, us - first_us, i, o) for row_id, us, i, o in expected
    ]
    assert kept.schema == pl.Schema(Trace)
    assert report.input_tokens == sum(row[2] for row in expected)
    assert report.first_arrival == (EPOCH + timedelta(microseconds=first_us)).isoformat()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "blank_line"),
        (b"\t ", "blank_line"),
        (b"2023-11-16 18:17:03.97\xff,1,2", "not_utf8"),
        (b"2023-11-16 18:17:03.97,1", "malformed_row"),
        (b"2023-11-16 18:17:03.97,1,2,3", "malformed_row"),
        (b"2023-11-16 18:17:03.97,,2", "missing_field"),
        (b",1,2", "missing_field"),
        (b"yesterday,1,2", "bad_timestamp"),
        (b"2023-13-16 18:17:03,1,2", "bad_timestamp"),
        (b"1969-12-31 23:59:59,1,2", "bad_timestamp"),
        (b"2023-11-16 18:17:03.97,one,2", "bad_tokens"),
        (b"2023-11-16 18:17:03.97,1,2147483648", "bad_tokens"),
        (b"2023-11-16 18:17:03.97,1,-2", "negative_tokens"),
    ],
)
def test_a_dropped_row_has_its_reason_and_its_line(line, reason):
    report, _ = read(b"\n".join([HEADER, b"2023-11-16 18:17:03,1,2", line, line, b"2023-11-16 18:17:04,1,2", b""]))
    assert report.dropped == {reason: 2}
    assert report.examples == {reason: 2}


def test_a_last_line_that_breaks_off_is_told_from_a_whole_one():
    report, _ = read(HEADER + b"\n2023-11-16 18:17:03,1,2\n2023-11-16 18:1")
    assert (report.dropped, report.examples) == ({"truncated_last_line": 1}, {"truncated_last_line": 2})
    report, _ = read(HEADER + b"\n2023-11-16 18:17:03,1,2\n2023-11-16 18:1\n")
    assert report.dropped == {"malformed_row": 1}
    report, _ = read(HEADER + b"\njunk\n2023-11-16 18:17:03,1,2")
    assert (report.dropped, report.final_newline) == ({"malformed_row": 1}, False)


def test_the_seventh_decimal_is_cut_off_not_rounded():
    _, kept = read(HEADER + b"\n2023-11-16 18:17:03.0000000,1,2\n2023-11-16 18:17:03.9999999,1,2\n")
    assert kept["arrival_us"].to_list() == [0, 999_999]


def test_order_and_ties_are_counted_across_chunks():
    stamps = [b"2023-11-16 18:17:0%d,1,%d" % (second, i) for i, second in enumerate([3, 3, 5, 4, 4, 5, 3])]
    for chunk in (2, 1 << 20):
        report, kept = read(b"\n".join([HEADER, *stamps, b""]), chunk=chunk)
        assert (report.inversions, report.ties) == (2, 4)
        assert kept["row_id"].to_list() == [0, 1, 6, 3, 4, 2, 5]


def test_a_window_filter_pushed_into_the_scan_sees_relative_arrivals(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(HEADER + b"".join(b"\n2023-11-16 18:17:%02d,%d,1" % (s, s) for s in range(10, 30)))
    scanned = open_trace(str(path)).scan()
    inside = scanned.filter(pl.col("arrival_us") >= 15_000_000).select("input_tokens").collect()
    assert inside["input_tokens"].to_list() == [25, 26, 27, 28, 29]
    assert scanned.head(3).collect()["input_tokens"].to_list() == [10, 11, 12]
    assert scanned.select(pl.len()).collect().item() == 20


def test_images_are_read_where_the_header_has_them():
    _, kept = read(b"TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:02.1,2,310,55\n")
    assert kept.select("images", "input_tokens", "output_tokens").row(0) == (2, 310, 55)


@pytest.mark.parametrize("chunk", [10_000, 1 << 22])
def test_a_damaged_gzip_file_is_one_clear_error(tmp_path, chunk):
    lines = b"".join(b"2023-11-16 18:17:03.%06d,%d,2\n" % (i, i * 7919 % 5000) for i in range(20_000))
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(HEADER + b"\n" + lines)[:-2000])
    with mock.patch("traces.readers.lines._CHUNK_BYTES", chunk), pytest.raises(BadInputError, match=r"t\.csv\.gz"):
        open_trace(str(path)).account()


def test_gzip_data_damaged_from_the_start_is_one_clear_error(tmp_path):
    packed = bytearray(gzip.compress(HEADER + b"\n2023-11-16 18:17:03,1,2\n"))
    packed[10:16] = b"\xff" * 6
    path = tmp_path / "t.csv.gz"
    path.write_bytes(bytes(packed))
    with pytest.raises(BadInputError, match=r"t\.csv\.gz: damaged gzip data"):
        open_trace(str(path))


def test_a_zstd_file_reads_like_the_plain_one(tmp_path):
    import pyarrow as pa

    rows = b"".join(b"2023-11-16 18:17:%02d,%d,1\r\n" % (s, s) for s in range(10, 30))
    content = HEADER + b"\r\n" + rows
    plain, packed = tmp_path / "t.csv", tmp_path / "t.csv.zst"
    plain.write_bytes(content)
    with pa.CompressedOutputStream(str(packed), "zstd") as file:
        file.write(content)
    assert open_trace(str(packed)).scan().collect().equals(open_trace(str(plain)).scan().collect())
    assert open_trace(str(packed)).account().rows_read == 20


def test_a_zstd_file_is_judged_row_by_row_like_a_plain_one(tmp_path):
    import pyarrow as pa

    rows = [b"2023-11-16 18:17:10,1,1", b"2023-11-16 18:17:1\xff,1,1", b"2023-11-16 18:17:12,1,1", b"2023-11-16 18:1"]
    packed = tmp_path / "t.csv.zst"
    with pa.CompressedOutputStream(str(packed), "zstd") as file:
        file.write(HEADER + b"\n" + b"\n".join(rows))
    report = open_trace(str(packed)).account()
    assert (report.rows_read, report.rows_kept) == (4, 2)
    assert report.dropped == {"not_utf8": 1, "truncated_last_line": 1}
    assert not report.final_newline


def test_a_torn_zstd_file_is_one_clear_error(tmp_path):
    import pyarrow as pa

    packed = tmp_path / "t.csv.zst"
    with pa.CompressedOutputStream(str(packed), "zstd") as file:
        file.write(HEADER + b"\n" + b"".join(b"2023-11-16 18:17:10,%d,1\n" % n for n in range(500)))
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(BadInputError, match=r"t\.csv\.zst: damaged zstd data"):
        open_trace(str(packed)).account()


def test_the_public_code_trace_is_read_whole(shared_traces):
    loaded = open_trace(str(shared_traces / "AzureLLMInferenceTrace_code.csv"))
    report = loaded.account()
    assert (report.rows_read, report.rows_kept, report.dropped) == (8819, 8819, {})
    assert report.first_arrival == "2023-11-16T18:17:03.979960+00:00"
    assert report.last_arrival == "2023-11-16T19:14:19.928016+00:00"
    assert (report.crlf, report.final_newline, report.inversions) == (True, False, 0)
    rows = [line.split(",") for line in loaded.path.read_text().splitlines()[1:]]
    instants = [datetime.fromisoformat(stamp[:26]) for stamp, _, _ in rows]
    kept = loaded.scan().collect()
    assert kept["arrival_us"].to_list() == [(i - instants[0]) // timedelta(microseconds=1) for i in instants]
    assert kept["input_tokens"].to_list() == [int(row[1]) for row in rows]
    assert kept["output_tokens"].to_list() == [int(row[2]) for row in rows]
    assert (report.input_tokens, report.output_tokens) == (18_059_974, 245_896)


@pytest.mark.parametrize("name", ["azure2023.csv", "azure2024.csv", "azure_lmm2025.csv"])
def test_the_sample_of_each_year_is_read_whole(shared_traces, name):
    report = open_trace(str(shared_traces / "madeup" / name)).account()
    assert (report.format, report.rows_kept, report.dropped) == ("azure", 3, {})
