"""Two arms side by side: how the start-up changed, and what of the pull the pair identifies.

On SageMaker neither provisioning nor the image pull is observable: one run shows only the window
W = container start − decision = P + max(I, M) with provisioning P, pull I and the reported download M. A pair of runs,
one without and one with the image cached, identifies the pull under stated assumptions (`ASSUMPTIONS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from analysis.analyse import RunAnalysis
from analysis.counterfactual import ShapleyRange, Split, shapley_range, telescope
from analysis.records import Length, ScaleOutResult, UnitTimes
from traces.units import format_duration

ASSUMPTIONS: Final = (
    (
        "Provisioning is exchangeable between the arms: a machine takes as long to come up with the image cached as "
        "without. How far the units of the two runs differ is in the bounds."
    ),
    "With the image cached, the model download was the last to finish (the pull took no longer than it).",
    "Pull and download start together when the machine is up, and the container starts when the last of them ends.",
)


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """The image pull before and after; `at` None: only bounded."""

    before_us: int | None
    before_lo_us: int
    before_hi_us: int
    after_us: int
    after_lo_us: int
    after_hi_us: int


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """The baseline arm against one other arm. Lengths in µs, endpoint time; None: not identified."""

    before: str
    after: str
    runs_before: tuple[RunAnalysis, ...]
    runs_after: tuple[RunAnalysis, ...]
    startup_before_us: int
    startup_after_us: int
    capacity_before_us: int | None
    capacity_after_us: int | None
    window_before: Length | None
    window_after: Length | None
    download_before: Length | None
    download_after: Length | None
    provisioning_us: int | None
    pull: Pull | None
    split: Split | None
    sensitivity: ShapleyRange | None
    notes: tuple[str, ...]

    @property
    def delta_us(self) -> int:
        """By how much the start-up (decision → in service) became shorter."""
        return self.startup_before_us - self.startup_after_us


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A scale-out that reached capacity, with the unit whose path is attributed."""

    run: RunAnalysis
    scale_out: ScaleOutResult
    unit: UnitTimes


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """The scale-outs of all runs of one condition."""

    name: str
    events: tuple[Event, ...]

    def representative(self) -> Event:
        """The event with the (lower) median start-up: a real one, so that its parts sum to its whole."""
        ranked = sorted(self.events, key=lambda e: (e.scale_out.startup_us or 0, e.run.manifest.run_id))
        return ranked[(len(ranked) - 1) // 2]

    def runs(self) -> list[RunAnalysis]:
        """The arm's runs, each once."""
        return list({event.run.path: event.run for event in self.events}.values())

    def units(self) -> list[UnitTimes]:
        """All new units of the arm's scale-outs."""
        return [unit for event in self.events for unit in event.scale_out.units]


def pair_of(before: Arm, after: Arm) -> Pair:
    """Return the two arms' representative scale-outs side by side, with what the pair identifies."""
    b, a = before.representative(), after.representative()
    assert b.scale_out.startup_us is not None
    assert a.scale_out.startup_us is not None
    notes: list[str] = []
    identified = _identify(before, after, b, a, notes)
    return Pair(
        before=before.name,
        after=after.name,
        runs_before=tuple(before.runs()),
        runs_after=tuple(after.runs()),
        startup_before_us=b.scale_out.startup_us,
        startup_after_us=a.scale_out.startup_us,
        capacity_before_us=b.scale_out.time_to_capacity_us,
        capacity_after_us=a.scale_out.time_to_capacity_us,
        window_before=b.unit.window,
        window_after=a.unit.window,
        download_before=b.unit.download,
        download_after=a.unit.download,
        notes=tuple(notes),
        **identified,
    )


def _identify(before: Arm, after: Arm, b: Event, a: Event, notes: list[str]) -> dict[str, Any]:
    """Return provisioning, pull, split and sensitivity as far as the pair's windows and downloads identify them.

    P = W_a − M_a, max(I_b, M_b) = W_b − P; where that exceeds M_b it is the pull.
    """
    nothing: dict[str, Any] = {"provisioning_us": None, "pull": None, "split": None, "sensitivity": None}
    missing = [
        f"{what} of {event.run.manifest.run_id}"
        for event in (b, a)
        for what, value in (
            ("the container's start", event.unit.window),
            ("the model download's length", event.unit.download),
        )
        if value is None
    ]
    if missing or b.unit.window is None or a.unit.window is None or b.unit.download is None or a.unit.download is None:
        notes.append(f"the pull cannot be told: {' and '.join(missing)} was not seen; only the totals are compared")
        return nothing
    refused = [sum(run.capacity_errors for run in arm.runs()) / len(arm.runs()) for arm in (before, after)]
    if refused[0] != refused[1]:
        notes.append(
            f"the pull cannot be told: per run the platform reported insufficient capacity {refused[0]:g}× before and "
            f"{refused[1]:g}× after, so that provisioning is not exchangeable; only the totals are compared"
        )
        return nothing
    m_b, m_a = b.unit.download.at_us, a.unit.download.at_us
    provisioning = a.unit.window.at_us - m_a
    implied = b.unit.window.at_us - provisioning
    lo, hi = _pull_bounds(before.units(), after.units())
    told = implied > m_b and lo > b.unit.download.hi_us
    if implied <= m_b:
        notes.append(
            f"the implied pull ({format_duration(max(implied, 0))}) does not exceed the download "
            f"({format_duration(m_b)}): the download hid it, so it is only bounded"
        )
    elif not told:
        notes.append(
            f"the implied pull ({format_duration(implied)}) exceeds the download ({format_duration(m_b)}) by no more "
            "than the bounds allow: the download may have hidden it, so it is only bounded"
        )
    if not told:
        lo, hi = 0, max(hi, m_b)
    group = max(implied, m_b)
    split = telescope(
        group_before=group,
        download_before=m_b,
        download_after=m_a,
        rest_before=(b.scale_out.startup_us or 0) - group,
        rest_after=(a.scale_out.startup_us or 0) - m_a,
    )
    pull = Pull(
        before_us=implied if told else None,
        before_lo_us=lo,
        before_hi_us=hi,
        after_us=0,
        after_lo_us=0,
        after_hi_us=max((u.download.hi_us for u in after.units() if u.download), default=0),
    )
    sensitivity = shapley_range(pull=implied, download_before=m_b, download_after=m_a) if told else None
    return {"provisioning_us": provisioning, "pull": pull, "split": split, "sensitivity": sensitivity}


def _pull_bounds(before: Sequence[UnitTimes], after: Sequence[UnitTimes]) -> tuple[int, int]:
    """Return the range of W_b − W_a + M_a over all pairs of units and all their hard bounds."""
    lows, highs = [], []
    for unit in before:
        for other in after:
            if unit.window is not None and other.window is not None and other.download is not None:
                lows.append(unit.window.lo_us - other.window.hi_us + other.download.lo_us)
                highs.append(unit.window.hi_us - other.window.lo_us + other.download.hi_us)
    return max(min(lows), 0), max(*highs, 0) if highs else 0
