"""Reading ahead: the next items are made in threads while the last one is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import Full, Queue
from typing import Final, TypeVar

Item = TypeVar("Item")
_DEPTH: Final = 2
_AT_ONCE: Final = 2
_PATIENCE_S: Final = 0.1


class _End:
    """What the thread sends last, with the error that ended it, if one did."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


@contextmanager
def ahead(items: Iterator[Item]) -> Iterator[Iterator[Item]]:
    """Return the items, made up to two in advance by a thread that ends with the context. Errors come at their place.

    Not for a process that gevent has patched: who waits for the items may be a thread of its own.
    """
    queue: Queue[Item | _End] = Queue(_DEPTH)
    unwanted = threading.Event()

    def make() -> None:
        end = _End()
        try:
            for item in items:
                if not _put(queue, item, unwanted):
                    return
        except BaseException as error:
            # It is raised where the item would have come.
            end = _End(error)
        _put(queue, end, unwanted)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        yield _taken(queue)
    finally:
        unwanted.set()
        thread.join()


@contextmanager
def made_ahead(makers: Iterator[Callable[[], Item]]) -> Iterator[Iterator[Item]]:
    """Return what the makers make, in their order; up to two are at work while the last result is used."""
    with ThreadPoolExecutor(_AT_ONCE) as pool, ahead(pool.submit(make) for make in makers) as promised:
        yield (each.result() for each in promised)


def _put(queue: Queue[Item | _End], item: Item | _End, unwanted: threading.Event) -> bool:
    while not unwanted.is_set():
        try:
            queue.put(item, timeout=_PATIENCE_S)
        except Full:
            continue
        return True
    return False


def _taken(queue: Queue[Item | _End]) -> Iterator[Item]:
    while not isinstance(item := queue.get(), _End):
        yield item
    if item.error is not None:
        raise item.error
