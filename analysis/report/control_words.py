"""What a comparison's controls leave of a change, in words and rows: for the terminal and for the page."""

from __future__ import annotations

from typing import Final

from analysis.controlled import ControlledPair

COLUMNS: Final = ("shorter by, s", "runs", "controls", "effect", "95 %", "verdict")


def rows_of(found: ControlledPair) -> list[tuple[str, str, str, str, str, str]]:
    """Return per outcome: its name, by how much runs and controls became shorter, the effect, bounds, verdict."""
    rows: list[tuple[str, str, str, str, str, str]] = []
    for name, outcome in found.outcomes.items():
        ci = outcome.effect_ci_s
        shown = [_or_unknown(value) for value in (outcome.runs_s, outcome.controls_s, outcome.effect_s)]
        bounds = "" if ci is None else f"{ci[0]:.1f} … {ci[1]:.1f}"
        words = name.removeprefix("phase:").replace("_", " ")
        rows.append((words, shown[0], shown[1], shown[2], bounds, outcome.verdict))
    return rows


def headline_of(found: ControlledPair) -> str:
    """Return what the controls leave of the change, in a sentence."""
    told, what = found.outcomes["time_to_capacity"], "time to capacity"
    if told.effect_s is None:
        told, what = found.outcomes["startup"], "start-up"
    if told.effect_s is None:
        return "Against the controls nothing can be told: not every arm has scale-outs, all of which reached capacity."
    before, after, control_before, control_after = told.scale_outs
    counts = f"{before} + {after} scale-outs, {control_before} + {control_after} of the controls"
    if told.verdict == "insufficient":
        counts += "; too few for a verdict, which takes 4 in each of the four arms"
    change = "shorter" if told.effect_s >= 0 else "longer"
    return (
        f"Against the controls, {found.before} → {found.after}: {what} {change} by {abs(told.effect_s):.1f} s "
        f"(runs {told.runs_s:.1f} s, controls {told.controls_s:.1f} s; {counts})."
    )


def _or_unknown(value_s: float | None) -> str:
    return "?" if value_s is None else f"{value_s:.1f}"
