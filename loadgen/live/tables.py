"""The live page's figures as tables: for Locust's own tab, and as CSV. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from loadgen.live.scaling import Scaling
from loadgen.live.series import Series
from loadgen.live.units import IN_SERVICE

UNIT_COLUMNS: Final = {
    "name": "New unit",
    "scale_out": "Scale-out",
    "phase": "Phase now",
    "seconds": "In it for, s",
    "total": "Since the decision, s",
}
LOAD_HEAD: Final = (
    "start_s", "width_s", "due", "sent", "ok", "failed", "ttft_from_due_p50_s", "ttft_from_due_p95_s", "lag_max_ms",
)  # fmt: skip
PHASE_HEAD: Final = ("scale_out", "unit", "phase", "part_of_the_one_before", "start_s", "end_s", "end_lo_s", "end_hi_s")


def unit_rows(found: Scaling, now_us: int) -> list[dict[str, Any]]:
    """Return a row per new unit, the newest scale-out first; times in seconds of endpoint time."""
    rows: list[dict[str, Any]] = []
    for number, scale_out in reversed(list(enumerate(found.scale_outs, 1))):
        for position, unit in enumerate(scale_out.units, 1):
            arrived = unit.now == IN_SERVICE
            end = unit.since_us if arrived else max(now_us, unit.since_us)
            rows.append(
                {
                    "name": unit.unit_id or f"scale-out {number}, unit {position} (not named yet)",
                    "scale_out": number,
                    "phase": unit.now,
                    "seconds": round((now_us - unit.since_us) / 1e6, 1),
                    "total": round((end - scale_out.decision_us) / 1e6, 1),
                }
            )
    return rows


def load_rows(series: Series | None, time_scale: float = 1.0) -> Iterator[tuple[Any, ...]]:
    """Return a row per bin of the whole run."""
    if series is None:
        return
    columns = series.columns(0, latency_scale=time_scale)
    width_s = series.width_us / 1e6
    for i, *values in zip(*columns.values(), strict=True):
        yield (i * width_s, width_s, *values)


def phase_rows(found: Scaling, _now_us: int) -> Iterator[tuple[Any, ...]]:
    """Return a row per phase of each new unit, open ones without an end."""
    for number, scale_out in enumerate(found.scale_outs, 1):
        for unit in scale_out.units:
            for phase in unit.phases:
                instants = (phase.start_us, phase.end_us, phase.lo_us, phase.hi_us)
                yield (
                    number,
                    unit.unit_id or "",
                    phase.name,
                    phase.inside,
                    *("" if at is None else round(at / 1e6, 3) for at in instants),
                )
