"""Keeping the rows that a reader drops, so that they can be looked at and mended."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from traces.errors import BadInputError
from traces.readers.base import Batch


def write_rejects(path: Path, batches: Iterator[Batch]) -> int:
    """Write each dropped row as a JSON line with `row` (from 1), `reason` and `raw`; return their number.

    `raw` is the row's text, or `raw_base64` its bytes where they are not UTF-8; neither for a source that is not text.
    Only the user may read the file: rows may hold prompts.
    """
    encoder, count = msgspec.json.Encoder(), 0
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for batch in batches:
                for rejected in _rejected(batch):
                    file.write(encoder.encode(rejected) + b"\n")
                    count += 1
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written ({error.strerror or error}); choose another place") from error
    return count


def _rejected(batch: Batch) -> Iterator[dict[str, Any]]:
    rows = batch.rows.select("row_id", pl.col("reason").cast(pl.String)).with_row_index("at")
    for at, row_id, reason in rows.filter(pl.col("reason").is_not_null()).iter_rows():
        known = {"row": row_id + 1, "reason": reason}
        yield known if batch.raw is None else known | _text(batch.raw[at])


def _text(raw: bytes) -> dict[str, str]:
    try:
        return {"raw": raw.removesuffix(b"\r").decode()}
    except UnicodeDecodeError:
        return {"raw_base64": base64.b64encode(raw).decode()}
