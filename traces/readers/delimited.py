"""Comma-separated rows, shared by all formats that are: columns by name, no quotes, one row per line.

A block of lines is first given to polars' CSV parser, which is fast and forgives nothing. If it refuses, or any row
turns out to be bad, the block is read again line by line, so that each bad row is known, counted and kept apart. Both
ways give good rows the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from traces.errors import BadInputError
from traces.readers.base import MAX_TOKENS, YEAR_10000_US, Batch, Options, classified, reason_of
from traces.readers.head import Head, looks_like
from traces.readers.lines import Block, blocks, line_frame
from traces.units import US_PER_S

Values = Callable[[pl.DataFrame], pl.DataFrame]
"""Adds columns of `Trace` (`arrival_us` null where the time is none) to a frame of typed fields."""

INTEGER: Final = pl.Int64()
DECIMAL: Final = pl.Float64()
TEXT: Final = pl.String()


class Column(msgspec.Struct, frozen=True):
    """One column: its header, the name that `Values` knows it by, its type, and whether rows may leave it empty."""

    header: str
    field: str
    kind: pl.DataType = TEXT
    may_be_empty: bool = False


class Table(msgspec.Struct, frozen=True):
    """The columns of a format, those its header must have, and how fields become a trace's columns.

    Columns with another header are left alone when `others` says that a file may have them.
    """

    columns: tuple[Column, ...]
    required: frozenset[str]
    values: Values
    others: bool = False

    def fits(self, head: Head) -> bool:
        """Tell whether a file's first line is this table's header."""
        found = head.columns
        known = {column.header for column in self.columns}
        return self.required <= set(found) and len(set(found)) == len(found) and (self.others or set(found) <= known)

    def check(self, path: Path, head: Head, _options: Options) -> None:
        """Raise `BadInputError` when the header is another one."""
        if not self.fits(head):
            wanted = ", ".join(column.header for column in self.columns if column.header in self.required)
            raise BadInputError(
                f"{path}: another header ({looks_like(head.content)}); expected the columns {wanted}; "
                f"rename the columns, or name another format with --format"
            )

    def batches(self, path: Path, options: Options) -> Iterator[Batch]:
        """Yield the file's rows, classified."""
        return (make() for make in self.pieces(path, options))

    def pieces(self, path: Path, _options: Options) -> Iterator[Callable[[], Batch]]:
        """Yield what makes the file's rows, classified, block by block."""
        columns: list[Column] | None = None
        for block in blocks(path):
            rows = block
            if columns is None:
                columns = self._in_file_order(Head(path, block.data))
                rows = block.without_first_line()
            if rows.data:
                yield partial(self._classified, rows, columns)

    def _in_file_order(self, head: Head) -> list[Column]:
        known = {column.header: column for column in self.columns}
        other = (Column(name, f"other {place}", TEXT, may_be_empty=True) for place, name in enumerate(head.columns))
        return [known.get(name, spare) for name, spare in zip(head.columns, other, strict=True)]

    def _classified(self, block: Block, columns: list[Column]) -> Batch:
        return self._quick(block, columns) or self._careful(block, columns)

    def _quick(self, block: Block, columns: list[Column]) -> Batch | None:
        if block.cut_off or b'"' in block.data:
            return None
        try:
            fields = pl.read_csv(
                block.data,
                has_header=False,
                schema={column.field: column.kind for column in columns},
                quote_char=None,
                comment_prefix=None,
            )
        except pl.exceptions.PolarsError:
            return None
        if fields.height != block.count or any(
            fields[column.field].null_count() for column in columns if not column.may_be_empty
        ):
            return None
        first = block.first - 1
        number = pl.int_range(first, first + fields.height, dtype=pl.Int64, eager=True).alias("row_id")
        rows = self.values(fields.with_columns(number))
        limits = {column.field: MAX_TOKENS for column in _counts(columns)} | {"arrival_us": YEAR_10000_US - 1}
        return Batch(classified(rows)) if all(_within(rows[name], most) for name, most in limits.items()) else None

    def _careful(self, block: Block, columns: list[Column]) -> Batch:
        names = [column.field for column in columns]
        # One field more than expected is asked for, so that a row with too many can be told.
        split = pl.col("line").str.split_exact(",", len(columns)).struct.rename_fields([*names, "excess"])
        texts = line_frame(block).with_columns(split.struct.unnest())
        needed = [pl.col(column.field) for column in columns if not column.may_be_empty]
        rules = [
            ("blank_line", pl.col("line").str.strip_chars() == ""),
            ("not_utf8", pl.col("line").is_null()),
            ("malformed_row", pl.col("excess").is_not_null() | pl.any_horizontal(pl.col(names).is_null())),
            ("missing_field", pl.any_horizontal(field.str.strip_chars() == "" for field in needed)),
        ]
        typed = texts.with_columns(
            reason_of(*rules).alias("line_reason"),
            *(_typed(column) for column in columns),
            row_id=pl.col("line_no") - 1,
        )
        return Batch(self._reasoned(typed, columns), block.cut_off, block.lines())

    def _reasoned(self, fields: pl.DataFrame, columns: list[Column]) -> pl.DataFrame:
        """Return the classified rows; a reason in the column `line_reason` comes first."""
        valued = self.values(fields)
        arrival = pl.col("arrival_us")
        tokens = [pl.col(column.field) for column in _counts(columns)]
        reason = reason_of(
            ("bad_timestamp", ~arrival.is_between(0, YEAR_10000_US, closed="left").fill_null(value=False)),
            ("bad_tokens", pl.any_horizontal((count > MAX_TOKENS).fill_null(value=True) for count in tokens)),
            ("negative_tokens", pl.any_horizontal(count < 0 for count in tokens)),
        )
        return classified(valued.with_columns(pl.coalesce("line_reason", reason).alias("reason")))


def _typed(column: Column) -> pl.Expr:
    text = pl.col(column.field)
    # The CSV parser allows blanks around numbers, and takes an empty text for a null.
    return text.replace("", None) if column.kind == TEXT else text.str.strip_chars().cast(column.kind, strict=False)


def _counts(columns: list[Column]) -> list[Column]:
    return [column for column in columns if column.kind == INTEGER and not column.may_be_empty]


def _within(values: pl.Series, most: int) -> bool:
    """Tell whether all values are known and in [0, most]."""
    low, high = values.min(), values.max()
    return not values.null_count() and isinstance(low, int) and isinstance(high, int) and low >= 0 and high <= most


def seconds_us(column: str) -> pl.Expr:
    """Return decimal seconds in microseconds, rounded; null where they are no time."""
    seconds = pl.col(column)
    sound = seconds.is_finite() & seconds.is_between(0, YEAR_10000_US / US_PER_S)
    return pl.when(sound).then(seconds * US_PER_S).round().cast(pl.Int64, strict=False)
