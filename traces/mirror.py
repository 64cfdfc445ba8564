"""Run directories in S3: read from there whole, and kept there as a copy while they are written.

A run is always written to a local directory first: a rename there is atomic, and a network that fails costs nothing.
Its files never change but `run.json` and the reports, so that a copy is a matter of names, sizes and times.
"""

from __future__ import annotations

import contextlib
import mimetypes
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

import msgspec

from traces.errors import BadInputError
from traces.readers.remote import Fetched
from traces.run import MANIFEST
from traces.s3 import AT_ONCE, S3_PREFIX, bucket_and_key, download, keys_under, refusals, s3_client

_EXPECTED: Final = "s3://BUCKET/PREFIX of a run directory"
_READ: Final = "s3:ListBucket and s3:GetObject"
_WRITE: Final = "s3:ListBucket, s3:PutObject and s3:DeleteObject"
_LISTINGS: Final = 3

Stamp: TypeAlias = tuple[int, int]
"""What tells two versions of a file apart: its size in bytes, and its time of change in nanoseconds."""

_UNKNOWN: Final[Stamp] = (-1, -1)


def is_remote(location: str) -> bool:
    """Tell whether a run directory's location is in S3."""
    return location.startswith(S3_PREFIX)


def fetch_run(uri: str) -> Fetched:
    """Fetch the run directory at `uri`; `paths` holds its one local folder, deleted with what is returned.

    A run that is being written loses shards to compaction between its listing and their reading: it is listed again.
    """
    bucket, key = bucket_and_key(uri, _EXPECTED)
    inside = f"{key.rstrip('/')}/" if key else ""
    with refusals(uri, _READ):
        client = s3_client()
        for _ in range(_LISTINGS - 1):
            with contextlib.suppress(client.exceptions.NoSuchKey):
                return _fetch_all(client, bucket, inside, uri)
        return _fetch_all(client, bucket, inside, uri)


def _fetch_all(client: Any, bucket: str, inside: str, uri: str) -> Fetched:
    keys = keys_under(client, bucket, inside)
    if inside + MANIFEST not in keys:
        raise BadInputError(f"{uri}: not a run directory (no {MANIFEST} under it); `aws s3 ls` shows what is")
    fetched = Fetched()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda key: _fetch_one(client, bucket, key, fetched.folder, key.removeprefix(inside)), keys))
    fetched.paths = [fetched.folder]
    return fetched


def _fetch_one(client: Any, bucket: str, key: str, folder: Path, name: str) -> None:
    parts = PurePosixPath(name).parts
    if not parts or any(part in {"..", "/"} or "\0" in part for part in parts):
        return  # a key is not a path: one that leads elsewhere is none of a run's files
    target = folder.joinpath(*parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    download(client, bucket, key, target)


def stamps(folder: Path) -> dict[str, Stamp]:
    """Return the finished files of a run directory by name; temporary ones begin with a dot."""
    found = {}
    for path in folder.rglob("*"):
        if path.name.startswith(".") or not path.is_file():
            continue
        with contextlib.suppress(FileNotFoundError):  # compacted away meanwhile
            state = path.stat()
            found[path.relative_to(folder).as_posix()] = (state.st_size, state.st_mtime_ns)
    return found


def changes(copied: Mapping[str, Stamp], present: Mapping[str, Stamp]) -> tuple[list[str], list[str]]:
    """Return which files are to be written and which to be deleted, so that `copied` becomes `present`.

    Deletions come last: a compacted shard names those it replaces, and until they go a reader ignores them.

    >>> changes({"a": (1, 1), "b": (1, 1)}, {"b": (2, 2), "c": (1, 3)})
    (['b', 'c'], ['a'])
    """
    written = [name for name in present if copied.get(name) != present[name]]
    return sorted(written), sorted(set(copied) - set(present))


class Mirror:
    """Keeps the run directory `folder` as a copy at `uri`."""

    def __init__(self, folder: Path, uri: str) -> None:
        self._folder, self.uri = folder, uri
        self._bucket, key = bucket_and_key(uri, _EXPECTED)
        self._inside = f"{key.rstrip('/')}/" if key else ""
        self._copied: dict[str, Stamp] = {}
        with refusals(self.uri, _WRITE):
            self._client = s3_client()

    def open(self) -> None:
        """Raise when another run is there already, or nothing may be written there: before the load, not after.

        A copy of this very run, from before it was gone on with, is taken up: what it has too much will be deleted.
        """
        with refusals(self.uri, _WRITE):
            keys = keys_under(self._client, self._bucket, self._inside)
            if self._inside + MANIFEST in keys:
                there = self._client.get_object(Bucket=self._bucket, Key=self._inside + MANIFEST)["Body"].read()
                if not _same_run(there, self._folder / MANIFEST):
                    raise BadInputError(f"{self.uri}: a run is already there; choose another place")
                self._copied = {key.removeprefix(self._inside): _UNKNOWN for key in keys}
            probe = f"{self._inside}.ramptrace-can-write"
            self._client.put_object(Bucket=self._bucket, Key=probe, Body=b"")
            self._client.delete_object(Bucket=self._bucket, Key=probe)

    def sync(self) -> int:
        """Copy what is new or changed, delete what went, and return how many objects that took.

        After an error it may be called again: what was not copied yet is still to be.
        """
        present = stamps(self._folder)
        written, deleted = changes(self._copied, present)
        with refusals(self.uri, _WRITE), ThreadPoolExecutor(AT_ONCE) as pool:
            for name in pool.map(self._put, written):
                if name is not None:
                    self._copied[name] = present[name]
            for name in pool.map(self._delete, deleted):
                del self._copied[name]
        return len(written) + len(deleted)

    def _put(self, name: str) -> str | None:
        try:
            content = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        self._client.put_object(Bucket=self._bucket, Key=self._inside + name, Body=content, ContentType=kind)
        return name

    def _delete(self, name: str) -> str:
        self._client.delete_object(Bucket=self._bucket, Key=self._inside + name)
        return name

    def put(self, *names: str) -> None:
        """Copy the files and folders called `names` as they are now, whatever was copied before."""
        with refusals(self.uri, "s3:PutObject"):
            for name in stamps(self._folder):
                if name.split("/")[0] in names:
                    self._put(name)


def _same_run(there: bytes, here: Path) -> bool:
    try:
        one, other = (msgspec.json.decode(content)["run_id"] for content in (there, here.read_bytes()))
    except (OSError, msgspec.MsgspecError, LookupError, TypeError):
        return False
    return bool(one == other)
