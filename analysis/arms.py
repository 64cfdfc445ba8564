"""The arms of a comparison: the scale-outs of all runs of one condition."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from analysis.analyse import RunAnalysis
from analysis.records import ScaleOutResult, UnitTimes


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A scale-out that reached capacity, with the unit whose path is attributed."""

    run: RunAnalysis
    scale_out: ScaleOutResult
    unit: UnitTimes


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """The scale-outs of all runs of one condition: those that reached capacity, and those that did not in time."""

    name: str
    events: tuple[Event, ...]
    censored: tuple[tuple[RunAnalysis, ScaleOutResult], ...] = ()

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


def arm_name(run: RunAnalysis) -> str:
    """Return the arm that a run belongs to: its condition, or itself."""
    return run.manifest.condition or run.manifest.run_id


def arms_of(runs: Sequence[RunAnalysis]) -> list[Arm]:
    """Return the arms in order of appearance; a run without a condition is an arm of its own."""
    reached: dict[str, list[Event]] = {}
    censored: dict[str, list[tuple[RunAnalysis, ScaleOutResult]]] = {}
    for run in runs:
        name = arm_name(run)
        reached.setdefault(name, [])
        for found in run.scale_outs:
            if found.startup_us is None:
                censored.setdefault(name, []).append((run, found))
            else:
                unit = next((u for u in found.units if u.unit_id == found.marginal_unit), found.units[0])
                reached[name].append(Event(run=run, scale_out=found, unit=unit))
    return [
        Arm(name=name, events=tuple(events), censored=tuple(censored.get(name, ()))) for name, events in reached.items()
    ]
