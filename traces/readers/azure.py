"""Azure LLM inference traces: CSV with TIMESTAMP, ContextTokens, GeneratedTokens (2023, 2024) and NumImages (2025).

2023 stamps have seven decimals and no zone (they are UTC), lines end in CRLF and the last one in nothing. 2024 stamps
have six decimals and `+00:00`; exact seconds may have no decimals at all. Decimals past the sixth are cut off.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import polars as pl

from traces.errors import BadInputError
from traces.readers.base import MAX_TOKENS, Batch, classified, looks_like, reason_of
from traces.readers.lines import line_frames

_COLUMNS: Final = {
    "TIMESTAMP": "stamp",
    "ContextTokens": "input",
    "GeneratedTokens": "output",
    "NumImages": "image_count",
}
_REQUIRED: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_STAMP_FORMAT: Final = "%Y-%m-%d %H:%M:%S%.f"
_YEAR_10000_US: Final = 253_402_300_800_000_000

name = "azure"
expected = "a CSV file with the header TIMESTAMP,ContextTokens,GeneratedTokens"
time_text = "absolute times, UTC unless a zone is stated, cut to microseconds"


def sniff(head: bytes) -> bool:
    """Tell whether the first line is an Azure header."""
    columns = _header(head)
    return set(_REQUIRED) <= set(columns) <= set(_COLUMNS) and len(set(columns)) == len(columns)


def check(path: Path, head: bytes) -> None:
    """Raise `BadInputError` when the header is another one."""
    if not sniff(head):
        raise BadInputError(
            f"{path}: not an Azure header ({looks_like(head)}); expected the columns {', '.join(_REQUIRED)}; "
            f"rename the columns, or name another format with --format"
        )


def origin_us(path: Path) -> int | None:  # noqa: ARG001 - other formats have to look into the file
    """Return 0: stamps count from 1970."""
    return 0


def batches(path: Path) -> Iterator[Batch]:
    """Yield the file's rows, classified."""
    columns: list[str] | None = None
    for frame, cut_off in line_frames(path):
        lines = frame
        if columns is None:
            columns = [_COLUMNS[column] for column in _header((frame["line"][0] or "").encode())]
            lines = frame[1:]
        yield Batch(parse(lines.lazy(), columns).collect(), cut_off and lines.height > 0)


def parse(lines: pl.LazyFrame, columns: list[str]) -> pl.LazyFrame:
    """Return one classified row per line (`line_no` 0 is the header); `columns` is the order of the fields."""
    width = len(columns)
    # One field more than expected is asked for, so that a row with too many can be told.
    names = [*columns, "excess"]
    fields = pl.col("line").str.split_exact(",", width).struct.rename_fields(names).struct.unnest()
    text = lines.with_columns(fields)
    stamp, line = pl.col("stamp"), pl.col("line")
    values = text.with_columns(
        row_id=pl.col("line_no") - 1,
        arrival_us=_instant_us(stamp),
        input_tokens=pl.col("input").cast(pl.Int64, strict=False),
        output_tokens=pl.col("output").cast(pl.Int64, strict=False),
        images=(pl.col("image_count") if "image_count" in columns else pl.lit(None)).cast(pl.Int64, strict=False),
    )
    numbers = [column for column in columns if column != "stamp"]
    parsed = {"input": "input_tokens", "output": "output_tokens", "image_count": "images"}
    reason = reason_of(
        ("blank_line", line.str.strip_chars() == ""),
        ("not_utf8", line.is_null()),
        ("malformed_row", pl.col("excess").is_not_null() | pl.any_horizontal(pl.col(columns).is_null())),
        ("missing_field", pl.any_horizontal(pl.col(columns).str.strip_chars() == "")),
        ("bad_timestamp", ~pl.col("arrival_us").is_between(0, _YEAR_10000_US, closed="left").fill_null(value=False)),
        ("bad_tokens", pl.any_horizontal((pl.col(parsed[n]) > MAX_TOKENS).fill_null(value=True) for n in numbers)),
        ("negative_tokens", pl.any_horizontal(pl.col(parsed[n]) < 0 for n in numbers)),
    )
    return classified(values.with_columns(reason))


def _header(head: bytes) -> list[str]:
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace").rstrip("\r")
    return [column.strip().strip('"') for column in first.split(",")]


def _instant_us(stamp: pl.Expr) -> pl.Expr:
    """Return µs since 1970 UTC of a stamp with or without a zone; null when it is neither."""
    plain = (
        stamp.str.strip_suffix("Z")
        .str.strip_suffix("+00:00")
        .str.to_datetime(_STAMP_FORMAT, time_unit="us", strict=False, cache=False)
    )
    # Only what is still unread goes through the slower parser for other zones.
    zoned = (
        pl.when(plain.is_null())
        .then(stamp)
        .str.to_datetime(_STAMP_FORMAT + "%z", time_unit="us", strict=False, cache=False)
        .dt.replace_time_zone(None)
    )
    return pl.coalesce(plain, zoned).dt.epoch("us")
