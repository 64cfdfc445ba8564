"""Work outside the gevent hub, and an interpreter that does not get in its way."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import gevent

T = TypeVar("T")

_SWITCH_INTERVAL_S = 0.0005


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


@contextmanager
def quiet_interpreter() -> Iterator[None]:
    """Keep the interpreter's own pauses short while requests are timed.

    What exists at the start is taken out of the garbage collector's sight, so that a collection looks at little; a
    native thread that computes gives the lock back within half a millisecond instead of five.
    """
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
