"""The first call of a platform, and what its failure means to a user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from loadgen.collect.base import (
    DeniedError,
    ExpiredError,
    MalformedError,
    SourceError,
    SourceUnreachableError,
)
from traces.errors import BadInputError, UnreachableError

_PATIENCE_S = 20.0


async def first_call(call: Callable[[], Awaitable[None]], what: str, url: str | None) -> list[str]:
    """Make a platform's first call; returns what to warn of. Raises `BadInputError` or `UnreachableError`.

    `what` is the watched thing in a few words, `url` the address that replaces the platform's own.
    """
    where = f"; check that something listens at {url}" if url else "; check the network, the region and the proxy"
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await call()
    except TimeoutError:
        raise UnreachableError(f"{what}: no answer within {_PATIENCE_S:.0f} s{where}") from None
    except SourceUnreachableError as error:
        raise UnreachableError(f"{what}: {error}{where}") from error
    except ExpiredError as error:
        raise BadInputError(f"{what}: the credentials are not valid any more ({error}); renew them") from error
    except DeniedError as error:
        return [f"{what}: {error}; going on with what may be read"]
    except MalformedError as error:
        raise BadInputError(f"{what}: {error}; check the names in [collect] and the region") from error
    except SourceError as error:
        return [f"{what}: {error}"]
    return []
