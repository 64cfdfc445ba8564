"""A trace as it lies in its files: the rows, lazily, and the account of what the files hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl
from polars.io.plugins import register_io_source

from traces.errors import BadInputError, RamptraceError
from traces.lineage import LineageStep, metadata, steps_of
from traces.readers import own
from traces.readers.ahead import ahead, made_ahead
from traces.readers.base import REASONS, TRACE_COLUMNS, Batch, Format, ImportReport, Options, Tally, arrival_text
from traces.readers.head import PARQUET_MAGIC
from traces.readers.lines import BOM
from traces.readers.locate import Located
from traces.readers.reorder import in_order

_NOT_DECLARED: Final = frozenset({"seed", "endpoint_url"})
"""Options that are kept elsewhere, or say nothing of the rows."""


class LoadedTrace:
    """A trace in one file or several.

    The files are read once for the account, which finds the first arrival and whether rows are in order, and once more
    each time that the rows are collected; `write` does all in one pass where the source is in order.
    """

    def __init__(self, source: str, located: Located, reader: Format, head: bytes, options: Options) -> None:
        self.source = source
        self.paths = located.paths
        self.path = located.paths[0]
        """The first file."""
        self.format = reader.name
        self._located = located
        self._reader = reader
        self._options = options
        is_text = not head.startswith(PARQUET_MAGIC)
        self._crlf = is_text and b"\r\n" in head
        self._byte_order_mark = is_text and head.startswith(BOM)

    def scan(self) -> pl.LazyFrame:
        """Return the valid rows with exactly the columns of `Trace`, in order of arrival (ties in source order).

        `arrival_us` counts from the first kept arrival; `row_id` is the row's position in the source, from 0, dropped
        rows included. Memory is bounded: rows are held back for as long as an earlier one may still come, which is for
        nothing in a source in order, and for everything in a shuffled one.
        """
        first_us, lateness_us = self._first_us, self._tally.lateness_us
        rows = _lazily(lambda: in_order(self._kept(self.batches()), lateness_us))
        return rows.with_columns(pl.col("arrival_us") - first_us)

    def account(self) -> ImportReport:
        """Return what the files hold. Raises `BadInputError` when there is no valid row."""
        tally, first_us = self._tally, self._first_us
        last_us = tally.last_us or first_us
        origin_us = self._reader.origin_us(self.path, self._options)
        return ImportReport(
            format=self.format,
            time_text=self._reader.times(self._options),
            notes=self._reader.notes,
            files=len(self.paths),
            sampling_percent=self.sampling_percent,
            chars_per_token=self._options.chars_per_token,
            rows_read=tally.rows_read,
            rows_kept=tally.rows_kept,
            dropped=dict(tally.dropped),
            examples=dict(tally.examples),
            remarks=dict(tally.remarks),
            remark_examples=dict(tally.remark_examples),
            first_arrival=arrival_text(first_us, origin_us),
            last_arrival=arrival_text(last_us, origin_us),
            span_us=last_us - first_us,
            input_tokens=tally.input_tokens,
            output_tokens=tally.output_tokens,
            sha256=self.sha256,
            inversions=tally.inversions,
            unordered_by_nature=self._reader.unordered or len(self.paths) > 1,
            ties=self._ties,
            byte_order_mark=self._byte_order_mark,
            crlf=self._crlf,
            final_newline=not tally.cut_off,
        )

    def write(self, output: Path) -> ImportReport:
        """Write the valid rows as our own Parquet file and return the account, in one pass over a source in order."""
        with ThreadPoolExecutor(1) as beside:
            beside.submit(lambda: self.sha256)
            if "_tally" in self.__dict__ or not self._write_in_one_pass(output):
                own.write(output, self.scan(), self.origin_us, self._lineage, sampling_percent=self.sampling_percent)
        report = self.account()
        written = pl.scan_parquet(output).select(pl.len()).collect().item()
        if written != report.rows_kept:
            output.unlink()
            raise RamptraceError(f"{output}: {written:,} of {report.rows_kept:,} rows were written; please report this")
        return report

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 digest of the file as it lies there (compressed, if it is), in hex; of files, that of theirs."""
        digests = []
        for path in self.paths:
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "sha256").hexdigest())
        return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()

    @property
    def origin_us(self) -> int | None:
        """The instant (µs since 1970 UTC) of arrival 0 of `scan`; None when the format has relative time only."""
        origin = self._reader.origin_us(self.path, self._options)
        return None if origin is None else origin + self._first_us

    def batches(self) -> Iterator[Batch]:
        """Yield all rows, classified, numbered through all files."""
        read = self._reader.batches
        return _joined((path, batch) for path in self.paths for batch in read(path, self._options))

    @contextmanager
    def _batches_ahead(self) -> Iterator[Iterator[Batch]]:
        """Return what `batches` yields, made ahead in threads; several at once, where the format can."""
        read = self._reader.pieces
        if read is None:
            with ahead(self.batches()) as batches:
                yield batches
            return
        makers = (partial(_of_path, path, make) for path in self.paths for make in read(path, self._options))
        with made_ahead(makers) as made:
            yield _joined(made)

    @cached_property
    def _tally(self) -> Tally:
        tally = Tally()
        for batch in self.batches():
            tally.add(batch)
        return tally

    @property
    def _first_us(self) -> int:
        if self._tally.first_us is None:
            raise BadInputError(_no_valid_row_message(self.source, self._reader, self._tally))
        return self._tally.first_us

    @cached_property
    def _ties(self) -> int:
        if not self._tally.inversions:
            return self._tally.adjacent_ties
        return int(self.scan().select((pl.col("arrival_us").diff() == 0).sum()).collect().item())

    @property
    def sampling_percent(self) -> float | None:
        """The share of the real requests that the source kept, as declared now or when the file was imported."""
        if self._options.sampling_percent is not None or self._reader is not own.FORMAT:
            return self._options.sampling_percent
        stated = pl.read_parquet_metadata(self.path).get(own.SAMPLING_KEY)
        return float(stated) if stated else None

    @property
    def declared(self) -> dict[str, Any]:
        """What was declared to read the trace, and changes what is read."""
        stated = msgspec.structs.asdict(self._options)
        return {name: value for name, value in stated.items() if value is not None and name not in _NOT_DECLARED}

    @property
    def drawn_seed(self) -> int | None:
        """The seed of the arrivals, where reading draws them."""
        takes = self._reader.options
        draws = "seed" in takes and ("rate_per_s" not in takes or self._options.rate_per_s is not None)
        return (self._options.seed or 0) if draws else None

    @property
    def _lineage(self) -> dict[str, str]:
        """How the rows came to be, where more than the file's own format decided it."""
        steps = steps_of(self.path)
        if self.declared or self.drawn_seed is not None:
            file = {"file": Path(self.source).name}
            steps.append(LineageStep(name="read", parameters=file | self.declared, seed=self.drawn_seed))
        return metadata(steps)

    def _kept(self, batches: Iterator[Batch]) -> Iterator[pl.DataFrame]:
        for batch in batches:
            yield batch.rows.filter(pl.col("reason").is_null()).drop("reason", "remark")

    def _write_in_one_pass(self, output: Path) -> bool:
        """Write while counting; tell whether that was possible: without an inversion, the first row is the first."""
        tally = Tally()
        with self._batches_ahead() as batches:
            kept = self._kept(_counted(batches, tally))
            first = next((frame for frame in kept if frame.height), None)
            if first is None or tally.inversions:
                _drain(kept)
            else:
                self._sink(output, first, kept, tally)
                _drain(kept)
        self._tally = tally
        return tally.first_us is not None and not tally.inversions

    def _sink(self, output: Path, first: pl.DataFrame, kept: Iterator[pl.DataFrame], tally: Tally) -> None:
        first_us = int(first["arrival_us"][0])
        origin = self._reader.origin_us(self.path, self._options)

        def frames() -> Iterator[pl.DataFrame]:
            yield first
            for frame in kept:
                # Ended, not raised: a failed sink may still be at its file when the next one begins.
                if tally.inversions:
                    return
                yield frame

        relative = _lazily(frames).with_columns(pl.col("arrival_us") - first_us)
        origin_us = None if origin is None else origin + first_us
        own.write(
            output,
            relative,
            origin_us,
            self._lineage,
            sampling_percent=self.sampling_percent,
            unless=lambda: bool(tally.inversions),
        )


def _lazily(frames: Callable[[], Iterator[pl.DataFrame]]) -> pl.LazyFrame:
    """Return the frames as one lazy frame; they are made anew for each collection, and only what it asks for."""

    def wanted(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        left = n_rows
        for frame in frames():
            rows = frame
            if left is not None:
                rows = rows.head(left)
                left -= rows.height
            if predicate is not None:
                rows = rows.filter(predicate)
            yield rows if with_columns is None else rows.select(with_columns)
            if left == 0:
                return

    return register_io_source(wanted, schema=TRACE_COLUMNS)


def _counted(batches: Iterator[Batch], tally: Tally) -> Iterator[Batch]:
    for batch in batches:
        tally.add(batch)
        yield batch


def _drain(frames: Iterator[Any]) -> None:
    for _ in frames:
        pass


def _of_path(path: Path, make: Callable[[], Batch]) -> tuple[Path, Batch]:
    return path, make()


def _joined(batches: Iterable[tuple[Path, Batch]]) -> Iterator[Batch]:
    """Yield the files' batches, numbered through all files."""
    before = height = 0
    current: Path | None = None
    for path, batch in batches:
        if path != current:
            current, before, height = path, before + height, 0
        height += batch.rows.height
        yield _named_cut(_shifted(batch, before))


def _shifted(batch: Batch, rows: int) -> Batch:
    if not rows:
        return batch
    moved = batch.rows.with_columns(pl.col("row_id", "parent_row") + rows)
    return Batch(moved, batch.cut_off, batch.raw)


def _named_cut(batch: Batch) -> Batch:
    """Return the batch with its last row's reason named, where the file ended inside that row."""
    rows = batch.rows
    if not batch.cut_off or not rows.height or rows["reason"][-1] in {None, "blank_line"}:
        return batch
    last = pl.int_range(pl.len()) == pl.len() - 1
    named = pl.when(last).then(pl.lit("truncated_last_line", dtype=pl.Enum(REASONS))).otherwise(pl.col("reason"))
    return Batch(rows.with_columns(named.alias("reason")), batch.cut_off, batch.raw)


def _no_valid_row_message(source: str, reader: Format, tally: Tally) -> str:
    if not tally.rows_read:
        return f"{source}: no rows after the header; expected {reader.expected}"
    reasons = ", ".join(
        f"{count} {reason} (first: row {tally.examples[reason]})" for reason, count in tally.dropped.items()
    )
    if set(tally.dropped) == {"no_time"} and "rate_per_s" in reader.options:
        return (
            f"{source}: its {tally.rows_read:,} requests have no time, and none is invented; state how many arrive per "
            f"second with --rate, or make a trace with `ramptrace trace synth`"
        )
    return (
        f"{source}: no valid row among {tally.rows_read}: {reasons}; expected {reader.expected}, "
        f"is --format {reader.name} right?"
    )
