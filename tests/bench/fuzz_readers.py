"""Fuzz the trace readers with coverage guidance, by hand: `python -m tests.bench.fuzz_readers -max_total_time=600`.

Needs `pip install atheris`, which is not among the development dependencies. Each input is a mutation of a valid file,
plain or compressed; what it finds becomes an example in `tests/traces/test_readers_fuzz.py`.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path
from unittest import mock

import atheris

with atheris.instrument_imports(include=["traces.readers", "traces.lint", "traces.rejects"]):
    from tests.traces.test_readers_fuzz import CONTENTS, OPTIONS, PIECES, edited, read_whole
    from traces.readers import READERS, Options

_NAMES = list(READERS)
_CHUNKS = (7, 200, 1 << 23)


def one(data: bytes) -> None:
    """Play one input: which format, how it is cut, up to four edits, and whether its format is named."""
    given = atheris.FuzzedDataProvider(data)
    name = _NAMES[given.ConsumeIntInRange(0, len(_NAMES) - 1)]
    edits = []
    for _ in range(given.ConsumeIntInRange(1, 4)):
        place, over = given.ConsumeProbability(), given.ConsumeIntInRange(0, 12)
        known = given.ConsumeBool()
        piece = PIECES[given.ConsumeIntInRange(0, len(PIECES) - 1)] if known else given.ConsumeBytes(6)
        edits.append((place, over, piece))
    content, named = edited(CONTENTS[name], edits), given.ConsumeBool()
    zipped = given.ConsumeBool() and name != "own"
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch("traces.readers.lines._CHUNK_BYTES", _CHUNKS[given.ConsumeIntInRange(0, 2)]),
    ):
        path = Path(folder) / ("chunk-1-trace.csv.gz" if zipped else "chunk-1-trace.csv")
        path.write_bytes(gzip.compress(content, 1) if zipped else content)
        read_whole(path, name if named else None, OPTIONS.get(name, Options()) if named else Options())


def main() -> None:
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
