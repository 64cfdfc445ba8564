"""Two or more runs: arms by condition, the first against every other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from analysis.analyse import RunAnalysis
from analysis.arms import arm_name, arms_of
from analysis.comparable import confounders, refuse_incomparable
from analysis.controlled import ControlledPair, controlled_pairs
from analysis.identify import ASSUMPTIONS
from analysis.pairs import Pair, pair_of
from traces.errors import BadInputError


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The first arm against every other; `confounders` are differences besides the one under test."""

    runs: tuple[RunAnalysis, ...]
    pairs: tuple[Pair, ...]
    confounders: tuple[str, ...]
    assumptions: tuple[str, ...]
    controls: tuple[RunAnalysis, ...] = ()
    controlled: tuple[ControlledPair, ...] = ()


def compare_runs(runs: Sequence[RunAnalysis], controls: Sequence[RunAnalysis] = ()) -> Comparison:
    """Return the comparison of runs, the first (or the first's condition) being "before".

    Runs of equal condition form one arm, and so do controls. What cannot be compared is a BadInputError that says why.
    """
    if len(runs) < 2:
        raise BadInputError("compare needs two runs or more: ramptrace compare BEFORE AFTER")
    refuse_incomparable(runs)
    arms = arms_of(runs)
    if len(arms) < 2:
        name = runs[0].manifest.condition
        shared = "the same run twice" if name is None else f'all runs have the condition "{name}"'
        raise BadInputError(f"{shared}: nothing to compare; name the arms with [run] condition in the scenario")
    control_arms = arms_of(controls)
    for arm in (*arms, *control_arms):
        if not arm.events:
            paths = [str(run.path) for run in (*runs, *controls) if arm.name == arm_name(run)]
            raise BadInputError(
                f"{', '.join(paths)}: no scale-out that reached capacity; it cannot be compared (see ramptrace analyse)"
            )
    return Comparison(
        runs=tuple(runs),
        pairs=tuple(pair_of(arms[0], other) for other in arms[1:]),
        confounders=tuple(confounders(runs)),
        assumptions=ASSUMPTIONS,
        controls=tuple(controls),
        controlled=controlled_pairs(arms, runs, control_arms, controls) if controls else (),
    )
