"""The first bytes of a file, and the views of them by which a format is known."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from traces.readers.json_split import split_json, visible_keys
from traces.readers.lines import HEAD_BYTES

_COLUMN_NAME: Final = re.compile(r"[A-Za-z_][\w .-]{0,39}")
_LOOKED_AT: Final = 200
_GOES_ON: Final = re.compile(rb'[^\n]*(?:\{\s*\n\s*["}]|[\[,]\s*\n)')
PARQUET_MAGIC: Final = b"PAR1"


class Head:
    """The first bytes of a file, decompressed and without a byte order mark."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path = path
        self.content = content

    @cached_property
    def first_line(self) -> str:
        """The first line; what is not UTF-8 in it is replaced."""
        return self.content.split(b"\n", 1)[0].decode("utf-8", "replace").rstrip("\r")

    @cached_property
    def columns(self) -> list[str]:
        """The first line's fields, were it the header of a comma-separated file."""
        return [column.strip().strip('"') for column in self.first_line.split(",")]

    @cached_property
    def objects(self) -> list[dict[str, Any]]:
        """The first whole JSON objects: one per line, elements of an array, or written over several lines."""
        return [value for value in map(_decoded, self._texts[:_LOOKED_AT]) if isinstance(value, dict)]

    @cached_property
    def keys(self) -> list[set[str]]:
        """The keys of each of `objects`; those that can be seen of the first one, when it is longer than the head."""
        return [set(found) for found in self.objects] or [visible_keys(self.content)]

    @cached_property
    def parquet_columns(self) -> list[str]:
        """The column names of a Parquet file; empty for another file, or a damaged one."""
        if not self.content.startswith(PARQUET_MAGIC):
            return []
        import polars as pl

        try:
            return list(pl.read_parquet_schema(self.path))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
            return []

    @cached_property
    def _texts(self) -> list[bytes]:
        text = self.content.lstrip()
        if one_value_per_line(text):
            return text.split(b"\n")
        return [value for value, _ in split_json([text])]


def one_value_per_line(content: bytes) -> bool:
    """Tell whether JSON that begins with `content` has a value on each line: it is neither an array nor spread out.

    A first line longer than what we see is taken for a line: rows with prompts can be long. One that breaks off is
    taken for a bad row, unless what follows goes on with it to the end of a value, or to the end of what we see.
    """
    text = content.lstrip()
    first, line_feed, rest = text.partition(b"\n")
    if text.startswith(b"["):
        return bool(rest.strip()) and _decoded(first) is not None
    if not line_feed or not text.startswith(b"{") or _decoded(first) is not None or not _GOES_ON.match(text):
        return True
    return len(content) < HEAD_BYTES and _decoded(next(split_json([text]))[0]) is None


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def looks_like(content: bytes) -> str:
    """Return the columns or keys of a file in words, never its values: those may be prompts."""
    first = content.split(b"\n", 1)[0]
    row = _decoded(first)
    if isinstance(row, dict):
        return f"JSON lines with the keys {', '.join(list(row)[:12])}"
    names = [name.strip().strip('"') for name in first.decode("utf-8", "replace").split(",")]
    if len(names) > 1 and all(_COLUMN_NAME.fullmatch(name) for name in names):
        return f"its first line has the columns {', '.join(names[:12])}"
    return "its first line is neither a known header nor JSON"
