"""The Mooncake reader."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.errors import BadInputError
from traces.lint import lint
from traces.readers import Options, mooncake, open_trace
from traces.readers.head import Head
from traces.schema import Trace

milliseconds = st.one_of(st.integers(0, 10**9), st.integers(0, 10**9).map(lambda n: n / 8))
good_rows = st.fixed_dictionaries(
    {
        "timestamp": milliseconds,
        "input_length": st.integers(0, 200_000),
        "output_length": st.integers(0, 5000),
        "hash_ids": st.lists(st.integers(0, 2**40), max_size=5),
    },
    optional={"session_id": st.text(st.characters(codec="utf-8"), min_size=1, max_size=5), "other": st.none()},
)
garbage = st.one_of(
    st.binary(max_size=40).map(lambda b: b"#" + b.replace(b"\n", b"")),
    st.sampled_from(
        [
            b"",
            b" \r",
            b"{",
            b"[]",
            b"null",
            b"7",
            b'"text"',
            b'{"timestamp": 1}',
            b'{"timestamp": NaN, "input_length": 1, "output_length": 1, "hash_ids": []}',
            b'{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": []',
            b'{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [0.5]}',
            b'{"timestamp": 1, "input_length": 1, "output_length": 1, "session_id": "\xff"}',
            b'{"timestamp": 1, "input_length": 1.5, "output_length": 1}',
            b'{"timestamp": 1, "input_length": -1, "output_length": 1}',
            b'{"timestamp": 1, "input_length": true, "output_length": 1}',
            b'{"timestamp": 1, "input_length": 1, "output_length": 1e300}',
            b'{"timestamp": "1", "input_length": 1, "output_length": 1}',
            b'{"timestamp": -1, "input_length": 1, "output_length": 1}',
            b'{"timestamp": 1e300, "input_length": 1, "output_length": 1}',
        ]
    ),
)


def read(content: bytes, *, chunk: int = 1 << 22, compress: bool = False):
    with tempfile.TemporaryDirectory() as folder, mock.patch("traces.readers.lines._CHUNK_BYTES", chunk):
        path = Path(folder) / "trace"
        path.write_bytes(gzip.compress(content) if compress else content)
        loaded = open_trace(str(path), "mooncake")
        return loaded.account(), loaded.scan().collect()


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.one_of(good_rows, garbage), max_size=25),
    first=good_rows,
    chunk=st.sampled_from([3, 50, 1 << 22]),
    compress=st.booleans(),
)
def test_every_row_is_kept_exactly_or_counted(rows, first, chunk, compress):
    rows = [*rows, first]
    lines = [r if isinstance(r, bytes) else json.dumps(r, ensure_ascii=False).encode() for r in rows]
    report, kept = read(b"\n".join(lines), chunk=chunk, compress=compress)
    expected = [
        (i, round(r["timestamp"] * 1000), r["input_length"], r["output_length"], r["hash_ids"], r.get("session_id"))
        for i, r in enumerate(rows)
        if not isinstance(r, bytes)
    ]
    expected.sort(key=lambda row: row[1])
    assert report.rows_read == len(rows) == report.rows_kept + sum(report.dropped.values())
    assert kept.select(
        "row_id", pl.col("arrival_us") + expected[0][1], "input_tokens", "output_tokens", "prefix_blocks", "session_id"
    ).rows() == [tuple(row) for row in expected]
    assert kept.schema == pl.Schema(Trace)
    assert report.first_arrival is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "blank_line"),
        (b'{"timestamp": 1, "x": "\xff"}', "not_utf8"),
        (b"{", "malformed_row"),
        (b"[1]", "malformed_row"),
        (b'{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": {"a": [1]}}', "malformed_row"),
        (b'{"session_id": "a", "delay": 1500, "input_length": 700, "output_length": 20}', "no_time"),
        (b'{"timestamp": 1, "output_length": 20}', "missing_field"),
        (b'{"timestamp": 1, "input_length": 20}', "missing_field"),
        (b'{"timestamp": 1, "input_length": 20, "text_input": "hi", "output_length": 1}', "conflicting_fields"),
        (b'{"timestamp": 1, "messages": [], "payload": {}, "output_length": 1}', "conflicting_fields"),
        (b'{"timestamp": null, "input_length": 1, "output_length": 1}', "missing_field"),
        (b'{"timestamp": "2023", "input_length": 1, "output_length": 1}', "bad_timestamp"),
        (b'{"timestamp": 1, "input_length": "1", "output_length": 1}', "bad_tokens"),
        (b'{"timestamp": 1, "input_length": 1, "output_length": -1}', "negative_tokens"),
    ],
)
def test_a_dropped_row_has_its_reason_and_its_line(line, reason):
    good = b'{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1]}'
    report, _ = read(b"\n".join([good, line, good, b""]))
    assert (report.dropped, report.examples) == ({reason: 1}, {reason: 2})


def test_block_counts_that_do_not_fit_the_length_are_a_warning():
    rows = [(512, [1]), (513, [1]), (1, []), (1024, [1, 2]), (0, [])]
    lines = [json.dumps({"timestamp": 5, "input_length": n, "output_length": 1, "hash_ids": ids}) for n, ids in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        path.write_text("\n".join(lines) + "\n")
        loaded = open_trace(str(path))
        [finding] = [f for f in lint(loaded.scan(), loaded.account()) if f.code == "blocks"]
    assert (finding.severity, finding.count, finding.row) == ("warning", 2, 2)


def test_the_public_synthetic_trace_is_read_whole(shared_traces):
    loaded = open_trace(str(shared_traces / "mooncake_synthetic_trace.jsonl"))
    report = loaded.account()
    assert (report.format, report.rows_read, report.rows_kept, report.dropped) == ("mooncake", 3993, 3993, {})
    rows = [json.loads(line) for line in loaded.path.read_text().splitlines()]
    kept = loaded.scan().collect()
    assert kept["arrival_us"].to_list() == [row["timestamp"] * 1000 for row in rows]
    assert kept["prefix_blocks"].to_list() == [row["hash_ids"] for row in rows]
    assert kept["block_tokens"].unique().to_list() == [512]
    assert report.input_tokens == sum(row["input_length"] for row in rows)
    assert not [finding for finding in lint(loaded.scan(), report) if finding.severity != "info"]


def test_the_sample_of_the_extended_format(shared_traces):
    loaded = open_trace(str(shared_traces / "madeup" / "aiperf_mooncake_ext.jsonl"))
    assert (loaded.account().rows_kept, loaded.account().dropped) == (3, {})
    columns = ("row_id", "arrival_us", "input_tokens", "output_tokens", "session_id", "turn", "parent_row", "think_us")
    assert loaded.scan().select(columns).collect().rows() == [
        (0, 0, 300, 20, "a", 1, None, None),
        (2, 900_500, None, 5, None, None, None, None),
        (1, 1_500_000, 700, 20, "a", 2, 0, 1_500_000),
    ]


def test_a_delay_counts_from_the_turn_before_and_lengths_are_estimated_when_asked(tmp_path):
    path = tmp_path / "t.jsonl"
    rows = [
        {"timestamp": 100, "session_id": 7, "text_input": "x" * 41, "output_length": 2},
        {"session_id": 7, "delay": 50.5, "payload": {"messages": [{"content": "y" * 8}]}},
        {"session_id": 7, "delay": 1, "input_length": 3, "output_length": 4},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    kept = open_trace(str(path), None, Options(chars_per_token=4)).scan().collect()
    assert kept.select("arrival_us", "input_tokens", "output_tokens", "turn", "parent_row").rows() == [
        (0, 11, 2, 1, None),
        (50_500, 2, None, 2, 0),
        (51_500, 3, 4, 3, 1),
    ]
    assert open_trace(str(path)).scan().collect()["input_tokens"].to_list() == [None, None, 3]


def test_bare_whole_timestamps_may_be_milliseconds_or_seconds_and_the_user_has_to_say(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp": 1, "input_length": 2, "output_length": 3}\n' * 2)
    with pytest.raises(BadInputError, match=r"may be mooncake and guidellm \(mooncake: milliseconds.*--format"):
        open_trace(str(path))
    assert open_trace(str(path), "guidellm").account().rows_kept == 2
    assert open_trace(str(path), "mooncake").account().rows_kept == 2


@pytest.mark.parametrize("name", ["bailian.jsonl", "ragpulse.jsonl", "guidellm_trace.jsonl"])
def test_relatives_whose_times_are_seconds_are_not_taken_for_it(shared_traces, name):
    path = shared_traces / "madeup" / name
    assert not mooncake.sniff(Head(path, path.read_bytes()))
