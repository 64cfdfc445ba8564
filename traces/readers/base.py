"""The contract of a reader, and what every format shares: classification of rows and the account of an import.

A reader turns raw rows into **classified rows**: the columns of `Trace` (with `arrival_us` still on the source's own
clock), `reason`, null for a valid row, and `remark`, which tells something about a row that is kept. Nothing is
filtered before it was counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from traces.clock import to_datetime
from traces.errors import BadInputError
from traces.readers.head import Head, looks_like
from traces.schema import Trace

SKIPPED: Final = ("blank_line", "idle_window", "not_llm_span", "not_generation", "health_check", "not_inference")
"""Reasons that are no fault of the file: what is left out is not a request to a model."""

REASONS: Final = (
    *SKIPPED,
    "not_utf8",
    "malformed_row",
    "conflicting_fields",
    "missing_field",
    "no_time",
    "bad_timestamp",
    "bad_tokens",
    "negative_tokens",
    "truncated_last_line",
)
"""Why a row is dropped; the first that applies counts (a bad last line without its line feed is the last one)."""

REMARKS: Final = {
    "missing_parent": "rows continue a conversation whose earlier turn is not in the file",
    "retry": "rows repeat an earlier request's id: retries, each of them offered load",
    "failed": "requests failed in the source; they are kept as offered load",
    "unfinished": "requests had not ended when the source was exported; their lengths are unknown",
    "no_output": "requests have no captured output (streamed answers are not captured); their lengths are unknown",
}
"""What may be said of a kept row, and how lint says it after the count."""

TRACE_COLUMNS: Final = pl.Schema(Trace)
CLASSIFIED: Final = pl.Schema({**TRACE_COLUMNS, "reason": pl.Enum(REASONS), "remark": pl.Enum(list(REMARKS))})

MAX_TOKENS: Final = 2**31 - 1
"""No request is longer; a larger number is a parsing accident (and would overflow sums)."""

YEAR_10000_US: Final = 253_402_300_800_000_000
"""Later is not a time: a wrong unit, most likely."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a user declares about a recording, where the format cannot tell. `Format.options` names those it takes."""

    time_unit: str | None = None
    sampling_percent: float | None = None
    pattern: str | None = None
    rate_per_s: float | None = None
    seed: int | None = None
    chars_per_token: float | None = None
    endpoint_url: str | None = None


FLAGS: Final = {
    "time_unit": "--time-unit",
    "pattern": "--pattern",
    "rate_per_s": "--rate",
    "chars_per_token": "--chars-per-token",
}
"""The options that only some formats take, as the command line spells them."""

NO_OPTIONS: Final = Options()


class Batch(msgspec.Struct, frozen=True):
    """Classified rows in source order.

    `cut_off` when the file ended inside the last of them; `raw` is each row's text, None where every row is valid or
    the source is not text.
    """

    rows: pl.DataFrame
    cut_off: bool = False
    raw: list[bytes] | None = None


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One format: how to know it and how to read it. Each module of this package makes one, called `FORMAT`.

    `expected` describes a file of this format, `time_text` how its times are understood (unit and zone).
    `origin_us` returns the instant (µs since 1970 UTC) at which a file's clock reads 0, None when it has relative time
    only. `pieces`, where there are any, are the same as `batches`, each yet to be made, in whatever thread makes it.
    `unordered`: the source writes a row when the request ends, or keeps it in several files, so that rows out of
    order are its nature. `companions` is the name pattern of files that belong to another one and are not read alone.
    """

    name: str
    expected: str
    time_text: str | Callable[[Options], str]
    sniff: Callable[[Head], bool]
    batches: Callable[[Path, Options], Iterator[Batch]]
    pieces: Callable[[Path, Options], Iterator[Callable[[], Batch]]] | None = None
    check: Callable[[Path, Head, Options], None] | None = None
    origin_us: Callable[[Path, Options], int | None] = lambda _path, _options: 0
    options: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    unordered: bool = False
    companions: str | None = None

    def times(self, options: Options) -> str:
        """Return how times are understood, under these options."""
        return self.time_text if isinstance(self.time_text, str) else self.time_text(options)

    def refuse_other(self, path: Path, head: Head, options: Options) -> None:
        """Raise `BadInputError` when the file as a whole cannot be in this format (a wrong header, say)."""
        if self.check is not None:
            self.check(path, head, options)
        elif not self.sniff(head):
            raise BadInputError(
                f"{path}: not in the format {self.name} ({looks_like(head.content)}); expected {self.expected}; "
                f"name another format with --format"
            )


def relative(_path: Path, _options: Options) -> None:
    """Return None, as `origin_us` of a format whose times are relative."""


class ImportReport(msgspec.Struct, kw_only=True):
    """What a file held. Always `rows_read == rows_kept + sum(dropped.values())`.

    `examples` names the first dropped row of each reason, as its number; `remarks` counts kept rows by what
    is said of them, `remark_examples` alike. `inversions` counts kept rows that arrive earlier than the kept row before
    them; `ties` counts rows that share the arrival of the row before, in order of arrival. Sums are over kept rows
    whose length is known, None where none is.
    """

    format: str
    time_text: str = ""
    notes: tuple[str, ...] = ()
    files: int = 1
    sampling_percent: float | None = None
    chars_per_token: float | None = None
    rows_read: int = 0
    rows_kept: int = 0
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    examples: dict[str, int] = msgspec.field(default_factory=dict)
    remarks: dict[str, int] = msgspec.field(default_factory=dict)
    remark_examples: dict[str, int] = msgspec.field(default_factory=dict)
    first_arrival: str | None = None
    last_arrival: str | None = None
    span_us: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    sha256: str = ""
    inversions: int = 0
    unordered_by_nature: bool = False
    ties: int = 0
    byte_order_mark: bool = False
    crlf: bool = False
    final_newline: bool = True


class Tally:
    """Adds up batches of classified rows into an `ImportReport`."""

    def __init__(self) -> None:
        self.rows_read = self.rows_kept = 0
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.inversions = self.adjacent_ties = 0
        self.lateness_us = 0
        """How far a row arrives before the latest row above it, at most."""
        self.dropped: dict[str, int] = {}
        self.examples: dict[str, int] = {}
        self.remarks: dict[str, int] = {}
        self.remark_examples: dict[str, int] = {}
        self.first_us: int | None = None
        self.last_us: int | None = None
        self.cut_off = False
        self._previous_us: int | None = None

    def add(self, batch: Batch) -> None:
        """Count one batch; batches must come in source order."""
        rows = batch.rows
        self.rows_read += rows.height
        self.cut_off = batch.cut_off
        if rows["reason"].null_count() == rows.height:
            self._add_kept(rows)
            return
        _count(rows.filter(pl.col("reason").is_not_null()), "reason", self.dropped, self.examples)
        self._add_kept(rows.filter(pl.col("reason").is_null()))

    def _add_kept(self, kept: pl.DataFrame) -> None:
        if kept.is_empty():
            return
        if kept["remark"].null_count() < kept.height:
            remarked = kept.filter(pl.col("remark").is_not_null())
            _count(remarked, "remark", self.remarks, self.remark_examples)
        self.rows_kept += kept.height
        self.input_tokens = _added(self.input_tokens, kept["input_tokens"])
        self.output_tokens = _added(self.output_tokens, kept["output_tokens"])
        arrivals = kept["arrival_us"]
        low, high = _int(arrivals.min()), _int(arrivals.max())
        self._add_order(arrivals, low)
        self.first_us = low if self.first_us is None else min(self.first_us, low)
        self.last_us = high if self.last_us is None else max(self.last_us, high)
        self._previous_us = arrivals[-1]

    def _add_order(self, arrivals: pl.Series, low: int) -> None:
        steps = arrivals.diff()
        if self._previous_us is not None:
            steps[0] = arrivals[0] - self._previous_us
        least = steps.min()
        if least is None or _int(least) > 0:
            return
        self.inversions += _int((steps < 0).sum())
        self.adjacent_ties += _int((steps == 0).sum())
        if _int(least) < 0:
            before = low if self.last_us is None else self.last_us
            latest = arrivals.cum_max().clip(lower_bound=before)
            self.lateness_us = max(self.lateness_us, _int((latest - arrivals).max()))


def _added(total: int | None, lengths: pl.Series) -> int | None:
    if lengths.null_count() == lengths.len():
        return total
    return (total or 0) + int(lengths.sum())


def _count(rows: pl.DataFrame, column: str, counts: dict[str, int], examples: dict[str, int]) -> None:
    counted = rows.group_by(pl.col(column).cast(pl.String), maintain_order=True).agg(pl.len(), pl.col("row_id").first())
    for word, count, row_id in counted.iter_rows():
        counts[word] = counts.get(word, 0) + count
        examples.setdefault(word, row_id + 1)


def arrival_text(us: int, origin_us: int | None) -> str | None:
    """Return an arrival as ISO text in UTC; None for a trace that has relative time only."""
    return None if origin_us is None else to_datetime(origin_us + us).isoformat()


def reason_of(*rules: tuple[str, pl.Expr]) -> pl.Expr:
    """Return the expression that names the first rule that holds; null when none does."""
    chain: Any = pl
    for reason, rule in rules:
        chain = chain.when(rule).then(pl.lit(reason))
    reasoned: pl.Expr = chain.otherwise(None)
    return reasoned.cast(pl.Enum(REASONS)).alias("reason")


def classified(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with exactly the classified columns; those that the format does not have are null."""
    have = frame.schema
    return frame.select(
        pl.col(name).cast(kind) if name in have else pl.lit(None, dtype=kind).alias(name)
        for name, kind in CLASSIFIED.items()
    )


def _int(value: Any) -> int:
    return int(value)
