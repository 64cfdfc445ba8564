"""Difference in differences: what a change did beyond what happened meanwhile where it was not made.

A control is run in the same hours, with the same load, on an endpoint that the change cannot touch: an instance type
that is not eligible for it, say. What differs between *its* arms has other causes, and is taken off.

Estimand: (before − after) of the runs, minus (before − after) of the controls, by medians of scale-outs. It is the
change's own effect if, without the change, both would have moved alike (parallel trends; nothing in the data can show
that). The interval is the percentile bootstrap of all four arms at once, scale-outs drawn anew within each.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, Final, Literal

import msgspec
import numpy as np

from analysis.analyse import RunAnalysis
from analysis.arms import Arm
from analysis.comparable import instance_type, refuse_as_control
from analysis.effects import ALPHA, DRAWS, LEAST_FOR_A_VERDICT, Interval
from analysis.pairs import outcomes_of
from analysis.verdicts import Outcomes
from traces.errors import BadInputError

ASSUMED: Final = (
    "Without the change, before and after would have differed by as much in the runs as in the controls "
    "(parallel trends). Nothing that was recorded can show that."
)
_SEED: Final = 20260617
Verdict = Literal["different", "not told apart", "insufficient", "censored"]


class Controlled(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome (s) of the four arms; positive: shorter after. None: an arm is empty, or has censored times."""

    scale_outs: tuple[int, int, int, int]
    runs_s: float | None
    controls_s: float | None
    effect_s: float | None
    effect_ci_s: Interval | None
    verdict: Verdict


class ControlledPair(msgspec.Struct, frozen=True, kw_only=True):
    """A pair of arms against the controls' arms of the same conditions."""

    before: str
    after: str
    outcomes: dict[str, Controlled]
    notes: tuple[str, ...]


def difference_in_differences(
    runs: tuple[Sequence[float], Sequence[float]], controls: tuple[Sequence[float], Sequence[float]]
) -> Controlled:
    """Return the effect on one outcome, from the values (s) of each scale-out: before and after, runs and controls.

    >>> found = difference_in_differences(([520, 525, 530], [250, 258, 262]), ([600, 610, 620], [590, 595, 610]))
    >>> found.runs_s, found.controls_s, found.effect_s, found.verdict
    (267, 15, 252, 'insufficient')
    """
    arms = [np.asarray(arm, dtype=float) for arm in (*runs, *controls)]
    sizes = [len(arm) for arm in arms]
    middle = [median(arm) for arm in (*runs, *controls)]
    interval = _interval(arms) if min(sizes) >= 2 else None
    verdict: Verdict = "insufficient"
    if interval is not None and min(sizes) >= LEAST_FOR_A_VERDICT:
        verdict = "not told apart" if interval[0] <= 0 <= interval[1] else "different"
    return Controlled(
        scale_outs=(sizes[0], sizes[1], sizes[2], sizes[3]),
        runs_s=middle[0] - middle[1],
        controls_s=middle[2] - middle[3],
        effect_s=middle[0] - middle[1] - (middle[2] - middle[3]),
        effect_ci_s=interval,
        verdict=verdict,
    )


def _interval(arms: Sequence[np.ndarray]) -> Interval:
    rng = np.random.default_rng(_SEED)
    drawn = [np.median(rng.choice(arm, (DRAWS, len(arm))), axis=1) for arm in arms]
    low, high = np.quantile(drawn[0] - drawn[1] - (drawn[2] - drawn[3]), [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


def controlled_pairs(
    arms: Sequence[Arm], runs: Sequence[RunAnalysis], control_arms: Sequence[Arm], controls: Sequence[RunAnalysis]
) -> tuple[ControlledPair, ...]:
    """Return each pair of arms (the first against every other) against the controls of the same conditions.

    A pair whose condition no control has is left out. Raises `BadInputError` for controls that are none.
    """
    refuse_as_control(runs, controls)
    by_name = {arm.name: arm for arm in control_arms}
    before = arms[0].name
    both = [arm for arm in arms[1:] if before in by_name and arm.name in by_name]
    if not both:
        known = ", ".join(f'"{arm.name}"' for arm in control_arms)
        raise BadInputError(
            f'the controls need the conditions of the runs: "{before}" and "{arms[1].name}"; they have {known} '
            "(set [run] condition in the control's scenario)"
        )
    notes = _notes(runs, controls)
    return tuple(
        ControlledPair(
            before=before,
            after=after.name,
            outcomes=_outcomes([outcomes_of(arm) for arm in (arms[0], after, by_name[before], by_name[after.name])]),
            notes=notes,
        )
        for after in both
    )


def _outcomes(four: Sequence[Outcomes]) -> dict[str, Controlled]:
    found = {
        "time_to_capacity": _observed([arm.time_to_capacity for arm in four]),
        "startup": _observed([arm.startup for arm in four]),
    }
    for phase in four[0].phases:
        if all(phase in arm.phases for arm in four):
            values = [arm.phases[phase] for arm in four]
            found[f"phase:{phase}"] = difference_in_differences((values[0], values[1]), (values[2], values[3]))
    return found


def _observed(four: Sequence[Sequence[tuple[float, bool]]]) -> Controlled:
    if all(four) and all(reached for arm in four for _, reached in arm):
        values = [[at for at, _ in arm] for arm in four]
        return difference_in_differences((values[0], values[1]), (values[2], values[3]))
    counts = [len(arm) for arm in four]
    return Controlled(
        scale_outs=(counts[0], counts[1], counts[2], counts[3]),
        runs_s=None,
        controls_s=None,
        effect_s=None,
        effect_ci_s=None,
        verdict="censored" if all(four) else "insufficient",
    )


def _notes(runs: Sequence[RunAnalysis], controls: Sequence[RunAnalysis]) -> tuple[str, ...]:
    notes = [ASSUMED]
    ours, theirs = instance_type(runs[0]), instance_type(controls[0])
    if theirs is None:
        notes.append("The controls do not say which instance type they used.")
    elif ours == theirs:
        notes.append(
            f"Runs and controls have the same instance type ({theirs}): they are controls only if the change was not "
            "made for them."
        )
    return tuple(notes)


def controlled_entry(found: ControlledPair) -> dict[str, Any]:
    """Return the JSON object of a pair against its controls: lengths in seconds, positive for shorter after."""
    return {
        "before": found.before,
        "after": found.after,
        "outcomes": {
            name: {
                "n": dict(zip(("before", "after", "control_before", "control_after"), outcome.scale_outs, strict=True)),
                "runs_s": outcome.runs_s,
                "controls_s": outcome.controls_s,
                "effect_s": outcome.effect_s,
                "effect_ci_s": outcome.effect_ci_s,
                "verdict": outcome.verdict,
            }
            for name, outcome in found.outcomes.items()
        },
        "notes": list(found.notes),
    }
