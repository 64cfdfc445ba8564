"""Traces in the formats of other tools. What a format cannot carry is counted, never dropped in silence.

`import(export(x)) = x` holds for the columns that a format carries; row numbers become positions in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import polars as pl

from traces.clock import to_datetime
from traces.errors import BadInputError
from traces.readers import mooncake, own
from traces.readers.base import TRACE_COLUMNS
from traces.units import US_PER_MS, US_PER_S

DEFAULT_START_US: Final = 1_704_067_200 * US_PER_S
"""2024-01-01T00:00:00Z: where Azure's absolute times begin for a trace that has none."""

_LENGTHS: Final = ("input_tokens", "output_tokens")
_NEVER_COUNTED: Final = frozenset({"row_id", "arrival_us", "block_tokens"})


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A format to write: what it carries of a trace besides arrivals, and how one row is written.

    `needs` are columns without which a row has no place in it. `block_tokens` is the only size of prefix blocks that
    the format knows.
    """

    carries: frozenset[str]
    needs: frozenset[str] = frozenset(_LENGTHS)
    block_tokens: int | None = None
    header: str = ""
    row: Callable[[dict[str, Any], int], str] | None = None


class ExportReport(msgspec.Struct, kw_only=True):
    """What was written.

    By column: `lost` counts values that the format cannot carry, `dropped` rows that lack what it needs, `filled`
    unknown values that it has no way to leave open. `hint` is what to tell `trace import` where the file alone is
    ambiguous.
    """

    rows: int = 0
    lost: dict[str, int] = {}
    dropped: dict[str, int] = {}
    filled: dict[str, int] = {}
    invented_date: bool = False
    hint: str | None = None


class _MooncakeRow(msgspec.Struct, omit_defaults=True):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] | None = None
    session_id: str | None = None
    delay: float | None = None


def _mooncake(row: dict[str, Any], _origin_us: int) -> str:
    return _json(
        _MooncakeRow(_ms(row["arrival_us"]), row["input_tokens"], row["output_tokens"], hash_ids=row["prefix_blocks"])
    )


def _aiperf(row: dict[str, Any], _origin_us: int) -> str:
    return _json(
        _MooncakeRow(
            _ms(row["arrival_us"]),
            row["input_tokens"],
            row["output_tokens"],
            hash_ids=row["prefix_blocks"],
            session_id=row["session_id"],
            delay=None if row["think_us"] is None else _ms(row["think_us"]),
        )
    )


def _guidellm(row: dict[str, Any], _origin_us: int) -> str:
    # Always with a fraction: whole numbers are what Mooncake's milliseconds look like.
    seconds = row["arrival_us"] / US_PER_S
    return _json({"timestamp": seconds, "input_length": row["input_tokens"], "output_length": row["output_tokens"]})


def _azure(row: dict[str, Any], origin_us: int) -> str:
    stamp = to_datetime(origin_us) + timedelta(microseconds=row["arrival_us"])
    images = "" if row["images"] is None else f",{row['images']}"
    return f"{stamp:%Y-%m-%d %H:%M:%S.%f}+00:00,{row['input_tokens']},{row['output_tokens']}{images}"


_AZURE_HEADER: Final = "TIMESTAMP,ContextTokens,GeneratedTokens"
_LENGTHS_ONLY: Final = frozenset(_LENGTHS)
TARGETS: Final[dict[str, Target]] = {
    "mooncake": Target(
        carries=_LENGTHS_ONLY | {"prefix_blocks", "block_tokens"}, block_tokens=mooncake.BLOCK_TOKENS, row=_mooncake
    ),
    "aiperf": Target(
        carries=_LENGTHS_ONLY | {"prefix_blocks", "block_tokens", "session_id", "think_us"},
        block_tokens=mooncake.BLOCK_TOKENS,
        row=_aiperf,
    ),
    "guidellm": Target(carries=_LENGTHS_ONLY, row=_guidellm),
    "azure": Target(carries=_LENGTHS_ONLY | {"images"}, header=_AZURE_HEADER, row=_azure),
    "parquet": Target(carries=frozenset(TRACE_COLUMNS), needs=frozenset()),
}
"""Formats by the name that `--to` takes. AIPerf links the turns of a session by their order."""


def export(
    frame: pl.LazyFrame,
    path: Path,
    to: str,
    *,
    origin_us: int | None,
    drop_incomplete: bool = False,
    lineage: dict[str, str] | None = None,
    sampling_percent: float | None = None,
) -> ExportReport:
    """Write a trace frame in the format `to` (a key of `TARGETS`), atomically and in bounded memory; return the report.

    Rows that lack what the format needs raise `BadInputError`, or are left out and counted with `drop_incomplete`.
    """
    target = TARGETS[to]
    report, frame = _fitted(frame, target, to, drop_incomplete=drop_incomplete)
    if target.row is None:
        own.write(path, frame, origin_us, lineage, sampling_percent=sampling_percent)
        return report
    report.invented_date = to == "azure" and origin_us is None
    header = target.header
    if "images" in target.carries and (unknown := _counts(frame, {"images": pl.col("images").is_null()})) != {
        "images": report.rows
    }:
        header, report.filled = f"{header},NumImages", unknown
        frame = frame.with_columns(pl.col("images").fill_null(0))
    start_us = DEFAULT_START_US if origin_us is None else origin_us
    if not path.parent.is_dir():
        raise BadInputError(f"{path}: there is no folder {path.parent}; make it, or choose another place")
    temporary = path.with_name(f".part-{path.name}")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            _write(file, header, _lines(frame, target.row, start_us))
        temporary.rename(path)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written ({error.strerror}); choose another place with -o") from error
    except OverflowError as error:
        raise BadInputError(f"the trace reaches beyond the year 9999, which {to} cannot write; cut a window") from error
    finally:
        temporary.unlink(missing_ok=True)
    return report


def _fitted(
    frame: pl.LazyFrame, target: Target, to: str, *, drop_incomplete: bool
) -> tuple[ExportReport, pl.LazyFrame]:
    """Return the report and the rows that the format can carry, with prefix blocks of its size only."""
    needs = sorted(target.needs)
    dropped = _counts(frame, {column: pl.col(column).is_null() for column in needs})
    if dropped and not drop_incomplete:
        listed = ", ".join(f"{count:,} rows have no {column}" for column, count in dropped.items())
        raise BadInputError(f"{listed}, and {to} cannot do without; leave them out with --drop-incomplete")
    kept = frame.filter(pl.col(column).is_not_null() for column in needs) if needs else frame
    lost = {column: pl.col(column).is_not_null() for column in TRACE_COLUMNS if column not in target.carries}
    # A block's size is lost together with its number.
    lost = {column: found for column, found in lost.items() if column not in _NEVER_COUNTED}
    if target.block_tokens is not None:
        other_size = pl.col("block_tokens").fill_null(0) != target.block_tokens
        lost["prefix_blocks"] = other_size & pl.col("prefix_blocks").is_not_null()
        blocks = pl.when(other_size).then(None).otherwise(pl.col("prefix_blocks")).alias("prefix_blocks")
    else:
        blocks = pl.col("prefix_blocks")
    rows = int(kept.select(pl.len()).collect().item())
    if not rows:
        raise BadInputError(f"no row has all of {', '.join(needs)}; nothing to export")
    fitted = kept.with_columns(blocks)
    return ExportReport(rows=rows, lost=_counts(kept, lost), dropped=dropped, hint=_hint(fitted, to)), fitted


def _counts(frame: pl.LazyFrame, found: dict[str, pl.Expr]) -> dict[str, int]:
    """Return for how many rows each expression holds, where it holds for any."""
    if not found:
        return {}
    counted = frame.select(**{name: holds.sum() for name, holds in found.items()}).collect(engine="streaming")
    return {name: count for name, count in counted.row(0, named=True).items() if count}


def _hint(frame: pl.LazyFrame, to: str) -> str | None:
    """Return what to tell `trace import`, where the file alone does not say what it is."""
    if to not in {"mooncake", "aiperf"}:
        return None
    return None if frame.select(pl.col("prefix_blocks").is_not_null().any()).collect().item() else "--format mooncake"


def _lines(frame: pl.LazyFrame, row: Callable[[dict[str, Any], int], str], origin_us: int) -> Iterator[str]:
    for batch in frame.collect_batches(maintain_order=True, engine="streaming"):
        for found in batch.iter_rows(named=True):
            yield row(found, origin_us)


def _write(file: IO[str], header: str, lines: Iterator[str]) -> None:
    if header:
        file.write(f"{header}\n")
    file.writelines(f"{line}\n" for line in lines)


def _ms(us: int) -> float:
    """Return milliseconds, whole where they are: Mooncake's own stamps are."""
    whole, rest = divmod(us, US_PER_MS)
    return us / US_PER_MS if rest else whole


def _json(row: Any) -> str:
    return msgspec.json.encode(row).decode()
