"""The recording on disk: small Parquet shards that outlive a kill, joined into one trace at the end."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any, Final

import polars as pl

from traces.errors import BadInputError
from traces.lineage import LineageStep, metadata, steps_of
from traces.readers import own
from traces.readers.base import TRACE_COLUMNS
from traces.run import is_complete, write_parquet

_COMPACT_SHARDS: Final = 256


def parts_folder(output: Path) -> Path:
    """Return where the shards of a recording lie until it is closed."""
    return output.with_name(f"{output.name}.parts")


class ShardStore:
    """Rows of one recording. `add` may be called from any thread, `flush` from one at a time."""

    def __init__(self, output: Path, origin_us: int, upstream: str) -> None:
        self.folder = parts_folder(output)
        if self.folder.exists():
            raise BadInputError(
                f"{self.folder}: a recording that was cut off lies there; close it with `trace record --recover -o "
                f"{output}`, or name another output"
            )
        if output.exists():
            raise BadInputError(f"{output}: exists already; name another output with -o")
        try:
            self.folder.mkdir()
        except OSError as error:
            raise BadInputError(f"{self.folder}: cannot be made ({error.strerror}); choose another -o") from error
        made = LineageStep(name="record", parameters={"upstream": upstream})
        self._metadata = {own.ORIGIN_KEY: str(origin_us), **metadata([made])}
        self._rows: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._number = 0
        self._live: list[Path] = []

    def add(self, row: dict[str, Any]) -> None:
        """Take a row; it is on disk after the next flush."""
        with self._lock:
            self._rows.append(row)

    def flush(self) -> None:
        """Write the rows taken so far as one shard. On `OSError` they are kept for the next flush."""
        with self._lock:
            rows, self._rows = self._rows, []
        if not rows:
            return
        try:
            self._live.append(self._write(pl.DataFrame(rows, schema=TRACE_COLUMNS)))
        except OSError:
            with self._lock:
                self._rows = rows + self._rows
            raise
        if len(self._live) >= _COMPACT_SHARDS:
            self._compact()

    def _compact(self) -> None:
        """Join the shards. A kill in between leaves rows twice; `recover` takes each once."""
        joined = self._write(pl.read_parquet(self._live, schema=TRACE_COLUMNS))
        for path in self._live:
            path.unlink()
        self._live = [joined]

    def _write(self, frame: pl.DataFrame) -> Path:
        path = self.folder / f"part-{self._number:08d}.parquet"
        write_parquet(path, frame, self._metadata)
        self._number += 1
        return path


def recover(output: Path) -> int:
    """Join the shards of a recording into `output`, remove them, and return how many rows there are."""
    folder = parts_folder(output)
    if not folder.is_dir():
        raise BadInputError(f"{folder}: no recording lies there; nothing to recover")
    if output.exists():
        raise BadInputError(f"{output}: exists already; move it away first")
    shards = [path for path in sorted(folder.glob("part-*.parquet")) if is_complete(path)]
    if not shards:
        raise BadInputError(f"{folder}: nothing was recorded there; remove it")
    rows = pl.scan_parquet(shards, schema=TRACE_COLUMNS).unique("row_id", keep="first").sort("arrival_us", "row_id")
    stated = pl.read_parquet_metadata(shards[0]).get(own.ORIGIN_KEY)
    own.write(output, rows, int(stated) if stated else None, metadata(steps_of(shards[0])))
    shutil.rmtree(folder)
    return int(pl.scan_parquet(output).select(pl.len()).collect().item())
