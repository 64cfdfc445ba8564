"""Text files read as lines, in bounded memory, so that no line can abort the reading or vanish from the count.

Bytes are split at line feeds before anything looks at them: quotes, ragged rows, NUL bytes and broken UTF-8 stay
inside their own line.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec
import polars as pl

from traces.errors import BadInputError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BOM: Final = b"\xef\xbb\xbf"
HEAD_BYTES: Final = 1 << 16
_CHUNK_BYTES: Final = 1 << 23
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
    with _opened(path) as file:
        return _read(file, path, HEAD_BYTES)


class Block(msgspec.Struct, frozen=True):
    """`count` whole lines as bytes, each with its line feed. `first` is the number of its first line, from 0.

    `cut_off`: the file ends inside this block's only line, before its line feed.
    """

    first: int
    data: bytes
    count: int
    cut_off: bool = False

    def lines(self) -> list[bytes]:
        """Return the lines without their line feeds."""
        lines = self.data.split(b"\n")
        return lines if self.cut_off else lines[:-1]

    def without_first_line(self) -> Block:
        """Return the block from its second line on."""
        _, _, rest = self.data.partition(b"\n")
        return Block(self.first + 1, rest, self.count - 1)


def blocks(path: Path) -> Iterator[Block]:
    """Yield the file's lines in blocks of a few MiB; a byte order mark is left out.

    Raises `BadInputError` when compressed data is damaged, or a line does not end.
    """
    first = 0
    for piece, cut_off in _whole_lines(path):
        data = piece.removeprefix(BOM) if first == 0 else piece
        count = 1 if cut_off else data.count(b"\n")
        yield Block(first, data, count, cut_off)
        first += count


def _whole_lines(path: Path) -> Iterator[tuple[bytes, bool]]:
    rest = b""
    for chunk in chunks(path):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join((rest, memoryview(chunk)[:end])), False
            rest = chunk[end:]
            continue
        rest += chunk
        if len(rest) > _MAX_LINE_BYTES:
            raise BadInputError(f"{path}: a line is longer than 64 MiB; expected one row per line")
    if rest:
        yield rest, True


def chunks(path: Path) -> Iterator[bytes]:
    """Yield the file's content, decompressed, in pieces of a few MiB. Damaged data raises `BadInputError`."""
    with _opened(path) as file:
        while chunk := _read(file, path, _CHUNK_BYTES):
            yield chunk


def line_frame(block: Block) -> pl.DataFrame:
    """Return the block's lines as a frame of `LINE_SCHEMA`."""
    lines = block.lines()
    text = _text(lines).str.strip_suffix("\r")
    number = pl.int_range(block.first, block.first + len(lines), dtype=pl.Int64, eager=True).alias("line_no")
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
    packing = compression(path)
    if packing == "gzip":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return zstd.open(path, "rb") if packing == "zstd" else path.open("rb")  # type: ignore[return-value]


def _read(file: IO[bytes], path: Path, size: int) -> bytes:
    try:
        return file.read(size)
    except (EOFError, zlib.error, gzip.BadGzipFile, zstd.ZstdError) as error:
        raise BadInputError(f"{path}: damaged {compression(path)} data ({error}); fetch the file again") from error
