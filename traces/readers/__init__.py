"""Readers of recorded traffic: `open_trace` finds the format by content and returns a `LoadedTrace`.

One module per format; each fulfils `traces.readers.base.Reader`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

import polars as pl
from polars.io.plugins import register_io_source

from traces.errors import BadInputError, did_you_mean
from traces.readers import azure, mooncake, own
from traces.readers.base import TRACE_COLUMNS, Batch, ImportReport, Reader, Tally, arrival_text, looks_like
from traces.readers.lines import BOM, first_line, read_head

__all__ = ["CORPUS_PREFIX", "READERS", "ImportReport", "LoadedTrace", "open_trace"]

READERS: Final[dict[str, Reader]] = {reader.name: reader for reader in (azure, mooncake, own)}
CORPUS_PREFIX: Final = "corpus:"
_LFS_STUB: Final = b"version https://git-lfs.github.com/spec/v1"


class LoadedTrace:
    """A trace in a file: its rows, lazily, and the account of what the file holds.

    The file is read once for the account, which finds the first arrival and whether rows are in order, and once more
    each time that the rows are collected.
    """

    def __init__(self, source: str, path: Path, reader: Reader, head: bytes) -> None:
        self.source = source
        self.path = path
        self.format = reader.name
        self._reader = reader
        is_text = reader is not own
        self._crlf = is_text and b"\r\n" in head
        self._byte_order_mark = is_text and head.startswith(BOM)

    def scan(self) -> pl.LazyFrame:
        """Return the valid rows with exactly the columns of `Trace`, in order of arrival (ties in source order).

        `arrival_us` counts from the first kept arrival; `row_id` is the row's position in the source, from 0, dropped
        rows included. Memory is bounded for a source in order; another one is sorted in memory.
        """
        first_us = self._first_us
        rows = register_io_source(self._source, schema=TRACE_COLUMNS).with_columns(pl.col("arrival_us") - first_us)
        return rows.sort("arrival_us", maintain_order=True) if self._tally.inversions else rows

    def account(self) -> ImportReport:
        """Return what the file holds. Raises `BadInputError` when it has no valid row."""
        tally, first_us = self._tally, self._first_us
        last_us = tally.last_us or first_us
        origin_us = self._reader.origin_us(self.path)
        return ImportReport(
            format=self.format,
            time_text=self._reader.time_text,
            rows_read=tally.rows_read,
            rows_kept=tally.rows_kept,
            dropped=dict(tally.dropped),
            examples=dict(tally.examples),
            first_arrival=arrival_text(first_us, origin_us),
            last_arrival=arrival_text(last_us, origin_us),
            span_us=last_us - first_us,
            input_tokens=tally.input_tokens,
            output_tokens=tally.output_tokens,
            sha256=self.sha256,
            inversions=tally.inversions,
            ties=self._ties,
            byte_order_mark=self._byte_order_mark,
            crlf=self._crlf,
            final_newline=not tally.cut_off,
        )

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 digest of the file as it lies there (compressed, if it is), in hex."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @property
    def origin_us(self) -> int | None:
        """The instant (µs since 1970 UTC) of arrival 0 of `scan`; None when the format has relative time only."""
        origin = self._reader.origin_us(self.path)
        return None if origin is None else origin + self._first_us

    @cached_property
    def _tally(self) -> Tally:
        tally = Tally()
        for batch in self._batches():
            tally.add(batch)
        return tally

    @property
    def _first_us(self) -> int:
        if self._tally.first_us is None:
            raise BadInputError(_no_valid_row_message(self.path, self._reader, self._tally))
        return self._tally.first_us

    @cached_property
    def _ties(self) -> int:
        if not self._tally.inversions:
            return self._tally.adjacent_ties
        return int(self.scan().select((pl.col("arrival_us").diff() == 0).sum()).collect().item())

    def _batches(self) -> Iterator[Batch]:
        return self._reader.batches(self.path)

    def _source(
        self, with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        """Yield kept rows as polars asks for them (the protocol of `register_io_source`)."""
        left = n_rows
        for batch in self._batches():
            rows = batch.rows.filter(pl.col("reason").is_null()).drop("reason")
            if left is not None:
                rows = rows.head(left)
                left -= rows.height
            if predicate is not None:
                rows = rows.filter(predicate)
            yield rows if with_columns is None else rows.select(with_columns)
            if left == 0:
                return


def open_trace(source: str, fmt: str | None = None) -> LoadedTrace:
    """Return the trace at `source`: a path (also of a `.gz` or `.zst` file), or `corpus:NAME` for a bundled one.

    The format is found by content unless `fmt` names it. Raises `BadInputError` for what is not a readable trace.
    """
    if fmt is not None and fmt not in READERS:
        raise BadInputError(f'no format "{fmt}"{did_you_mean(fmt, list(READERS))}; known formats: {", ".join(READERS)}')
    path = _path_of(source)
    head = _head_of(path)
    content = head.removeprefix(BOM)
    reader = READERS[fmt] if fmt else _detect(path, content)
    reader.check(path, content)
    return LoadedTrace(source, path, reader, head)


def _path_of(source: str) -> Path:
    if source.startswith(CORPUS_PREFIX):
        from traces import corpus

        return corpus.path(source.removeprefix(CORPUS_PREFIX))
    path = Path(source)
    if path.is_dir():
        raise BadInputError(f"{path}: a directory; expected a trace file, name one inside it")
    if path.exists() and not path.is_file():
        raise BadInputError(f"{path}: not a regular file; it is read more than once, save it as a file first")
    if not path.exists():
        raise BadInputError(
            f"{path}: no such file; check the path, or list bundled traces with `ramptrace trace corpus`"
        )
    return path


def _head_of(path: Path) -> bytes:
    try:
        head = read_head(path)
    except (OSError, EOFError, pl.exceptions.PolarsError) as error:
        cause = first_line(error)
        raise BadInputError(f"{path}: cannot be read ({cause}); check its permissions and that it is whole") from error
    if not head.removeprefix(BOM).strip():
        raise BadInputError(f"{path}: the file is empty; expected a trace, fetch it again")
    if head.startswith(_LFS_STUB):
        raise BadInputError(
            f"{path}: a Git LFS stub, not the data it stands for; run `git lfs pull` there, or download the file itself"
        )
    return head


def _detect(path: Path, head: bytes) -> Reader:
    for reader in READERS.values():
        if reader.sniff(head):
            return reader
    known = "; ".join(f"{reader.name}: {reader.expected}" for reader in READERS.values())
    raise BadInputError(
        f"{path}: not a known trace format ({looks_like(head)}). Known formats are {known}. "
        f"If it is one of them, name it with --format"
    )


def _no_valid_row_message(path: Path, reader: Reader, tally: Tally) -> str:
    if not tally.rows_read:
        return f"{path}: no rows after the header; expected {reader.expected}"
    reasons = ", ".join(
        f"{count} {reason} (first in data line {tally.examples[reason]})" for reason, count in tally.dropped.items()
    )
    return (
        f"{path}: no valid row among {tally.rows_read}: {reasons}; expected {reader.expected}, "
        f"is --format {reader.name} right?"
    )
