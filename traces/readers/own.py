"""Our own format: a Parquet file with the columns of `traces.schema.Trace`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import polars as pl

from traces.errors import BadInputError, first_line
from traces.readers.base import MAX_TOKENS, TRACE_COLUMNS, Batch, Format, Options, classified, reason_of
from traces.readers.head import PARQUET_MAGIC, Head
from traces.run import refuse_as_output
from traces.schema import SCHEMA_VERSION

ORIGIN_KEY: Final = "ramptrace.trace_origin_us"
"""File metadata: the instant (µs since 1970 UTC) of arrival 0, where the source had absolute time."""

SAMPLING_KEY: Final = "ramptrace.sampling_percent"
"""File metadata: the share of the real requests that the rows are, as declared."""

DAMAGE: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises over a damaged file; some damage makes its decoder panic."""

_REQUIRED: Final = ("row_id", "arrival_us", "input_tokens", "output_tokens")


def sniff(head: Head) -> bool:
    """Tell whether the file is Parquet, and no collection of conversations, which are published as Parquet too."""
    return head.content.startswith(PARQUET_MAGIC) and not {"conversation", "conversations"} & set(head.parquet_columns)


def check(path: Path, head: Head, _options: Options) -> None:
    """Raise `BadInputError` when it is not Parquet, is torn, or lacks columns of a trace."""
    if not head.content.startswith(PARQUET_MAGIC):
        raise BadInputError(f"{path}: not a Parquet file; expected {FORMAT.expected}")
    try:
        found = pl.read_parquet_schema(path)
    except (*DAMAGE, OSError) as error:
        raise BadInputError(f"{path}: not a whole Parquet file; fetch it or write it again") from error
    missing = [column for column in _REQUIRED if column not in found]
    if missing:
        raise BadInputError(
            f"{path}: not a trace: columns {', '.join(missing)} are missing; found {', '.join(found)}; "
            f"make one with `ramptrace trace import`"
        )
    wrong = [column for column, kind in TRACE_COLUMNS.items() if column in found and found[column] != kind]
    if wrong:
        kinds = ", ".join(f"{column} is {found[column]}, expected {TRACE_COLUMNS[column]}" for column in wrong)
        raise BadInputError(f"{path}: not a trace: {kinds}; make one with `ramptrace trace import`")


def origin_us(path: Path, _options: Options) -> int | None:
    """Return the instant of arrival 0 that the file's metadata states, if any."""
    stated = pl.read_parquet_metadata(path).get(ORIGIN_KEY)
    return int(stated) if stated else None


def write(
    path: Path,
    frame: pl.LazyFrame,
    origin_us: int | None,
    lineage: Mapping[str, str] | None = None,
    *,
    sampling_percent: float | None = None,
    unless: Callable[[], bool] | None = None,
) -> None:
    """Write a trace frame atomically and durably, in bounded memory; `origin_us` is the instant of arrival 0.

    `lineage` is further metadata: how the trace came to be (`traces.lineage.metadata`); `sampling_percent`: which share
    of the real requests the rows are, where it was declared. What was written is thrown away
    when `unless`, asked at the end, says so; a file that was there stays.
    """
    refuse_as_output(path)
    if not path.parent.is_dir():
        raise BadInputError(f"{path}: there is no folder {path.parent}; make it, or choose another place")
    stated = {} if origin_us is None else {ORIGIN_KEY: str(origin_us)}
    if sampling_percent is not None:
        stated[SAMPLING_KEY] = repr(sampling_percent)
    temporary = path.with_name(f".part-{path.name}")
    try:
        frame.sink_parquet(
            temporary,
            compression="zstd",
            sync_on_close="all",
            metadata={"ramptrace.schema_version": SCHEMA_VERSION, **stated, **(lineage or {})},
            engine="streaming",
        )
        if unless is None or not unless():
            temporary.rename(path)
    except (OSError, pl.exceptions.ComputeError) as error:
        # A disk that fills up is an error of polars' own.
        cause = getattr(error, "strerror", None) or first_line(error)
        raise BadInputError(f"{path}: cannot be written ({cause}); choose another place") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def batches(path: Path, _options: Options) -> Iterator[Batch]:
    """Yield the file's rows, classified. Null lengths are valid: they were not recorded."""
    tokens = (pl.col("input_tokens"), pl.col("output_tokens"))
    reason = reason_of(
        ("malformed_row", pl.col("row_id") < 0),
        ("missing_field", pl.col("row_id").is_null() | pl.col("arrival_us").is_null()),
        ("bad_timestamp", pl.col("arrival_us") < 0),
        ("bad_tokens", pl.any_horizontal(column > MAX_TOKENS for column in tokens)),
        ("negative_tokens", pl.any_horizontal(column < 0 for column in tokens)),
    )
    scanned = pl.scan_parquet(path, schema=TRACE_COLUMNS, missing_columns="insert", extra_columns="ignore")
    try:
        for batch in scanned.with_columns(reason).collect_batches(maintain_order=True, engine="streaming"):
            yield Batch(classified(batch))
    except DAMAGE as error:
        cause = first_line(error)
        raise BadInputError(f"{path}: damaged Parquet data ({cause}); fetch it or write it again") from error


FORMAT: Final = Format(
    name="own",
    expected="a Parquet file with the columns of ramptrace's trace table",
    time_text="microseconds from the trace's start",
    sniff=sniff,
    check=check,
    batches=batches,
    origin_us=origin_us,
)
