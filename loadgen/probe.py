"""How the client itself fares: its loop's latency, and its thread's share of the processor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gevent

from loadgen.histogram import Histogram

_PROBE_S = 0.005


class HubProbe:
    """Measures how late the hub wakes a greenlet that sleeps 5 ms: the client's own stalls, whatever their cause.

    Where the system tells (Linux), also the share of time in which the hub's thread ran, and in which it could have
    run but other work had the processor.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.all = Histogram()
        self._worst_us = 0
        self._greenlet: gevent.Greenlet | None = None
        self._began: tuple[int, int | None, int | None] | None = None
        self._looked: tuple[int, int | None, int | None] | None = None
        self.cpu_share: float | None = None
        self.cpu_wait_share: float | None = None

    def start(self) -> None:
        """Begin to measure."""
        self._began = (self._now_us(), *_thread_times_ns())
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Stop measuring."""
        if self._greenlet is None or self._began is None:
            return
        self._greenlet.kill()
        began_us, ran_ns, waited_ns = self._began
        length_ns = max(1, self._now_us() - began_us) * 1000
        now_ran_ns, now_waited_ns = _thread_times_ns()
        if ran_ns is not None and now_ran_ns is not None:
            self.cpu_share = round((now_ran_ns - ran_ns) / length_ns, 4)
        if waited_ns is not None and now_waited_ns is not None:
            self.cpu_wait_share = round((now_waited_ns - waited_ns) / length_ns, 4)

    def take_cpu_shares(self) -> tuple[float | None, float | None]:
        """Return the shares of time since the last call (or the start) in which the thread ran, and waited to run."""
        if self._began is None:
            return None, None
        then, now = self._looked or self._began, (self._now_us(), *_thread_times_ns())
        self._looked = now
        length_ns = max(1, now[0] - then[0]) * 1000
        ran, waited = (
            None if a is None or b is None else (b - a) / length_ns for a, b in zip(then[1:], now[1:], strict=True)
        )
        return ran, waited

    def take_worst_us(self) -> int:
        """Return the worst latency (µs) since the last call."""
        worst, self._worst_us = self._worst_us, 0
        return worst

    def _run(self) -> None:
        while True:
            before = self._now_us()
            gevent.sleep(_PROBE_S)
            late_us = max(0, self._now_us() - before - round(_PROBE_S * 1e6))
            self.all.add(late_us)
            self._worst_us = max(self._worst_us, late_us)


def _thread_times_ns() -> tuple[int | None, int | None]:
    """Return how long this thread has run, and waited for a processor (Linux's schedstat), in ns."""
    try:
        ran, waited, _ = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None, None
    return int(ran), int(waited)
