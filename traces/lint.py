"""What is odd about a trace, in plain words, before any load is sent. Pure: frame and report in, findings out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
import polars as pl

from traces.readers.base import ImportReport
from traces.units import US_PER_S, format_duration

Severity = Literal["error", "warning", "info"]

ABSURD_TOKENS: Final = 2_000_000
"""Longer than any model's context: likely another unit (characters, bytes)."""

_DAY_US: Final = 86_400 * US_PER_S
_MANY_DROPPED_SHARE: Final = 0.1
_MANY_TIES_SHARE: Final = 0.2
_GRIDS: Final = {"1 s": US_PER_S, "100 ms": 100_000, "10 ms": 10_000, "1 ms": 1_000}
_COARSE_GAP_US: Final = US_PER_S


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing worth knowing. `row` is the first data line (from 1) that shows it, where one does."""

    code: str
    severity: Severity
    message: str
    count: int | None = None
    row: int | None = None


def lint(frame: pl.LazyFrame, report: ImportReport) -> list[Finding]:
    """Return the findings about a trace, errors first; `frame` is in order of arrival (`LoadedTrace.scan`)."""
    figures = _figures(frame)
    found = [
        *_time(report, figures),
        *_file(report),
        *_dropped(report),
        *_order(report),
        *_ties(report, figures),
        *_tokens(figures),
        *_blocks(figures),
    ]
    rank = {"error": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda finding: rank[finding.severity])


def _figures(frame: pl.LazyFrame) -> dict[str, Any]:
    arrival, blocks = pl.col("arrival_us"), pl.col("prefix_blocks").list.len()
    gap = arrival.diff()
    needed = -(-pl.col("input_tokens") // pl.col("block_tokens"))
    rules = {
        "zero_input": pl.col("input_tokens") == 0,
        "zero_output": pl.col("output_tokens") == 0,
        "absurd": pl.any_horizontal(pl.col("input_tokens", "output_tokens") > ABSURD_TOKENS),
        "unknown": pl.any_horizontal(pl.col("input_tokens", "output_tokens").is_null()),
        "blocks": blocks != needed,
    }
    counts = [rule.sum().alias(name) for name, rule in rules.items()]
    rows = [pl.col("row_id").filter(rule).first().alias(f"{name}_row") for name, rule in rules.items()]
    grids = [(arrival % grid_us == 0).all().alias(f"grid {name}") for name, grid_us in _GRIDS.items()]
    gaps = [
        gap.max().alias("largest_gap_us"),
        pl.col("row_id").get(gap.arg_max(), null_on_oob=True).alias("largest_gap_row"),
        gap.median().alias("median_gap_us"),
        gap.filter(gap > 0).quantile(0.05, "nearest").alias("least_step_us"),
    ]
    figures = frame.select(*counts, *rows, *grids, *gaps).collect(engine="streaming").row(0, named=True)
    return figures | _duplicates(frame)


def _duplicates(frame: pl.LazyFrame) -> dict[str, Any]:
    """Count rows with the arrival and lengths of another; only rows that share an arrival are held in memory."""
    arrival = pl.col("arrival_us")
    tied = (arrival.diff() == 0) | (arrival.diff(-1) == 0)
    key = ["arrival_us", "input_tokens", "output_tokens"]
    repeated = frame.filter(tied).select("row_id", pl.struct(key).is_first_distinct().not_().alias("again"))
    found = repeated.filter("again").select(pl.len(), pl.col("row_id").first()).collect(engine="streaming")
    return dict(zip(("duplicates", "duplicates_row"), found.row(0), strict=True))


def _time(report: ImportReport, figures: dict[str, Any]) -> Iterator[Finding]:
    yield Finding(code="time", severity="info", message=f"times are understood as {report.time_text}")
    span = format_duration(report.span_us)
    if report.first_arrival and report.last_arrival:
        first, last = _in_words(report.first_arrival), _in_words(report.last_arrival)
        message = f"first arrival {first}, last arrival {last}: {span}"
    else:
        message = f"the trace has no date; its arrivals span {span}"
    yield Finding(code="extent", severity="info", message=message)
    gap_us, median_us = figures["largest_gap_us"], figures["median_gap_us"]
    if gap_us is None or median_us is None:
        return
    row = figures["largest_gap_row"] + 1
    yield Finding(
        code="largest-gap", severity="info", message=f"the longest pause is {format_duration(gap_us)}", row=row
    )
    if report.span_us == 0:
        yield Finding(
            code="time-unit", severity="warning", message="all rows arrive at the same instant: is the time unit right?"
        )
    elif median_us > _DAY_US:
        message = "more than a day passes between most arrivals: is the time unit right?"
        yield Finding(code="time-unit", severity="warning", message=message)


def _file(report: ImportReport) -> Iterator[Finding]:
    if report.byte_order_mark:
        yield Finding(code="byte-order-mark", severity="info", message="the file begins with a byte order mark")
    if report.crlf:
        yield Finding(code="crlf", severity="info", message="lines end in CRLF")
    if not report.final_newline and "truncated_last_line" not in report.dropped:
        message = "the last line has no line ending; it was read as a whole row"
        yield Finding(code="no-final-newline", severity="info", message=message)


def _dropped(report: ImportReport) -> Iterator[Finding]:
    for reason, count in report.dropped.items():
        severity: Severity = "warning"
        message = f"{count:,} of {report.rows_read:,} rows dropped: {reason.replace('_', ' ')}"
        if reason == "truncated_last_line":
            severity, message = "error", "the last line breaks off: the file is incomplete, fetch it again"
        elif reason != "blank_line" and count > _MANY_DROPPED_SHARE * report.rows_read:
            severity = "error"
        code = f"dropped-{reason.replace('_', '-')}"
        yield Finding(code=code, severity=severity, message=message, count=count, row=report.examples[reason])


def _order(report: ImportReport) -> Iterator[Finding]:
    if report.inversions:
        message = f"{report.inversions:,} rows arrive before the row above them; they are replayed in order of arrival"
        yield Finding(code="order", severity="warning", message=message, count=report.inversions)


def _ties(report: ImportReport, figures: dict[str, Any]) -> Iterator[Finding]:
    if figures["duplicates"]:
        yield Finding(
            code="duplicates",
            severity="warning",
            message=f"{figures['duplicates']:,} rows repeat the arrival and lengths of another row",
            count=figures["duplicates"],
            row=figures["duplicates_row"] + 1,
        )
    grid = next((name for name in _GRIDS if figures[f"grid {name}"]), None)
    if grid and report.span_us:
        message = f"every arrival is a whole multiple of {grid}"
        yield Finding(code="resolution", severity="warning" if grid == "1 s" else "info", message=message)
    if not report.ties:
        return
    share = report.ties / report.rows_kept
    many = share > _MANY_TIES_SHARE
    message = f"{share:.1%} of the rows share their arrival with the row before"
    yield Finding(code="ties", severity="warning" if many else "info", message=message, count=report.ties)
    step_us = figures["least_step_us"]
    if many and step_us is not None and step_us >= _COARSE_GAP_US:
        message = (
            f"arrivals lie on a grid of about {format_duration(step_us)}: replayed as they are, they come in bursts"
        )
        yield Finding(code="time-grid", severity="warning", message=message)


def _tokens(figures: dict[str, Any]) -> Iterator[Finding]:
    texts = {
        "zero_input": "rows have no input tokens; they are kept, and replayed with the shortest prompt",
        "zero_output": "rows have no output tokens (often failed requests); they are kept",
        "absurd": f"rows have more than {ABSURD_TOKENS:,} tokens: are lengths in another unit?",
        "unknown": "rows have no recorded length; the replay's defaults stand in",
    }
    for name, text in texts.items():
        if count := figures[name]:
            yield Finding(
                code=f"{name.replace('_', '-')}-tokens",
                severity="info" if name == "unknown" else "warning",
                message=f"{count:,} {text}",
                count=count,
                row=figures[f"{name}_row"] + 1,
            )


def _blocks(figures: dict[str, Any]) -> Iterator[Finding]:
    if count := figures["blocks"]:
        yield Finding(
            code="blocks",
            severity="warning",
            message=f"{count:,} rows have another number of prefix blocks than their input length needs",
            count=count,
            row=figures["blocks_row"] + 1,
        )


def _in_words(iso: str) -> str:
    instant = datetime.fromisoformat(iso)
    return f"{instant:%A} {instant.day} {instant:%B %Y %H:%M:%S} UTC"
