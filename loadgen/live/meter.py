"""Counts what a replay does, as it does it, for whoever looks on. Pure: instants are passed in."""

from __future__ import annotations

from collections.abc import Callable

from loadgen.histogram import Histogram
from loadgen.live.series import Bin, Series
from loadgen.recorder import AS_RECORDED, RequestRow
from traces.units import US_PER_S

WHOLE_BINS, RECENT_BINS = 600, 900
_WIDTHS_S = (1, 2, 5, 10, 20, 60)
_WINDOWS_KEPT = 300
_LATE_SHARE = 0.01


class Meter:
    """Follows one stretch of a replay: the whole of it coarsely and its end finely, on the endpoint's time axis.

    The axis begins at the trace's start (`t0_us`, client µs) and runs `time_scale` times faster than the client. Costs
    a few µs per request, and the same memory whether a run lasts minutes or days. What is due before
    `measured_from_us` is warm-up: it is drawn, and not judged.
    """

    def __init__(self, *, t0_us: int, time_scale: float, limit_us: int, measured_from_us: int) -> None:
        self.t0_us = t0_us
        self.time_scale = time_scale
        self.lag = Histogram()
        self._measured_from_us = measured_from_us
        width_us = next((w for w in _WIDTHS_S if w >= time_scale / 4), _WIDTHS_S[-1]) * US_PER_S
        self.whole = Series(width_us, WHOLE_BINS, rolling=False)
        self.recent = Series(width_us, RECENT_BINS, rolling=True)
        self.late = LateWindows(limit_us)

    def axis_us(self, client_us: int) -> int:
        """Return where an instant lies on the axis."""
        return round((client_us - self.t0_us) * self.time_scale)

    def due(self, due_us: int) -> None:
        """Count a request whose time has come."""
        self._mark(due_us, _due)

    def sent(self, due_us: int, sent_us: int) -> None:
        """Count a request whose first byte has gone."""
        lag_us = max(0, sent_us - due_us)
        if due_us >= self._measured_from_us:
            self.lag.add(lag_us)
            self.late.sent(due_us, lag_us)

        def mark(found: Bin) -> None:
            found.sent += 1
            if found.lag_us is None or lag_us > found.lag_us:
                found.lag_us = lag_us

        self._mark(sent_us, mark)

    def ended(self, row: RequestRow) -> None:
        """Count an attempt that has ended; its latency, up to the first token if it streamed, is from due."""
        good = row.outcome == "ok"
        if row.done is None:
            return
        self._mark(row.done, _ok if good or row.error_kind == AS_RECORDED else _failed)
        answered = row.first_token if row.first_token is not None else row.done
        if good:
            latency_us = max(0, answered - row.due)
            self._mark(row.due, lambda found: found.latency.add(latency_us))

    def _mark(self, client_us: int, change: Callable[[Bin], None]) -> None:
        at_us = self.axis_us(client_us)
        for series in (self.whole, self.recent):
            found = series.at(at_us)
            if found is not None:
                change(found)


class LateWindows:
    """The share of seconds in which more than 1 % of the requests went out later than the limit (client µs)."""

    def __init__(self, limit_us: int) -> None:
        self._limit_us = limit_us
        self._open: dict[int, list[int]] = {}
        self._closed = self._closed_bad = 0

    def sent(self, due_us: int, lag_us: int) -> None:
        """Count one request in the second in which it was due."""
        window = self._open.setdefault(due_us // US_PER_S, [0, 0])
        window[0] += 1
        window[1] += lag_us > self._limit_us
        if len(self._open) > _WINDOWS_KEPT:
            oldest = min(self._open)
            self._closed += 1
            self._closed_bad += _is_bad(self._open.pop(oldest))

    @property
    def share(self) -> float:
        """Of the seconds in which anything was due."""
        total = self._closed + len(self._open)
        bad = self._closed_bad + sum(map(_is_bad, self._open.values()))
        return bad / total if total else 0.0


def _is_bad(window: list[int]) -> bool:
    return window[1] > _LATE_SHARE * window[0]


def _due(found: Bin) -> None:
    found.due += 1


def _ok(found: Bin) -> None:
    found.ok += 1


def _failed(found: Bin) -> None:
    found.failed += 1
