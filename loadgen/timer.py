"""A timer for one waiting greenlet, finer than the event loop's own.

libev rounds its timers up to whole milliseconds, which alone makes every request about a millisecond late. On Linux
the kernel's timerfd wakes the loop within some tens of microseconds; elsewhere the loop's timer has to do.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from typing import Any

import gevent
import gevent.event

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
_READABLE = 1


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSpec(ctypes.Structure):
    _fields_ = (("interval", _TimeSpec), ("value", _TimeSpec))


class LoopTimer:
    """The event loop's own timer."""

    def __init__(self) -> None:
        self._over = False
        self._event = gevent.event.Event()

    def wait(self, delay_us: int) -> None:
        """Wait so long, or until `nudge` or `wake`."""
        if not self._over:
            self._event.clear()
            self._event.wait(delay_us / 1e6)

    def nudge(self) -> None:
        """End the wait under way, if there is one."""
        self._event.set()

    def wake(self) -> None:
        """End the wait under way, and every later one at once."""
        self._over = True
        self._event.set()

    def close(self) -> None:
        """Nothing to give back."""


class KernelTimer:
    """Linux's timerfd. Raises `OSError` where there is none."""

    def __init__(self) -> None:
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        create = getattr(self._libc, "timerfd_create", None)
        self._fd: int = create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC) if create else -1
        if self._fd < 0:
            raise OSError("no timerfd")
        self._hub = gevent.get_hub()
        self._watcher = self._hub.loop.io(self._fd, _READABLE)
        self._woken = self._waiting = False

    def wait(self, delay_us: int) -> None:
        """Wait so long, or until `nudge` or `wake`."""
        if self._woken:
            return
        self._set(max(1, delay_us))
        self._waiting = True
        self._hub.wait(self._watcher)
        self._waiting = False
        with suppress(BlockingIOError):
            os.read(self._fd, 8)

    def nudge(self) -> None:
        """End the wait under way, if there is one."""
        if self._waiting and self._fd >= 0:
            self._set(1)

    def wake(self) -> None:
        """End the wait under way, and every later one at once."""
        self._woken = True
        if self._fd >= 0:
            self._set(1)

    def close(self) -> None:
        """Close the file descriptor; the timer is not used any more."""
        self._watcher.close()
        os.close(self._fd)
        self._fd = -1

    def _set(self, delay_us: int) -> None:
        seconds, us = divmod(delay_us, 1_000_000)
        spec = _TimerSpec(_TimeSpec(0, 0), _TimeSpec(seconds, us * 1000))
        if self._libc.timerfd_settime(self._fd, 0, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")


def make_timer() -> LoopTimer | KernelTimer:
    """Return the finest timer that this system has."""
    if sys.platform.startswith("linux"):
        with suppress(OSError):
            return KernelTimer()
    return LoopTimer()
