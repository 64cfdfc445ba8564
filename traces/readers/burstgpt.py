"""BurstGPT: CSV of ChatGPT and GPT-4 requests. Version 2 inserted two columns, so that columns go by name.

Times are seconds from local midnight of the first day: whole seconds in version 1, decimal ones in version 2, which
starts at 19,440,110 s. Which zone, and which day, is not stated. A failed request has a response of 0 tokens.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from traces.readers.base import Format, relative
from traces.readers.delimited import DECIMAL, INTEGER, Column, Table, seconds_us


def _values(fields: pl.DataFrame) -> pl.DataFrame:
    elapsed = seconds_us("elapsed") if "elapsed" in fields.columns else pl.lit(None)
    return fields.with_columns(arrival_us=seconds_us("stamp"), source_latency_us=elapsed)


TABLE: Final = Table(
    columns=(
        Column("Timestamp", "stamp", DECIMAL),
        Column("Session ID", "session_id", may_be_empty=True),
        Column("Elapsed time", "elapsed", DECIMAL, may_be_empty=True),
        Column("Model", "model"),
        Column("Request tokens", "input_tokens", INTEGER),
        Column("Response tokens", "output_tokens", INTEGER),
        Column("Total tokens", "total", INTEGER),
        Column("Log Type", "log_type"),
    ),
    required=frozenset({"Timestamp", "Model", "Request tokens", "Response tokens"}),
    values=_values,
)

FORMAT: Final = Format(
    name="burstgpt",
    expected="a CSV file with the header Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
    time_text="seconds from midnight of the first day, zone and day not stated",
    sniff=TABLE.fits,
    check=TABLE.check,
    batches=TABLE.batches,
    pieces=TABLE.pieces,
    origin_us=relative,
    notes=("a response of 0 tokens is a failed request in this format; it is kept as offered load",),
)
