"""What is odd about a trace, in plain words, before any load is sent. Pure: frame and report in, findings out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Literal

import msgspec
import polars as pl

from traces.batches import in_batches
from traces.readers.base import REMARKS, SKIPPED, ImportReport
from traces.units import US_PER_S, format_duration

Severity = Literal["error", "warning", "info"]

ABSURD_TOKENS: Final = 2_000_000
"""Longer than any model's context: likely another unit (characters, bytes)."""

_DAY_US: Final = 86_400 * US_PER_S
_MANY_DROPPED_SHARE: Final = 0.1
_MANY_TIES_SHARE: Final = 0.2
_GRIDS: Final = {"1 s": US_PER_S, "100 ms": 100_000, "10 ms": 10_000, "1 ms": 1_000}
_COARSE_STEP_US: Final = US_PER_S
_FINE_STEPS_SHARE: Final = 0.05
"""A time grid may have a few steps off it."""

_DUPLICATE_KEY: Final = ["arrival_us", "input_tokens", "output_tokens"]

_RULES: Final = {
    "zero_input": pl.col("input_tokens") == 0,
    "zero_output": pl.col("output_tokens") == 0,
    "absurd": pl.any_horizontal(pl.col("input_tokens", "output_tokens") > ABSURD_TOKENS),
    "unknown": pl.any_horizontal(pl.col("input_tokens", "output_tokens").is_null()),
    "blocks": pl.col("prefix_blocks").list.len() != -(-pl.col("input_tokens") // pl.col("block_tokens")),
    "failed": pl.col("source_status") >= 400,
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing worth knowing. `row` is the first row (from 1) that shows it, where one does."""

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
        *_source(report, figures),
    ]
    rank = {"error": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda finding: rank[finding.severity])


class _Count:
    """How many rows a rule holds for, and the first of them (rows count from 1)."""

    def __init__(self) -> None:
        self.count, self.row = 0, 0

    def add(self, row_ids: pl.Series) -> None:
        if not row_ids.is_empty():
            self.row = self.row or row_ids[0] + 1
            self.count += row_ids.len()


class _Figures:
    """What the findings rest on, gathered in one pass; memory does not grow with the trace's length."""

    def __init__(self) -> None:
        self.rules = {name: _Count() for name in _RULES}
        self.on_grid = dict.fromkeys(_GRIDS, True)
        self.duplicates = _Count()
        self.largest_gap_us, self.largest_gap_row = -1, 0
        self.gaps = self.day_gaps = self.steps = self.fine_steps = 0
        self.coarse_step_us: int | None = None
        self._last_tie: pl.DataFrame | None = None

    def add(self, batch: pl.DataFrame) -> None:
        for name, rule in _RULES.items():
            self.rules[name].add(batch.filter(rule)["row_id"])
        for name, grid_us in _GRIDS.items():
            self.on_grid[name] = self.on_grid[name] and bool((batch["arrival_us"] % grid_us == 0).all())
        self._add_gaps(batch)
        self._add_duplicates(batch)

    def _add_gaps(self, batch: pl.DataFrame) -> None:
        known = batch.filter(pl.col("gap_us").is_not_null())
        if known.is_empty():
            return
        gaps = known["gap_us"]
        at = gaps.arg_max()
        if at is not None and gaps[at] > self.largest_gap_us:
            self.largest_gap_us, self.largest_gap_row = gaps[at], known["row_id"][at] + 1
        self.gaps += gaps.len()
        self.day_gaps += int((gaps > _DAY_US).sum())
        self.steps += int((gaps > 0).sum())
        self.fine_steps += int(gaps.is_between(1, _COARSE_STEP_US, closed="left").sum())
        coarse = gaps.filter(gaps >= _COARSE_STEP_US)
        if not coarse.is_empty():
            least = coarse.sort()[0]
            self.coarse_step_us = least if self.coarse_step_us is None else min(self.coarse_step_us, least)

    def _add_duplicates(self, batch: pl.DataFrame) -> None:
        """Count rows with the arrival and lengths of an earlier one; the last arrival's rows are kept for the next."""
        rows = batch.select("row_id", *_DUPLICATE_KEY)
        if self._last_tie is not None:
            rows = pl.concat([self._last_tie, rows])
        again = rows.filter(~pl.struct(_DUPLICATE_KEY).is_first_distinct())
        # Those of the last arrival are counted when the batch that ends it is looked at, once.
        last_us = rows["arrival_us"][-1]
        self.duplicates.add(again.filter(pl.col("arrival_us") != last_us)["row_id"])
        self._last_tie = rows.filter(pl.col("arrival_us") == last_us)

    def finish(self) -> None:
        if self._last_tie is not None:
            self.duplicates.add(self._last_tie.filter(~pl.struct(_DUPLICATE_KEY).is_first_distinct())["row_id"])


def _figures(frame: pl.LazyFrame) -> _Figures:
    figures = _Figures()
    for batch in in_batches(frame):
        figures.add(batch)
    figures.finish()
    return figures


def _time(report: ImportReport, figures: _Figures) -> Iterator[Finding]:
    yield Finding(code="time", severity="info", message=f"times are understood as {report.time_text}")
    span = format_duration(report.span_us)
    if report.first_arrival and report.last_arrival:
        first, last = _in_words(report.first_arrival), _in_words(report.last_arrival)
        message = f"first arrival {first}, last arrival {last}: {span}"
    else:
        message = f"the trace has no date; its arrivals span {span}"
    yield Finding(code="extent", severity="info", message=message)
    if not figures.gaps:
        return
    message = f"the longest pause is {format_duration(figures.largest_gap_us)}"
    yield Finding(code="largest-gap", severity="info", message=message, row=figures.largest_gap_row)
    if report.span_us == 0:
        yield Finding(
            code="time-unit", severity="warning", message="all rows arrive at the same instant: is the time unit right?"
        )
    elif figures.day_gaps > figures.gaps / 2:
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
        elif reason in SKIPPED:
            severity = "info"
            message = (
                f"{count:,} of {report.rows_read:,} rows left out, they are no requests: {reason.replace('_', ' ')}"
            )
        elif count > _MANY_DROPPED_SHARE * report.rows_read:
            severity = "error"
        code = f"dropped-{reason.replace('_', '-')}"
        yield Finding(code=code, severity=severity, message=message, count=count, row=report.examples[reason])


def _order(report: ImportReport) -> Iterator[Finding]:
    if report.inversions:
        message = f"{report.inversions:,} rows arrive before the row above them; they are replayed in order of arrival"
        severity: Severity = "info" if report.unordered_by_nature else "warning"
        yield Finding(code="order", severity=severity, message=message, count=report.inversions)


def _ties(report: ImportReport, figures: _Figures) -> Iterator[Finding]:
    if count := figures.duplicates.count:
        message = f"{count:,} rows repeat the arrival and lengths of another row"
        row = figures.duplicates.row
        yield Finding(code="duplicates", severity="warning", message=message, count=count, row=row)
    grid = next((name for name in _GRIDS if figures.on_grid[name]), None)
    if grid and report.span_us:
        message = f"every arrival is a whole multiple of {grid}"
        yield Finding(code="resolution", severity="warning" if grid == "1 s" else "info", message=message)
    if not report.ties:
        return
    share = report.ties / report.rows_kept
    many = share > _MANY_TIES_SHARE
    message = f"{share:.1%} of the rows share their arrival with the row before"
    yield Finding(code="ties", severity="warning" if many else "info", message=message, count=report.ties)
    step_us = figures.coarse_step_us
    if many and step_us is not None and figures.fine_steps <= _FINE_STEPS_SHARE * figures.steps:
        step = format_duration(step_us)
        message = f"arrivals lie on a grid of about {step}: replayed as they are, they come in bursts"
        yield Finding(code="time-grid", severity="warning", message=message)


def _tokens(figures: _Figures) -> Iterator[Finding]:
    texts = {
        "zero_input": "rows have no input tokens; they are kept, and replayed with the shortest prompt",
        "zero_output": "rows have no output tokens (often failed requests); they are kept",
        "absurd": f"rows have more than {ABSURD_TOKENS:,} tokens: are lengths in another unit?",
        "unknown": "rows have no recorded length; the replay's defaults stand in",
    }
    for name, text in texts.items():
        if count := figures.rules[name].count:
            yield Finding(
                code=f"{name.replace('_', '-')}-tokens",
                severity="info" if name == "unknown" else "warning",
                message=f"{count:,} {text}",
                count=count,
                row=figures.rules[name].row,
            )


def _blocks(figures: _Figures) -> Iterator[Finding]:
    if count := figures.rules["blocks"].count:
        yield Finding(
            code="blocks",
            severity="warning",
            message=f"{count:,} rows have another number of prefix blocks than their input length needs",
            count=count,
            row=figures.rules["blocks"].row,
        )


def _source(report: ImportReport, figures: _Figures) -> Iterator[Finding]:
    """Yield what the recording itself is like: failures, conversations cut off, a sample of the real load."""
    failed = figures.rules["failed"]
    if failed.count:
        message = f"{failed.count:,} requests failed in the source (status 400 or above); they are kept as offered load"
        yield Finding(code="source-failures", severity="warning", message=message, count=failed.count, row=failed.row)
    for remark, count in report.remarks.items():
        yield Finding(
            code=remark.replace("_", "-"),
            severity="info" if remark == "retry" else "warning",
            message=f"{count:,} {REMARKS[remark]}",
            count=count,
            row=report.remark_examples[remark],
        )
    if report.sampling_percent is not None and report.sampling_percent < 100:
        factor = 100 / report.sampling_percent
        message = (
            f"the source kept {report.sampling_percent:g} % of the requests, as declared: the real rate was "
            f"{factor:.4g} times this, and rows are replayed as recorded; `ramptrace trace transform --rate-scale "
            "sampling` makes up the rest from displaced copies, and says so in the file"
        )
        yield Finding(code="sampling", severity="warning", message=message)
    if report.chars_per_token is not None:
        message = f"lengths recorded as text are estimated at {report.chars_per_token:g} characters per token"
        yield Finding(code="estimated-lengths", severity="warning", message=message)
    for note in report.notes:
        yield Finding(code="format", severity="info", message=f"{report.format}: {note}")


def _in_words(iso: str) -> str:
    instant = datetime.fromisoformat(iso)
    return f"{instant:%A} {instant.day} {instant:%B %Y %H:%M:%S} UTC"
