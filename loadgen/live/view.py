"""What the live page is told: one JSON document, whole at first and then only what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import gevent.lock

from loadgen.live.rate import unit_rate
from loadgen.live.scaling import Level, ScaleOut, Scaling, scaling
from loadgen.live.series import Series
from loadgen.live.shards import RequestReader
from loadgen.live.sightings import SightingReader
from loadgen.live.units import Unit
from loadgen.native import in_thread
from traces.errors import RamptraceError

if TYPE_CHECKING:
    from loadgen.host import ReplayHost
    from loadgen.session import ReplaySession

Span = Literal["whole", "recent"]

MOST_SCALE_OUTS: Final = 20
MOST_UNITS: Final = 16
"""The page shows the newest scale-outs, and so many units of each; the tables of the run hold all of them."""
_MOST_LEVELS: Final = 600
_NO_SCALING: Final = Scaling(scale_outs=(), levels=(), alarm_us=None)


class LiveView:
    """Tells about a host's present session, from its memory and from the tables that its collector writes.

    `document` is computed outside the gevent hub, only while somebody looks, for one at a time.
    """

    def __init__(self, host: ReplayHost) -> None:
        self._host = host
        self._one_at_a_time = gevent.lock.BoundedSemaphore()
        self._session: ReplaySession | None = None
        self._number = 0
        self._reader: SightingReader | None = None
        self._requests: RequestReader | None = None
        self._scaling = _NO_SCALING

    def document(self, since: str, span: Span) -> dict[str, Any]:
        """Return what changed after the document whose `cursor` was `since` (empty: everything)."""
        with self._one_at_a_time:
            found: dict[str, Any] = in_thread(self._document, since, span)
        return found

    def scaling(self) -> tuple[Scaling, int]:
        """Return how the platform has scaled so far, and the present instant on the run's axis."""
        with self._one_at_a_time:
            in_thread(self._refresh)
        return self._scaling, self._now_us()

    def load(self) -> tuple[Series | None, float]:
        """Return the whole run's series (None before there is one) and the time scale."""
        meter = None if self._host.session is None else self._host.session.meter
        return (None, 1.0) if meter is None else (meter.whole, meter.time_scale)

    def _refresh(self) -> None:
        session = self._host.session
        if session is not self._session:
            self._session, self._reader, self._scaling = session, None, _NO_SCALING
            self._number += 1
        meter = None if session is None else session.meter
        if session is None or meter is None:
            return
        if self._reader is None:
            self._reader = SightingReader(session.run, session.manifest.clock, meter.t0_us)
            self._requests = RequestReader(session.run) if session.sends_elsewhere else None
        if self._requests is not None:
            self._requests.feed(meter)
        if self._reader.poll():
            self._scaling = scaling(self._reader.seen(), self._reader.units_at_start)

    def _document(self, since: str, span: Span) -> dict[str, Any]:
        self._refresh()
        session, meter = self._session, None if self._session is None else self._session.meter
        found: dict[str, Any] = {"schema": 1, "now": self._now(), "run": None}
        if session is None or meter is None or self._reader is None:
            return found | {"cursor": f"{self._number}", "whole": True}
        series = meter.whole if span == "whole" else meter.recent
        told, told_scaling = _told(since, f"{self._number}.{span}.{series.generation}")
        cursor = f"{self._number}.{span}.{series.generation}.{series.version}.{self._reader.version}"
        found |= {"cursor": cursor, "whole": told == 0, "run": self._run()}
        found["bins"] = {
            "width_s": series.width_us / 1e6,
            **series.columns(told, latency_scale=meter.time_scale),
        }
        both = (meter.recent, meter.whole)
        rate = unit_rate(self._scaling.scale_outs, both, self._now_us())
        found["unit_rate"] = None if rate is None else float(f"{rate:.4g}")
        if told_scaling != self._reader.version or not told:
            found["scaling"] = _scaling_entry(self._scaling)
        return found

    def _run(self) -> dict[str, Any]:
        session = self._session
        assert session is not None
        manifest = session.manifest
        length = session.progress().length_us
        return {
            "id": manifest.run_id,
            "directory": str(session.run.path),
            "name": manifest.name,
            "condition": manifest.condition,
            "emulated": manifest.emulated,
            "time_scale": manifest.time_scale,
            "length_s": None if length is None else _s(round(length * manifest.time_scale)),
            "limits_ms": [
                session.scenario.verdict.degraded_lag_p99_ms,
                session.scenario.verdict.invalid_lag_p99_ms,
            ],
        }

    def _now_us(self) -> int:
        session = self._host.session
        if session is None or session.meter is None:
            return 0
        return session.meter.axis_us(session.manifest.finished_us or session.clock.now_us())

    def _now(self) -> dict[str, Any]:
        host, session = self._host, self._session
        error = host.error
        told = None if error is None else str(error) if isinstance(error, RamptraceError) else "internal error: see log"
        if session is None or session.meter is None:
            stage = "failed" if error is not None else "idle" if session is None else "preparing"
            return {"stage": stage, "error": told, "t_s": None}
        manifest, progress = session.manifest, session.progress()
        so_far = session.verdict_so_far()
        closed = manifest.verdict
        judged = closed if closed is not None else so_far
        t_us = self._now_us()
        return {
            "stage": _stage(session, failed=error is not None),
            "error": told,
            "t_s": _s(t_us),
            "planned": progress.planned,
            "started": progress.started,
            "in_flight": progress.in_flight,
            "lag_p99_ms": _lag_ms(progress.lag_p99_us) if judged is None else judged["lag_p99_ms"],
            "verdict": None if judged is None else {"status": judged["status"], "reasons": judged["reasons"]},
            "so_far": closed is None,
            "collector": manifest.collector,
        }


def _lag_ms(us: int | None) -> float | None:
    return None if us is None else us / 1e3


def _stage(session: ReplaySession, *, failed: bool) -> str:
    """Return where a session stands, in a word."""
    if failed:
        return "failed"
    manifest, progress = session.manifest, session.progress()
    if manifest.state == "running" and session.load_ended.is_set():
        return "tail"
    if manifest.state != "running":
        return manifest.state
    if progress.elapsed_us < 0:
        return "starting"
    return "draining" if progress.length_us is not None and progress.elapsed_us > progress.length_us else "running"


def _told(since: str, prefix: str) -> tuple[int, int]:
    """Return the versions of bins and of scaling that a cursor stands for; (0, -1) for one of another series."""
    head, _, versions = since.rpartition(f"{prefix}.")
    bins, _, seen = versions.partition(".")
    if head or not since.startswith(f"{prefix}.") or not bins.isdecimal() or not seen.isdecimal():
        return 0, -1
    return int(bins), int(seen)


def _scaling_entry(found: Scaling) -> dict[str, Any]:
    left_out = max(0, len(found.scale_outs) - MOST_SCALE_OUTS)
    return {
        "scale_outs": [_scale_out(s, n) for n, s in enumerate(found.scale_outs, 1)][left_out:],
        "left_out": left_out,
        "levels": [[_s(level.at_us), level.units] for level in _thinned(found.levels)],
        "alarm_s": _s(found.alarm_us),
    }


def _thinned(levels: tuple[Level, ...]) -> list[Level]:
    """Return at most `_MOST_LEVELS` levels, the last of each of so many equal stretches."""
    if len(levels) <= _MOST_LEVELS:
        return list(levels)
    width = (levels[-1].at_us - levels[0].at_us) // _MOST_LEVELS + 1
    return list({(level.at_us - levels[0].at_us) // width: level for level in levels}.values())


def _scale_out(found: ScaleOut, number: int) -> dict[str, Any]:
    return {
        "number": number,
        "begun_s": _s(found.begun_us),
        "alarm_s": _s(found.alarm_us),
        "decision_s": _s(found.decision_us),
        "capacity_s": _s(found.capacity_us),
        "before": found.units_before,
        "desired": found.desired,
        "units": [_unit(unit) for unit in found.units[:MOST_UNITS]],
        "more_units": max(0, len(found.units) - MOST_UNITS),
    }


def _unit(unit: Unit) -> dict[str, Any]:
    return {
        "id": unit.unit_id,
        "now": unit.now,
        "since_s": _s(unit.since_us),
        "download_s": _s(unit.download_us),
        "phases": [
            {
                "name": phase.name,
                "start_s": _s(phase.start_us),
                "end_s": _s(phase.end_us),
                "lo_s": _s(phase.lo_us),
                "hi_s": _s(phase.hi_us),
                "inside": phase.inside,
            }
            for phase in unit.phases
        ],
    }


def _s(us: int | None) -> float | None:
    return None if us is None else round(us / 1e6, 2)
