"""Work outside the gevent hub."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import gevent

T = TypeVar("T")


def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Return what the function returns, run in the hub's native thread pool while other greenlets go on.

    polars and Parquet in a greenlet stall all others. An exception is carried over by hand: the pool would print it.
    """

    def guarded() -> tuple[T | None, Exception | None]:
        try:
            return function(*arguments), None
        except Exception as error:
            return None, error

    value, error = gevent.get_hub().threadpool.apply(guarded)
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return] # the pool is untyped
