"""Two arms side by side: representative scale-outs, what the pair identifies, and what the statistics say."""

from __future__ import annotations

import msgspec

from analysis.analyse import RunAnalysis
from analysis.arms import Arm
from analysis.cache import CacheOdds
from analysis.counterfactual import ShapleyRange, Split
from analysis.explain import Change, explained
from analysis.flows import SharedFit
from analysis.identify import Pull, identify
from analysis.records import Length
from analysis.verdicts import Outcomes, Statistic, statistics_of
from traces.units import US_PER_S


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
    shared: SharedFit | None
    odds: tuple[CacheOdds, ...]
    explained: tuple[Change, ...]
    statistics: dict[str, Statistic]
    notes: tuple[str, ...]

    @property
    def delta_us(self) -> int:
        """By how much the start-up (decision → in service) became shorter."""
        return self.startup_before_us - self.startup_after_us


def pair_of(before: Arm, after: Arm) -> Pair:
    """Return the two arms' representative scale-outs side by side, with what the pair identifies."""
    b, a = before.representative(), after.representative()
    assert b.scale_out.startup_us is not None
    assert a.scale_out.startup_us is not None
    identified = identify(before, after, b, a)
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
        provisioning_us=identified.provisioning_us,
        pull=identified.pull,
        split=identified.split,
        sensitivity=identified.sensitivity,
        shared=identified.shared,
        odds=identified.odds,
        explained=explained(b.scale_out, a.scale_out),
        statistics=statistics_of(outcomes_of(before), outcomes_of(after)),
        notes=identified.notes,
    )


def outcomes_of(arm: Arm) -> Outcomes:
    """Return an arm's times in seconds, per scale-out: (time, reached) where reached False is right-censored.

    A scale-out that goes on with a burst has the time to capacity of the burst, which counts once: with its last.
    """
    events = [(e.run, e.scale_out) for e in arm.events]
    startups = [(e.scale_out.startup_us, True) for e in arm.events]
    startups += [(run.seen_until_us - s.decision.at_us, False) for run, s in arm.censored if run.seen_until_us]
    bursts: dict[tuple[str, int], tuple[int, bool]] = {}
    for run, s in sorted([*events, *arm.censored], key=lambda item: item[1].index):
        if s.onset is None:
            continue
        if s.time_to_capacity_us is not None:
            bursts[str(run.path), s.burst] = (s.time_to_capacity_us, True)
        elif run.seen_until_us is not None:
            bursts[str(run.path), s.burst] = (run.seen_until_us - s.onset.at_us, False)
    phases: dict[str, list[float]] = {}
    for event in arm.events:
        for row in event.scale_out.phases:
            if row.parent is None and row.phase != "unattributed":
                phases.setdefault(row.phase, []).append(row.critical_us / US_PER_S)
    whole = {name: values for name, values in phases.items() if len(values) == len(arm.events)}
    return Outcomes(
        startup=tuple((us / US_PER_S, hit) for us, hit in startups if us is not None),
        time_to_capacity=tuple((us / US_PER_S, hit) for us, hit in bursts.values()),
        phases=whole,
    )
