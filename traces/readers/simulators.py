"""What simulators read: Vidur's processed traces and splitwise-sim's, both CSV with seconds from the trace's start."""

from __future__ import annotations

from typing import Final

import polars as pl

from traces.readers.base import Format, relative
from traces.readers.delimited import DECIMAL, INTEGER, Column, Table, seconds_us


def _values(fields: pl.DataFrame) -> pl.DataFrame:
    return fields.with_columns(arrival_us=seconds_us("stamp"))


_VIDUR_TABLE: Final = Table(
    columns=(
        Column("arrived_at", "stamp", DECIMAL),
        Column("num_prefill_tokens", "input_tokens", INTEGER),
        Column("num_decode_tokens", "output_tokens", INTEGER),
    ),
    required=frozenset({"arrived_at", "num_prefill_tokens", "num_decode_tokens"}),
    values=_values,
    others=True,
)

_SPLITWISE_TABLE: Final = Table(
    columns=(
        Column("arrival_timestamp", "stamp", DECIMAL),
        Column("prompt_size", "input_tokens", INTEGER),
        Column("token_size", "output_tokens", INTEGER),
    ),
    required=frozenset({"request_id", "arrival_timestamp", "prompt_size", "token_size"}),
    values=_values,
    others=True,
)

VIDUR: Final = Format(
    name="vidur",
    expected="a CSV file with the header arrived_at,num_prefill_tokens,num_decode_tokens",
    time_text="seconds from the trace's start, no date",
    sniff=_VIDUR_TABLE.fits,
    check=_VIDUR_TABLE.check,
    batches=_VIDUR_TABLE.batches,
    pieces=_VIDUR_TABLE.pieces,
    origin_us=relative,
)

SPLITWISE: Final = Format(
    name="splitwise-sim",
    expected="a CSV file with the header "
    "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size",
    time_text="seconds from the trace's start, no date",
    sniff=_SPLITWISE_TABLE.fits,
    check=_SPLITWISE_TABLE.check,
    batches=_SPLITWISE_TABLE.batches,
    pieces=_SPLITWISE_TABLE.pieces,
    origin_us=relative,
)
