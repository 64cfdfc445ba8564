"""S3 by botocore without asyncio, so that a replay (gevent) can use it too; whoever needs Locust imports it first.

Credentials, region and endpoint come from the standard AWS chain.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from traces.errors import BadInputError, UnreachableError, first_line

S3_PREFIX: Final = "s3://"
AT_ONCE: Final = 8
"""How many objects are moved side by side."""

_PIECE_BYTES: Final = 1 << 20


def bucket_and_key(uri: str, expected: str) -> tuple[str, str]:
    """Split `s3://BUCKET/KEY`; an address without a bucket is a `BadInputError` that says what is `expected`."""
    bucket, _, key = uri.removeprefix(S3_PREFIX).partition("/")
    if not bucket:
        raise BadInputError(f"{uri}: no bucket; expected {expected}")
    return bucket, key


def s3_client(endpoint_url: str | None = None) -> Any:
    """Return a client that tries three times."""
    from botocore.config import Config
    from botocore.session import get_session

    session = get_session()
    region = session.get_config_variable("region") or "us-east-1"
    config = Config(retries={"mode": "standard", "max_attempts": 3}, max_pool_connections=AT_ONCE, connect_timeout=10)
    return session.create_client("s3", region_name=region, endpoint_url=endpoint_url, config=config)


def keys_under(client: Any, bucket: str, prefix: str) -> list[str]:
    """Return the keys of the objects, not empty, that begin with `prefix`, in order."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    found = sorted(entry["Key"] for page in pages for entry in page.get("Contents", []) if entry["Size"])
    return [key for key in found if not key.endswith("/")]


def download(client: Any, bucket: str, key: str, target: Any) -> None:
    """Write one object to the path `target`."""
    body = client.get_object(Bucket=bucket, Key=key)["Body"]
    with target.open("wb") as file:
        for piece in body.iter_chunks(_PIECE_BYTES):
            file.write(piece)


@contextmanager
def refusals(uri: str, needed: str) -> Iterator[None]:
    """Turn what botocore raises into one clear line about `uri`; `needed` names the permissions it takes."""
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        raise BadInputError(
            f"{uri}: S3 refused ({code}); check the name, the region, and that {needed} are allowed"
        ) from error
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
            f"{uri}: cannot be reached in S3 ({first_line(error)}); check its name and AWS_ENDPOINT_URL"
        ) from error
    except OSError as error:
        raise BadInputError(
            f"{uri}: cannot be kept in {tempfile.gettempdir()} ({first_line(error)}); set TMPDIR"
        ) from error
