"""The contract of a reader, and what every format shares: classification of rows and the account of an import.

A reader turns raw rows into **classified rows**: the columns of `Trace` (with `arrival_us` still on the source's own
clock), and `reason`, null for a valid row. Nothing is filtered before it was counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import polars as pl

from traces.clock import to_datetime
from traces.schema import Trace

REASONS: Final = (
    "blank_line",
    "not_utf8",
    "malformed_row",
    "missing_field",
    "bad_timestamp",
    "bad_tokens",
    "negative_tokens",
    "truncated_last_line",
)
"""Why a row is dropped; the first that applies counts (a bad last line without its line feed is the last one)."""

TRACE_COLUMNS: Final = pl.Schema(Trace)
CLASSIFIED: Final = pl.Schema({**TRACE_COLUMNS, "reason": pl.Enum(REASONS)})

MAX_TOKENS: Final = 2**31 - 1
"""No request is longer; a larger number is a parsing accident (and would overflow sums)."""


_COLUMN_NAME: Final = re.compile(r"[A-Za-z_][\w .-]{0,39}")


class Batch(msgspec.Struct, frozen=True):
    """Classified rows in source order; `cut_off` when the file ended inside the last of them."""

    rows: pl.DataFrame
    cut_off: bool = False


class Reader(Protocol):
    """One format; a module of this package is one.

    `expected` describes a file of this format, `time_text` how its times are understood (unit and zone).
    """

    name: str
    expected: str
    time_text: str

    def sniff(self, head: bytes) -> bool:
        """Tell whether content that begins with `head` is in this format."""
        ...

    def check(self, path: Path, head: bytes) -> None:
        """Raise `BadInputError` when the file as a whole cannot be in this format (a wrong header, say)."""
        ...

    def batches(self, path: Path) -> Iterator[Batch]:
        """Yield the file's rows, classified, in bounded memory."""
        ...

    def origin_us(self, path: Path) -> int | None:
        """Return the instant (µs since 1970 UTC) at which the source's clock reads 0; None when unknown."""
        ...


class ImportReport(msgspec.Struct, kw_only=True):
    """What a file held. Always `rows_read == rows_kept + sum(dropped.values())`.

    `examples` names the first dropped row of each reason, as its 1-based data line. `inversions` counts kept rows
    that arrive earlier than the kept row before them; `ties` counts rows that share the arrival of the row before,
    in order of arrival. Sums are over kept rows.
    """

    format: str
    time_text: str = ""
    rows_read: int = 0
    rows_kept: int = 0
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    examples: dict[str, int] = msgspec.field(default_factory=dict)
    first_arrival: str | None = None
    last_arrival: str | None = None
    span_us: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    sha256: str = ""
    inversions: int = 0
    ties: int = 0
    byte_order_mark: bool = False
    crlf: bool = False
    final_newline: bool = True


class Tally:
    """Adds up batches of classified rows into an `ImportReport`."""

    def __init__(self) -> None:
        self.rows_read = self.rows_kept = self.input_tokens = self.output_tokens = 0
        self.inversions = self.adjacent_ties = 0
        self.dropped: dict[str, int] = {}
        self.examples: dict[str, int] = {}
        self.first_us: int | None = None
        self.last_us: int | None = None
        self.cut_off = False
        self._previous_us: int | None = None

    def add(self, batch: Batch) -> None:
        """Count one batch; batches must come in source order."""
        rows = batch.rows
        self.rows_read += rows.height
        self.cut_off = batch.cut_off
        self._add_dropped(rows, cut_off=batch.cut_off)
        self._add_kept(rows.filter(pl.col("reason").is_null()))

    def _add_dropped(self, rows: pl.DataFrame, *, cut_off: bool) -> None:
        bad = rows.select("row_id", pl.col("reason").cast(pl.String)).filter(pl.col("reason").is_not_null())
        if cut_off and rows.height and (last := rows["reason"][-1]) not in {None, "blank_line"}:
            last_only = (pl.int_range(pl.len()) == pl.len() - 1) & (pl.col("reason") == last)
            bad = bad.with_columns(
                reason=pl.when(last_only).then(pl.lit("truncated_last_line")).otherwise(pl.col("reason"))
            )
        counted = bad.group_by("reason", maintain_order=True).agg(pl.len(), pl.col("row_id").first())
        for reason, count, row_id in counted.iter_rows():
            self.dropped[reason] = self.dropped.get(reason, 0) + count
            self.examples.setdefault(reason, row_id + 1)

    def _add_kept(self, kept: pl.DataFrame) -> None:
        if kept.is_empty():
            return
        self.rows_kept += kept.height
        self.input_tokens += int(kept["input_tokens"].sum())
        self.output_tokens += int(kept["output_tokens"].sum())
        arrivals = kept["arrival_us"]
        low, high = _int(arrivals.min()), _int(arrivals.max())
        self.first_us = low if self.first_us is None else min(self.first_us, low)
        self.last_us = high if self.last_us is None else max(self.last_us, high)
        steps = arrivals.diff()
        if self._previous_us is not None:
            steps[0] = arrivals[0] - self._previous_us
        self.inversions += _int((steps < 0).sum())
        self.adjacent_ties += _int((steps == 0).sum())
        self._previous_us = arrivals[-1]


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


def classified(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return the frame with exactly the classified columns; those that the format does not have are null."""
    have = frame.collect_schema()
    return frame.select(
        pl.col(name).cast(kind) if name in have else pl.lit(None, dtype=kind).alias(name)
        for name, kind in CLASSIFIED.items()
    )


def looks_like(head: bytes) -> str:
    """Return the columns or keys of a file in words, never its values: those may be prompts."""
    first = head.split(b"\n", 1)[0]
    try:
        row = msgspec.json.decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError):
        row = None
    if isinstance(row, dict):
        return f"JSON lines with the keys {', '.join(list(row)[:12])}"
    names = [name.strip().strip('"') for name in first.decode("utf-8", "replace").split(",")]
    if len(names) > 1 and all(_COLUMN_NAME.fullmatch(name) for name in names):
        return f"its first line has the columns {', '.join(names[:12])}"
    return "its first line is neither a known header nor JSON"


def _int(value: Any) -> int:
    return int(value)
