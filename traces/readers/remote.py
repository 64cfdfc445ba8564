"""Objects in S3, fetched into a temporary folder: a trace is read more than once, and Parquet is read from its end.

botocore is used without asyncio, so that a replay (gevent) can read from S3 too; whoever needs Locust in the same
process imports it first. Credentials, region and endpoint come from the standard AWS chain.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, Final

from traces.errors import BadInputError, UnreachableError
from traces.readers.lines import first_line

_AT_ONCE: Final = 8
_PIECE_BYTES: Final = 1 << 20


class Fetched:
    """Objects as local files; they are deleted with this."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ramptrace-s3-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.paths: list[Path] = []


def fetch(uri: str, endpoint_url: str | None = None) -> Fetched:
    """Return the object at `s3://BUCKET/KEY`, or all those under that prefix, as local files in the order of keys."""
    from botocore import exceptions

    bucket, _, key = uri.removeprefix("s3://").partition("/")
    if not bucket:
        raise BadInputError(f"{uri}: no bucket; expected s3://BUCKET/KEY or s3://BUCKET/PREFIX/")
    try:
        client = _client(endpoint_url)
        keys = _keys(client, bucket, key)
        if not keys:
            raise BadInputError(f"{uri}: no object with this key or prefix; list what is there with `aws s3 ls`")
        return _download(client, bucket, keys)
    except exceptions.ClientError as error:
        raise _refused(uri, error) from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError, exceptions.ProfileNotFound) as error:
        raise BadInputError(
            f"{uri}: no AWS credentials ({first_line(error)}); set AWS_PROFILE, or the keys in the environment"
        ) from error
    except (exceptions.HTTPClientError, exceptions.EndpointConnectionError) as error:
        raise UnreachableError(
            f"{uri}: S3 does not answer ({first_line(error)}); check the network and AWS_ENDPOINT_URL"
        ) from error
    except (exceptions.BotoCoreError, ValueError) as error:
        raise BadInputError(
            f"{uri}: cannot be read from S3 ({first_line(error)}); check its name and AWS_ENDPOINT_URL"
        ) from error
    except OSError as error:
        raise BadInputError(
            f"{uri}: cannot be kept in {tempfile.gettempdir()} ({first_line(error)}); set TMPDIR"
        ) from error


def _client(endpoint_url: str | None) -> Any:
    from botocore.config import Config
    from botocore.session import get_session

    session = get_session()
    region = session.get_config_variable("region") or "us-east-1"
    config = Config(retries={"mode": "standard", "max_attempts": 3}, max_pool_connections=_AT_ONCE, connect_timeout=10)
    return session.create_client("s3", region_name=region, endpoint_url=endpoint_url, config=config)


def _keys(client: Any, bucket: str, key: str) -> list[str]:
    """Return the object of this very key, else those in the folder of this name, else all that begin with it."""
    pages: Iterable[dict[str, Any]] = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
    found = sorted(entry["Key"] for page in pages for entry in page.get("Contents", []) if entry["Size"])
    found = [each for each in found if not each.endswith("/")]
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
        body = client.get_object(Bucket=bucket, Key=key)["Body"]
        with target.open("wb") as file:
            for piece in body.iter_chunks(_PIECE_BYTES):
                file.write(piece)
        return target

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        fetched.paths = list(pool.map(one, keys))
    return fetched


def _parent(key: str) -> str:
    return key.rpartition("/")[0]


def _refused(uri: str, error: Any) -> BadInputError:
    code = error.response.get("Error", {}).get("Code", "unknown")
    needed = "s3:ListBucket and s3:GetObject"
    return BadInputError(f"{uri}: S3 refused ({code}); check the name, the region, and that {needed} are allowed")
