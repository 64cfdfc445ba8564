"""Objects in S3, fetched into a temporary folder: a trace is read more than once, and Parquet is read from its end."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from traces.errors import BadInputError
from traces.s3 import AT_ONCE, bucket_and_key, download, keys_under, refusals, s3_client


class Fetched:
    """Objects as local files; they are deleted with this."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ramptrace-s3-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.paths: list[Path] = []


def fetch(uri: str, endpoint_url: str | None = None) -> Fetched:
    """Return the object at `s3://BUCKET/KEY`, or all those under that prefix, as local files in the order of keys."""
    bucket, key = bucket_and_key(uri, "s3://BUCKET/KEY or s3://BUCKET/PREFIX/")
    with refusals(uri, "s3:ListBucket and s3:GetObject"):
        client = s3_client(endpoint_url)
        keys = _keys(client, bucket, key)
        if not keys:
            raise BadInputError(f"{uri}: no object with this key or prefix; list what is there with `aws s3 ls`")
        return _download(client, bucket, keys)


def _keys(client: Any, bucket: str, key: str) -> list[str]:
    """Return the object of this very key, else those in the folder of this name, else all that begin with it."""
    found = keys_under(client, bucket, key)
    if key in found:
        return [key]
    shown = [each for each in found if not PurePosixPath(each).name.startswith((".", "_"))]
    inside = key.rstrip("/") + "/" if key else ""
    return [each for each in shown if each.startswith(inside)] or shown


def _download(client: Any, bucket: str, keys: list[str]) -> Fetched:
    fetched = Fetched()
    # Keys are not paths: each of their folders is given a number, so that none can lead elsewhere.
    folders = {parent: fetched.folder / f"{n:05d}" for n, parent in enumerate(sorted({_parent(key) for key in keys}))}
    for folder in folders.values():
        folder.mkdir()

    def one(key: str) -> Path:
        target = folders[_parent(key)] / key.rpartition("/")[2].replace("\0", "_")
        download(client, bucket, key, target)
        return target

    with ThreadPoolExecutor(AT_ONCE) as pool:
        fetched.paths = list(pool.map(one, keys))
    return fetched


def _parent(key: str) -> str:
    return key.rpartition("/")[0]
