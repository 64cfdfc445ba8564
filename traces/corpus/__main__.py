"""`python -m traces.corpus`: make the bundled traces anew and state their rows and digests in the catalogue."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from traces import corpus
from traces.run import write_atomically, write_parquet


def rebuild(folder: Path = corpus.FOLDER) -> dict[str, tuple[int, str]]:
    """Write each catalogued trace into `folder`; return rows and SHA-256 by name.

    The digest of a file depends on the version of polars that wrote it; the frame does not.
    """
    made = {}
    for name in corpus.names():
        entry = corpus.entry(name)
        frame = corpus.generate(entry)
        file = folder / entry.file
        write_parquet(file, frame)
        made[name] = frame.height, hashlib.sha256(file.read_bytes()).hexdigest()
    return made


def main() -> None:
    """Rebuild the files and update the catalogue's figures in place."""
    text = corpus.CATALOGUE.read_text(encoding="utf-8")
    sections = re.split(r"(?m)^(?=\[\[trace\]\])", text)
    made = rebuild()
    updated = [_stated(section, made) for section in sections]
    write_atomically(corpus.CATALOGUE, "".join(updated).encode())


def _stated(section: str, made: dict[str, tuple[int, str]]) -> str:
    name = re.search(r'(?m)^name = "(.+)"$', section)
    if name is None:
        return section
    rows, digest = made[name[1]]
    section = re.sub(r"(?m)^rows = .*$", f"rows = {rows}", section)
    return re.sub(r"(?m)^sha256 = .*$", f'sha256 = "{digest}"', section)


if __name__ == "__main__":
    main()
