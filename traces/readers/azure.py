"""Azure LLM inference traces: CSV with TIMESTAMP, ContextTokens, GeneratedTokens (2023, 2024) and NumImages (2025).

2023 stamps have seven decimals and no zone (they are UTC), lines end in CRLF and the last one in nothing. 2024 stamps
have six decimals and `+00:00`; exact seconds may have no decimals at all. Decimals past the sixth are cut off.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from traces.readers.base import Format
from traces.readers.delimited import INTEGER, Column, Table
from traces.readers.stamps import stamps_us


def _values(fields: pl.DataFrame) -> pl.DataFrame:
    return fields.with_columns(stamps_us(fields["stamp"]).alias("arrival_us"))


TABLE: Final = Table(
    columns=(
        Column("TIMESTAMP", "stamp"),
        Column("ContextTokens", "input_tokens", INTEGER),
        Column("GeneratedTokens", "output_tokens", INTEGER),
        Column("NumImages", "images", INTEGER),
    ),
    required=frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}),
    values=_values,
)

FORMAT: Final = Format(
    name="azure",
    expected="a CSV file with the header TIMESTAMP,ContextTokens,GeneratedTokens",
    time_text="absolute times, UTC unless a zone is stated, cut to microseconds",
    sniff=TABLE.fits,
    check=TABLE.check,
    batches=TABLE.batches,
    pieces=TABLE.pieces,
)
