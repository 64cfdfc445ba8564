"""Text files read as lines, in bounded memory, so that no line can abort the reading or vanish from the count.

Bytes are split at line feeds before anything looks at them: quotes, ragged rows, NUL bytes and broken UTF-8 stay
inside their own line.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import polars as pl

from traces.errors import BadInputError

BOM: Final = b"\xef\xbb\xbf"
HEAD_BYTES: Final = 1 << 16
_CHUNK_BYTES: Final = 1 << 22
_MAX_LINE_BYTES: Final = 1 << 26
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"

LINE_SCHEMA: Final = pl.Schema({"line_no": pl.Int64(), "line": pl.String()})
"""`line_no` counts from 0; `line` has no line ending, and is null where the bytes are not UTF-8."""


def compression(path: Path) -> str | None:
    """Return `gzip`, `zstd`, or None for a plain file, by the file's first bytes."""
    with path.open("rb") as file:
        magic = file.read(4)
    if magic.startswith(_GZIP_MAGIC):
        return "gzip"
    return "zstd" if magic == _ZSTD_MAGIC else None


def read_head(path: Path) -> bytes:
    """Return the first 64 KiB of the file's content, decompressed; damaged data raises `BadInputError`."""
    if compression(path) == "zstd":
        first = _zstd_lines(path).head(64).collect()["line"]
        return "\n".join(first.to_list()).encode()
    with _opened(path) as file:
        return _read(file, path, HEAD_BYTES)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text: polars adds lines that tell a user nothing."""
    return str(error).partition("\n")[0]


def line_frames(path: Path) -> Iterator[tuple[pl.DataFrame, bool]]:
    """Yield the file's lines as frames of `LINE_SCHEMA`, each with whether its last line is cut off.

    A line is cut off when the file ends before its line feed; only the last frame can have one. Raises
    `BadInputError` when compressed data is damaged, or a line does not end.
    """
    if compression(path) == "zstd":
        yield from _zstd_frames(path)
        return
    first, rest = 0, b""
    with _opened(path) as file:
        while chunk := _read(file, path, _CHUNK_BYTES):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if len(rest) > _MAX_LINE_BYTES:
                where = first + len(lines) + 1
                raise BadInputError(f"{path}: line {where:,} is longer than 64 MiB; expected one row per line")
            if lines:
                yield _frame(lines, first), False
                first += len(lines)
    if rest:
        yield _frame([rest], first), True


def _frame(lines: list[bytes], first: int) -> pl.DataFrame:
    if first == 0:
        lines[0] = lines[0].removeprefix(BOM)
    text = _text(lines).str.strip_suffix("\r")
    number = pl.int_range(first, first + len(lines), dtype=pl.Int64, eager=True).alias("line_no")
    return pl.DataFrame([number, text])


def _text(lines: list[bytes]) -> pl.Series:
    try:
        return pl.Series("line", lines, dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.ComputeError:
        # Some line is not UTF-8: look at each, which is slower and rare.
        return pl.Series("line", [_decoded(line) for line in lines], dtype=pl.String)


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if compression(path) == "gzip" else path.open("rb")  # type: ignore[return-value]


def _read(file: IO[bytes], path: Path, size: int) -> bytes:
    try:
        return file.read(size)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInputError(f"{path}: damaged gzip data ({error}); fetch the file again") from error


def _zstd_lines(path: Path) -> pl.LazyFrame:
    return pl.scan_lines(path, row_index_name="line_no")


def _zstd_frames(path: Path) -> Iterator[tuple[pl.DataFrame, bool]]:
    # Python has no zstd before 3.14; polars reads it, but only as valid UTF-8, and does not tell how the file ends.
    try:
        for batch in _zstd_lines(path).collect_batches(maintain_order=True, engine="streaming"):
            text = pl.col("line").str.strip_suffix("\r").str.strip_prefix(BOM.decode())
            yield batch.select(pl.col("line_no").cast(pl.Int64), text), False
    except pl.exceptions.PolarsError as error:
        raise BadInputError(
            f"{path}: cannot be read as zstd text ({first_line(error)}); decompress it with `zstd -d` and read that"
        ) from error
