"""Lint: each oddity is found, with its count and row, and a clean trace has no finding above info."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.describe import describe
from traces.lint import lint
from traces.readers import ImportReport, open_trace
from traces.schema import Trace

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


class Sliced:
    """A frame that comes in batches of the given sizes, as a long file does."""

    def __init__(self, frame: pl.DataFrame, sizes: list[int]) -> None:
        self.frame, self.sizes = frame, sizes

    def collect_batches(self, **_: object):
        at = 0
        for size in self.sizes:
            yield self.frame.slice(at, size)
            at += size
        yield self.frame.slice(at)


@given(
    st.lists(st.tuples(st.integers(0, 6).map(lambda n: n * 700_000), st.integers(0, 2)), min_size=1, max_size=25),
    st.lists(st.integers(0, 6), max_size=8),
)
def test_where_batches_are_cut_changes_nothing(rows, sizes):
    rows.sort(key=lambda row: row[0])
    full = [
        dict.fromkeys(pl.Schema(Trace)) | {"row_id": i, "arrival_us": us, "input_tokens": n, "output_tokens": n}
        for i, (us, n) in enumerate(rows)
    ]
    frame = pl.DataFrame(full, schema=pl.Schema(Trace))
    span_us = rows[-1][0] - rows[0][0]
    report = ImportReport(format="own", rows_read=len(rows), rows_kept=len(rows), span_us=span_us, ties=1)
    whole = lint(frame.lazy(), report)
    assert lint(Sliced(frame, sizes), report) == whole
    [duplicates] = [finding.count for finding in whole if finding.code == "duplicates"] or [0]
    assert duplicates == len(rows) - len(set(rows))

    one, cut = describe(frame.lazy()), describe(Sliced(frame, sizes))
    assert one.span_us == cut.span_us == span_us
    assert cut.interarrival_cv == (None if one.interarrival_cv is None else pytest.approx(one.interarrival_cv))
    assert (one.input_tokens, one.peak_rate_1s_per_s) == (cut.input_tokens, cut.peak_rate_1s_per_s)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40))
def test_token_quantiles_are_lengths_that_occur(lengths):
    rows = len(lengths)
    columns = {
        "row_id": range(rows),
        "arrival_us": range(rows),
        "input_tokens": lengths,
        "output_tokens": [None] * rows,
    }
    described = describe(pl.LazyFrame(columns, schema_overrides={"output_tokens": pl.Int64}))
    ordered = sorted(lengths)
    for name, share in (("p50", 50), ("p90", 90), ("p99", 99)):
        # The least length that at least this share of rows do not exceed.
        assert described.input_tokens[name] == next(
            n for n in ordered if 100 * sum(m <= n for m in lengths) >= share * rows
        )
    assert (described.input_tokens["min"], described.input_tokens["max"]) == (ordered[0], ordered[-1])
    assert described.input_tokens["mean"] == pytest.approx(sum(lengths) / rows)
    assert set(described.output_tokens.values()) == {None}
