"""The run directory: the one thing producers and pipelines share. Readable at every instant, also after kill -9.

Writers append small immutable Parquet shards: written under a temporary name, synced, then renamed. A Parquet file
that was never finished has no footer and is lost whole, so no shard stays open for longer than a flush interval.
`compact` merges shards into one that names those it replaces; a reader ignores the named ones, so that a crash
between its two steps can neither lose nor double a row.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dataframely as dy
import msgspec
import polars as pl

from traces.clock import EndpointClock
from traces.errors import BadInputError
from traces.manifest import Manifest
from traces.schema import SCHEMA_VERSION, TABLES

MANIFEST = "run.json"
_PARQUET_MAGIC = b"PAR1"
_TEMPORARY = ".part-"
_YEAR_9999_US = 253_370_764_800_000_000


class RunDir:
    """A run directory on the local file system."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path, manifest: Manifest) -> RunDir:
        """Make a new run directory and write its manifest; an existing run is never written over."""
        cls.refuse_existing(path)
        run = cls(path)
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            run.write_manifest(manifest)
        except OSError as error:
            raise BadInputError(f"{run.path}: cannot write a run directory there ({error.strerror})") from error
        return run

    @staticmethod
    def refuse_existing(path: str | Path) -> None:
        """Raise `BadInputError` when a run lies at `path` already."""
        if (Path(path) / MANIFEST).exists():
            raise BadInputError(f"{path}: a run is already there; choose another directory with --run-dir")

    @classmethod
    def open(cls, path: str | Path) -> RunDir:
        """Return the run directory at `path`; an error says what is missing."""
        run = cls(path)
        if not (run.path / MANIFEST).is_file():
            raise BadInputError(f"{run.path}: not a run directory (no {MANIFEST} in it); `ramptrace replay` makes one")
        return run

    def manifest(self) -> Manifest:
        """Read `run.json`."""
        file = self.path / MANIFEST
        try:
            found = msgspec.json.decode(file.read_bytes(), type=Manifest)
        except (OSError, msgspec.MsgspecError) as error:
            raise BadInputError(f"{file}: not a readable manifest ({error})") from error
        if found.schema_version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
            writer = found.versions.get("ramptrace", "unknown")
            raise BadInputError(
                f"{file}: written with table version {found.schema_version}, this ramptrace reads "
                f"{SCHEMA_VERSION.split('.')[0]}.x; use the version that wrote it ({writer})"
            )
        instants = (found.created_us, found.t0_us, found.finished_us, *_epochs(found.clock))
        if not 0 < found.time_scale < math.inf or any(not 0 <= (at or 0) < _YEAR_9999_US for at in instants):
            raise BadInputError(f"{file}: its clock or its instants cannot be; the file is damaged, restore it")
        return found

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace `run.json` atomically."""
        encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
        write_atomically(self.path / MANIFEST, encoded)

    def write_snapshot(self, name: str, document: Mapping[str, Any]) -> None:
        """Write one configuration snapshot as `snapshots/<name>.json`."""
        folder = self.path / "snapshots"
        folder.mkdir(exist_ok=True)
        encoded = msgspec.json.encode(document, enc_hook=str)
        write_atomically(folder / f"{name}.json", msgspec.json.format(encoded, indent=2))

    def snapshots(self) -> dict[str, Any]:
        """Return the configuration snapshots by name; unreadable ones are left out."""
        found = {}
        for file in sorted((self.path / "snapshots").glob("[!.]*.json")):
            try:
                found[file.stem] = msgspec.json.decode(file.read_bytes())
            except (OSError, msgspec.MsgspecError):
                continue
        return found

    def shards(self, table: str) -> list[Path]:
        """Return the table's live shards; those of one writer in the order in which they were written."""
        found = self._files(table)
        replaced = _replaced_by(found)
        return [path for path in found if path.name not in replaced]

    def unreadable(self, table: str) -> list[Path]:
        """Return the shards that are not whole Parquet files (a full disk or a damaged copy)."""
        return [path for path in self.shards(table) if not is_complete(path)]

    def scan(self, table: str) -> pl.LazyFrame:
        """Lazily scan one of the sharded tables: every whole shard, with the columns and types of its schema.

        Columns that an older minor version did not have come back null; a table that was never written is empty.
        """
        files = [path for path in self.shards(table) if is_complete(path)]
        return _scan(files, table, current=self._written_by_this_version())

    def _written_by_this_version(self) -> bool:
        try:
            manifest = msgspec.json.decode((self.path / MANIFEST).read_bytes(), type=_Version)
        except (OSError, msgspec.MsgspecError):
            return False
        return manifest.schema_version == SCHEMA_VERSION

    def compact(self, table: str, *, writer: str | None = None, at_least: int = 2) -> None:
        """Merge the table's shards into one; of one writer only those that are not merged yet, if there are so many.

        What an interrupted compaction left behind goes first, while the file that replaces it still says so: once
        that file is itself replaced and gone, its leftovers would come back to life and double their rows. Several
        processes may each compact the shards of their own writer at the same time.
        """
        files = [path for path in self._files(table) if writer is None or _is_of(path, writer)]
        replaced = _replaced_by(files)
        for path in files:
            if path.name in replaced:
                path.unlink()
        whole = [path for path in files if path.name not in replaced and is_complete(path)]
        old = [path for path in whole if writer is None or path.name.startswith(f"{writer}-")]
        if len(old) < at_least:
            return
        names = [path.name for path in old]
        number = 1 + max((int(m[1]) for p in whole if (m := re.match(r"compacted-(\d+)", p.name))), default=0)
        suffix = f"-{writer}" if writer else ""
        target = self.path / table / f"compacted-{number:06d}{suffix}.parquet"
        merged = _scan(old, table, current=self._written_by_this_version()).collect()
        write_parquet(target, merged, {"ramptrace.replaces": ",".join(names)})
        for path in old:
            path.unlink()

    def _files(self, table: str) -> list[Path]:
        return sorted(path for path in (self.path / table).glob("*.parquet") if not path.name.startswith("."))


def _is_of(path: Path, writer: str) -> bool:
    """Tell whether a shard was written by a writer, or merged from its shards alone."""
    return path.name.startswith(f"{writer}-") or path.stem.endswith(f"-{writer}")


def _epochs(clock: EndpointClock) -> tuple[int, int]:
    return clock.client_epoch_us, clock.endpoint_epoch_us


class ShardWriter:
    """Appends shards of one table. Safe to call from any thread; each call is one atomic file.

    `writer` tells the writers of one table apart (`worker0`, `collector`).
    """

    def __init__(self, run: RunDir, table: str, writer: str) -> None:
        self._schema: type[dy.Schema] = TABLES[table]
        self._folder = run.path / table
        self._folder.mkdir(parents=True, exist_ok=True)
        self._writer = writer
        # The opening time makes names unique for ever: a number alone would come again after a compaction, and a
        # compacted file hides the names that it replaces.
        self._opened_us = time.time_ns() // 1_000
        self._numbers = itertools.count()

    def write(self, rows: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]]) -> Path | None:
        """Write rows (a list of mappings, or columns) as one shard; nothing is written for no rows."""
        frame = pl.DataFrame(rows, schema=pl.Schema(self._schema), strict=True)
        if frame.is_empty():
            return None
        path = self._folder / f"{self._writer}-{self._opened_us}-{next(self._numbers):06d}.parquet"
        write_parquet(path, frame)
        return path


class _Version(msgspec.Struct):
    schema_version: str


def _scan(files: list[Path], table: str, *, current: bool) -> pl.LazyFrame:
    """Scan shards; where some may be of an older minor version (not `current`), each by what it says that it holds."""
    schema = pl.Schema(TABLES[table])
    older = [] if current else [path for path in files if not _fits(pl.read_parquet_schema(path), schema)]
    newest = [path for path in files if path not in set(older)]
    frames = [_adapted(path, schema) for path in older]
    if newest or not frames:
        whole = pl.scan_parquet(newest, schema=schema, missing_columns="insert", extra_columns="ignore")
        frames.insert(0, whole if newest else pl.LazyFrame(schema=schema))
    return frames[0] if len(frames) == 1 else pl.concat(frames)


def _fits(found: Mapping[str, pl.DataType], schema: Mapping[str, pl.DataType]) -> bool:
    return all(found[name] == kind for name, kind in schema.items() if name in found)


def _adapted(path: Path, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """Scan a shard of an older minor version, whose words were fewer; one that is none any more comes back null."""
    frame = pl.scan_parquet(path)
    found = frame.collect_schema()
    return frame.select(
        pl.col(name).cast(pl.String).cast(kind, strict=False)
        if isinstance(kind, pl.Enum) and name in found
        else (pl.col(name) if name in found else pl.lit(None).alias(name)).cast(kind)
        for name, kind in schema.items()
    )


def write_parquet(path: Path, frame: pl.DataFrame, metadata: Mapping[str, str] | None = None) -> None:
    """Write one Parquet file atomically and durably: temporary name, sync, rename. Raises `OSError`.

    It is encoded in memory first: polars reports a full disk as an error of its own, which no caller could tell from
    a bad frame, and which would cost the rows instead of being tried again.
    """
    stamped = {"ramptrace.schema_version": SCHEMA_VERSION, **(metadata or {})}
    encoded = io.BytesIO()
    frame.write_parquet(encoded, compression="zstd", metadata=stamped)
    write_atomically(path, encoded.getbuffer())


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Write one small file atomically and durably. Raises `OSError`, and then leaves no part of it behind."""
    refuse_as_output(path)
    temporary = path.with_name(_TEMPORARY + path.name)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def refuse_as_output(path: Path) -> None:
    """Raise `BadInputError` for a path that no file can be renamed to: a rename would even replace a device."""
    if not path.name:
        raise BadInputError(f'"{path}": not a file\'s name; give one')
    if path.exists() and not path.is_file():
        raise BadInputError(f"{path}: is there and not a regular file; name another file")


def _replaced_by(files: Iterable[Path]) -> set[str]:
    """Return the names of the shards that the compacted ones among `files` stand for."""
    replaced: set[str] = set()
    for path in files:
        if path.name.startswith("compacted-") and is_complete(path):
            replaced.update(pl.read_parquet_metadata(path).get("ramptrace.replaces", "").split(","))
    return replaced


def is_complete(path: Path) -> bool:
    """Tell whether a Parquet file was written to its end (it closes with the format's magic bytes)."""
    try:
        with path.open("rb") as file:
            file.seek(-4, os.SEEK_END)
            return file.read(4) == _PARQUET_MAGIC
    except OSError:
        return False


def columns_of(rows: Iterable[Mapping[str, Any]], schema: type[dy.Schema]) -> dict[str, list[Any]]:
    """Return rows as columns of `schema`; a key that a row lacks becomes null."""
    listed = list(rows)
    return {name: [row.get(name) for row in listed] for name in pl.Schema(schema)}
