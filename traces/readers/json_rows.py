"""Rows that are JSON, shared by all formats that are: one value per line, an array, or values over several lines.

Rows are decoded one by one, by msgspec, in Python. A format forces that: a single broken line makes polars' JSON
readers give up a whole batch (or shift the rows after it), nested fields have to be looked into, and a row that points
to an earlier one has to find it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from traces.errors import BadInputError
from traces.readers.base import CLASSIFIED, Batch
from traces.readers.head import one_value_per_line
from traces.readers.json_split import ValueTooLongError, split_json
from traces.readers.lines import BOM, blocks, chunks, read_head
from traces.readers.values import BadRowError

Row = dict[str, Any]
"""Values by column of `CLASSIFIED`; `row_id` is added, columns left out are null."""

Parse = Callable[[Any, int], Row]
"""Makes a row of a decoded value and the row's number; raises `BadRowError` when it cannot."""

Explode = Callable[[Any], list[Any]]
"""Returns the rows' values of a decoded value, where one holds several. None at all drops it as `missing_field`."""

ANY_JSON: Final = msgspec.json.Decoder()
_ROWS_PER_BATCH: Final = 20_000


def json_batches(
    path: Path, parse: Parse, *, decoder: msgspec.json.Decoder[Any] = ANY_JSON, explode: Explode | None = None
) -> Iterator[Batch]:
    """Yield a JSON file's rows, classified. A row that `parse` or the decoder refuses is kept with its reason."""
    row_id = 0
    for texts, cut_off in _texts(path):
        rows: list[Row] = []
        raw: list[bytes] = []
        for text in texts:
            for value in _values(text, decoder, explode):
                rows.append(row_of(value, row_id + len(rows), parse))
                raw.append(text if explode is None or isinstance(value, BadRowError) else msgspec.json.encode(value))
        yield Batch(row_frame(rows, row_id), cut_off, raw)
        row_id += len(rows)


def row_frame(rows: list[Row], first: int) -> pl.DataFrame:
    """Return rows as a classified frame, numbered from `first`."""
    have: set[str] = set().union(*rows)
    columns = [
        _column(name, [row.get(name) for row in rows], kind)
        if name in have
        else pl.repeat(None, len(rows), dtype=kind, eager=True).alias(name)
        for name, kind in CLASSIFIED.items()
    ]
    number = pl.int_range(first, first + len(rows), dtype=pl.Int64, eager=True).alias("row_id")
    return pl.DataFrame(columns).with_columns(number)


def _column(name: str, values: list[Any], kind: pl.DataType) -> pl.Series:
    if isinstance(kind, pl.List):
        # Checked lists of integers: through JSON they become a column three times faster than one by one.
        return pl.Series(name, [msgspec.json.encode(value).decode() for value in values]).str.json_decode(kind)
    return pl.Series(name, values, dtype=kind, strict=True)


def row_of(value: Any, row_id: int, parse: Parse) -> Row:
    """Return the row of a value; its reason alone, where there is none."""
    if isinstance(value, BadRowError):
        return {"reason": value.reason}
    try:
        return parse(value, row_id)
    except BadRowError as error:
        return {"reason": error.reason}


def exploded(value: Any, explode: Explode | None) -> Sequence[Any]:
    """Return the values that make rows, at least one; a `BadRowError` in place of one that does not."""
    if explode is None:
        return (value,)
    try:
        return explode(value) or (BadRowError("missing_field"),)
    except BadRowError as error:
        return (error,)


def _values(text: bytes, decoder: msgspec.json.Decoder[Any], explode: Explode | None) -> Sequence[Any]:
    try:
        text.decode()
        return exploded(decoder.decode(text), explode)
    except UnicodeDecodeError:
        return (BadRowError("not_utf8"),)
    except (msgspec.DecodeError, RecursionError):
        return (BadRowError("malformed_row" if text.strip() else "blank_line"),)


def _texts(path: Path) -> Iterator[tuple[list[bytes], bool]]:
    if one_value_per_line(read_head(path).removeprefix(BOM)):
        for block in blocks(path):
            lines = block.lines()
            for at in range(0, len(lines), _ROWS_PER_BATCH):
                yield lines[at : at + _ROWS_PER_BATCH], block.cut_off
        return
    yield from _in_batches(path)


def _in_batches(path: Path) -> Iterator[tuple[list[bytes], bool]]:
    batch: list[bytes] = []
    try:
        for text, cut_off in split_json(_without_mark(chunks(path))):
            batch.append(text)
            if cut_off or len(batch) == _ROWS_PER_BATCH:
                yield batch, cut_off
                batch = []
    except ValueTooLongError:
        raise BadInputError(
            f"{path}: a JSON value does not end within 64 MiB; expected an array of rows or one row per line"
        ) from None
    if batch:
        yield batch, False


def _without_mark(pieces: Iterator[bytes]) -> Iterator[bytes]:
    for number, piece in enumerate(pieces):
        yield piece.removeprefix(BOM) if number == 0 else piece
