"""Where a trace lies: a file, a folder, a bundled trace or objects in S3, turned into files that can be read again."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import msgspec

from traces.errors import BadInputError
from traces.readers.base import Options
from traces.s3 import S3_PREFIX

CORPUS_PREFIX: Final = "corpus:"


class Located(msgspec.Struct, frozen=True):
    """The files of a trace, in the order in which they are read. `keep` holds what must outlive the reading."""

    paths: tuple[Path, ...]
    keep: Any = None


def locate(source: str, options: Options, companions: Sequence[str]) -> Located:
    """Return the files at `source`; names that match one of `companions` belong to other files and are left out.

    Raises `BadInputError` when there is nothing that can be read, `UnreachableError` when S3 does not answer.
    """
    if source.startswith(CORPUS_PREFIX):
        from traces import corpus

        return Located((corpus.path(source.removeprefix(CORPUS_PREFIX)),))
    if source.startswith(S3_PREFIX):
        from traces.readers.remote import fetch

        fetched = fetch(source, options.endpoint_url)
        return Located(_read_alone(fetched.paths, companions), fetched)
    path = Path(source)
    if path.is_dir():
        return Located(_files_of(path, companions))
    if path.exists() and not path.is_file():
        raise BadInputError(f"{path}: not a regular file; it is read more than once, save it as a file first")
    if not path.exists():
        raise BadInputError(
            f"{path}: no such file; check the path, or list bundled traces with `ramptrace trace corpus`"
        )
    return Located((path,))


def _files_of(folder: Path, companions: Sequence[str]) -> tuple[Path, ...]:
    def inside(path: Path) -> bool:
        return not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)

    found = sorted(path for path in folder.rglob("*") if path.is_file() and inside(path) and path.stat().st_size)
    if not found:
        raise BadInputError(f"{folder}: a directory without files to read; expected trace files of one format in it")
    return _read_alone(found, companions)


def _read_alone(paths: Sequence[Path], companions: Sequence[str]) -> tuple[Path, ...]:
    alone = tuple(path for path in paths if not any(fnmatch(path.name, pattern) for pattern in companions))
    return alone or tuple(paths)
