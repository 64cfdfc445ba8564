"""Lint: each oddity is found, with its count and row, and a clean trace has no finding above info."""

from __future__ import annotations

import polars as pl
import pytest

from traces.lint import lint
from traces.readers import open_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def findings(tmp_path, lines, *, header=HEADER, ending="\n", last=True, bom=""):
    path = tmp_path / "t.csv"
    path.write_bytes((bom + ending.join([header, *lines]) + (ending if last else "")).encode())
    loaded = open_trace(str(path))
    return {finding.code: finding for finding in lint(loaded.scan(), loaded.account())}


def line(second: float, i: int = 100, o: int = 10) -> str:
    return f"2023-11-16 18:{int(second // 60):02d}:{second % 60:09.6f},{i},{o}"


def test_a_clean_trace_has_information_only(tmp_path):
    found = findings(tmp_path, [line(s + s * s / 1003, i=100 + s) for s in range(20)])
    assert {finding.severity for finding in found.values()} == {"info"}
    assert found["extent"].message.startswith("first arrival Thursday 16 November 2023 18:00:00 UTC")
    assert "UTC" in found["time"].message


def test_the_longest_pause_is_named_with_the_row_that_ends_it(tmp_path):
    found = findings(tmp_path, [line(0.1), line(1.2), line(218.7), line(219.5)])
    assert (found["largest-gap"].row, found["largest-gap"].message) == (3, "the longest pause is 3 min 38 s")


def test_order_duplicates_and_ties(tmp_path):
    found = findings(tmp_path, [line(5, 1, 1), line(3, 1, 1), line(3, 2, 2), line(3, 1, 1), line(5, 1, 1)])
    assert (found["order"].severity, found["order"].count) == ("warning", 1)
    assert (found["duplicates"].count, found["duplicates"].row) == (2, 4)
    assert (found["ties"].severity, found["ties"].count) == ("warning", 3)
    assert found["resolution"].severity == "warning"


def test_a_coarse_grid_is_told(tmp_path):
    found = findings(tmp_path, [line(3 * step + 0.001 * step, i=copy) for step in range(10) for copy in range(4)])
    assert "about 3 s" in found["time-grid"].message
    assert found["ties"].count == 30


def test_zero_and_absurd_lengths_are_kept_and_told(tmp_path):
    found = findings(tmp_path, [line(1), line(2, i=0), line(3, o=0), line(4, o=0), line(5, i=3_000_000)])
    assert (found["zero-input-tokens"].count, found["zero-input-tokens"].row) == (1, 2)
    assert (found["zero-output-tokens"].count, found["zero-output-tokens"].row) == (2, 3)
    assert (found["absurd-tokens"].count, found["absurd-tokens"].row) == (1, 5)
    assert not any(code.startswith("dropped") for code in found)


def test_dropped_rows_are_an_error_when_many(tmp_path):
    good = [line(s) for s in range(1, 30)]
    few = findings(tmp_path, [*good, "x,1,2"])
    assert (few["dropped-bad-timestamp"].severity, few["dropped-bad-timestamp"].row) == ("warning", 30)
    many = findings(tmp_path, [*good[:5], "x,1,2"])
    assert many["dropped-bad-timestamp"].severity == "error"
    assert next(iter(many)) == "dropped-bad-timestamp"


def test_a_file_that_breaks_off_is_an_error(tmp_path):
    found = findings(tmp_path, [*[line(s) for s in range(1, 30)], "2023-11-1"], last=False)
    assert (found["dropped-truncated-last-line"].severity, found["dropped-truncated-last-line"].row) == ("error", 30)
    assert "no-final-newline" not in found


def test_how_the_file_is_written(tmp_path):
    found = findings(tmp_path, [line(1), line(2)], ending="\r\n", last=False, bom="\ufeff")
    assert {"crlf", "byte-order-mark", "no-final-newline"} <= set(found)
    assert not {"crlf", "byte-order-mark", "no-final-newline"} & set(findings(tmp_path, [line(1), line(2)]))


@pytest.mark.parametrize("lines", [[line(1)], [line(1, 1), line(1, 2)]])
def test_traces_without_extent(tmp_path, lines):
    found = findings(tmp_path, lines)
    assert ("time-unit" in found) == (len(lines) == 2)


def test_days_between_rows_make_the_unit_doubtful(tmp_path):
    found = findings(tmp_path, [f"2023-0{month}-01 00:00:00.5,{month},2" for month in range(1, 9)])
    assert "time unit" in found["time-unit"].message


def test_unknown_lengths_are_information(tmp_path):
    path = tmp_path / "t.parquet"
    names = ("row_id", "arrival_us", "input_tokens", "output_tokens")
    rows = [(0, 1, 1, None), (1, 2, None, 1), (2, 4, 1, 1)]
    pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row").write_parquet(path)
    loaded = open_trace(str(path))
    [found] = [finding for finding in lint(loaded.scan(), loaded.account()) if finding.code == "unknown-tokens"]
    assert (found.severity, found.count, found.row) == ("info", 2, 1)
