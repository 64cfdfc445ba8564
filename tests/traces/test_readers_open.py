"""`open_trace`: what is not a trace is told in one line that names the file and the next step."""

from __future__ import annotations

import polars as pl
import pytest

from traces.errors import BadInputError
from traces.readers import open_trace
from traces.readers.head import looks_like

HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf\n \n", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS stub.*git lfs pull"),
        (HEADER, "no rows after the header"),
        (HEADER + b"\n", r"no valid row among 1: 1 blank_line \(first: row 1\)"),
        (HEADER + b"x,1,2\n", r"no valid row among 1: 1 bad_timestamp.*--format azure"),
        (b"time,in,out\n1,2,3\n", "columns time, in, out.*TIMESTAMP,ContextTokens,GeneratedTokens.*--format"),
        (b'{"ts": 1, "prompt": "secret words"}\n', "keys ts, prompt"),
        (b"\x89PNG\r\n\x1a\n", "neither a known header nor JSON"),
        (b"PAR1 and then nothing", "not a whole Parquet file"),
    ],
)
def test_what_is_not_a_trace(tmp_path, content, expected):
    path = tmp_path / "given.dat"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=f"given.dat: .*{expected}") as caught:
        open_trace(str(path)).account()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_azure_file_with_renamed_columns_names_both(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("TIMESTAMP,context,generated\n2023-11-16 18:17:03,1,2\n")
    with pytest.raises(BadInputError, match=r"columns TIMESTAMP, context, generated.*expected the columns TIMESTAMP"):
        open_trace(str(path), "azure")


def test_missing_files_folders_and_names(tmp_path):
    with pytest.raises(BadInputError, match="no such file"):
        open_trace(str(tmp_path / "missing.csv"))
    with pytest.raises(BadInputError, match="a directory without files"):
        open_trace(str(tmp_path))
    with pytest.raises(
        BadInputError, match=r'no format "azur" \(did you mean "azure"\?\); known formats: azure, burst'
    ):
        open_trace(str(tmp_path), "azur")
    with pytest.raises(BadInputError, match='no bundled trace "tiny"'):
        open_trace("corpus:tiny")


def test_no_value_of_the_file_reaches_a_message():
    assert "secret" not in looks_like(b'{"prompt": "secret"}')
    assert "secret" not in looks_like(b"tell me the secret word\nsecond line")
    assert "secret" not in looks_like(b"12, secret")


def test_a_parquet_file_of_something_else_names_the_columns(tmp_path):
    path = tmp_path / "x.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(BadInputError, match=r"columns row_id, arrival_us, input_tokens, output_tokens are missing"):
        open_trace(str(path))
    names = ("row_id", "arrival_us", "input_tokens", "output_tokens")
    pl.DataFrame({name: [1.5] for name in names}).write_parquet(path)
    with pytest.raises(BadInputError, match="row_id is Float64, expected Int64"):
        open_trace(str(path))


def test_bad_rows_of_our_own_format_are_counted_and_unknown_lengths_kept(tmp_path):
    path = tmp_path / "x.parquet"
    rows = [(0, 5, 1, 1), (1, None, 1, 1), (2, -1, 1, 1), (3, 6, -1, 1), (4, 7, None, None), (5, 8, 1, 2**40)]
    names = ("row_id", "arrival_us", "input_tokens", "output_tokens")
    pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row").write_parquet(path)
    loaded = open_trace(str(path))
    report = loaded.account()
    assert report.dropped == {"missing_field": 1, "bad_timestamp": 1, "negative_tokens": 1, "bad_tokens": 1}
    assert report.examples == {"missing_field": 2, "bad_timestamp": 3, "negative_tokens": 4, "bad_tokens": 6}
    assert loaded.scan().select(names).collect().rows() == [(0, 0, 1, 1), (4, 2, None, None)]


def test_damaged_pages_are_one_clear_error(tmp_path):
    path = tmp_path / "x.parquet"
    names = ("row_id", "arrival_us", "input_tokens", "output_tokens")
    pl.DataFrame({name: range(5000) for name in names}).write_parquet(path)
    content = bytearray(path.read_bytes())
    content[4:600] = b"\xff" * 596
    path.write_bytes(bytes(content))
    with pytest.raises(BadInputError, match="damaged Parquet data"):
        open_trace(str(path)).account()


def test_a_source_that_turns_out_unordered_is_written_whole_and_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("traces.readers.lines._CHUNK_BYTES", 60)
    path, output = tmp_path / "t.csv", tmp_path / "o.parquet"
    lines = [b"2023-11-16 18:17:%02d,%d,1\n" % (second, second) for second in (10, 11, 12, 13, 9, 14)]
    path.write_bytes(HEADER + b"".join(lines))
    for _ in range(20):
        loaded = open_trace(str(path))
        assert loaded.write(output).inversions == 1
        assert pl.read_parquet(output)["input_tokens"].to_list() == [9, 10, 11, 12, 13, 14]
    assert sorted(found.name for found in tmp_path.iterdir()) == ["o.parquet", "t.csv"]
