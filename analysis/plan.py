"""Before running: how many bursts per arm tell which change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from analysis.analyse import RunAnalysis
from analysis.arms import Arm, arms_of
from analysis.effects import variation
from analysis.entry import SCHEMA
from analysis.power import bursts_needed, detectable
from traces.errors import BadInputError
from traces.units import US_PER_S

REDUCTIONS: Final = (0.05, 0.1, 0.2, 0.38, 0.51)
BURSTS: Final = (4, 5, 6, 8, 10, 16, 30)
SPREADS: Final = (0.1, 0.2, 0.35)
"""Coefficients of variation that are shown where the runs are too few to say their own."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`cv`: the greatest spread within one condition, None from fewer than two scale-outs of any."""

    cv: float | None
    scale_outs: int

    @property
    def spreads(self) -> tuple[float, ...]:
        """The spreads to plan with."""
        return SPREADS if self.cv is None else (self.cv,)


def plan_of(runs: Sequence[RunAnalysis]) -> Plan:
    """Return what runs of one or more conditions say of the spread between scale-outs."""
    arms = [arm for arm in arms_of(runs) if arm.events]
    if not arms:
        raise BadInputError("none of these runs has a scale-out that reached capacity: nothing to plan from")
    known = [cv for arm in arms if (cv := variation(_times(arm))) is not None]
    # Two times may agree by chance; a spread of nothing would promise that four bursts tell anything.
    return Plan(cv=max([*known, 0.01]) if known else None, scale_outs=sum(len(arm.events) for arm in arms))


def _times(arm: Arm) -> list[float]:
    whole = [e.scale_out.time_to_capacity_us for e in arm.events]
    known = [us / US_PER_S for us in whole if us is not None]
    return known if len(known) == len(whole) else [(e.scale_out.startup_us or 0) / US_PER_S for e in arm.events]


def plan_entry(plan: Plan) -> dict[str, Any]:
    """Return the JSON object that `ramptrace compare --plan --json` prints."""
    return {
        "schema": SCHEMA,
        "plan": {
            "scale_outs": plan.scale_outs,
            "cv": plan.cv,
            "alpha": 0.05,
            "power": 0.8,
            "spreads": [
                {
                    "cv": cv,
                    "needed": [{"reduction": r, "bursts_per_arm": bursts_needed(r, cv)} for r in REDUCTIONS],
                    "detectable": [{"bursts_per_arm": n, "reduction": detectable(n, cv)} for n in BURSTS],
                }
                for cv in plan.spreads
            ],
        },
    }


def plan_text(plan: Plan) -> str:
    """Return the plan for a terminal."""
    if plan.cv is None:
        lines = ["No condition has two scale-outs yet, so their spread is unknown; for three spreads:"]
    else:
        lines = [f"Within a condition, {plan.scale_outs} scale-outs vary by {plan.cv:.1%} (greatest of the arms)."]
    lines.append("Bursts needed in each arm, to tell it at 5 % with a chance of 80 %:")
    lines.append("")
    lines.append(f"  {'shorter by':<14}" + "".join(f"{f'spread {cv:.0%}':>14}" for cv in plan.spreads))
    for reduction in REDUCTIONS:
        cells = "".join(f"{bursts_needed(reduction, cv):>14}" for cv in plan.spreads)
        lines.append(f"  {f'{reduction:.0%}':<14}{cells}")
    lines += ["", f"  {'bursts per arm':<14}" + "".join(f"{'tells from':>14}" for _ in plan.spreads)]
    for count in BURSTS:
        found = [detectable(count, cv) for cv in plan.spreads]
        lines.append(f"  {count:<14}" + "".join(f"{'–' if x is None else f'{x:.0%}':>14}" for x in found))
    lines += ["", "Bursts count, not instances: those of one burst share their hour, their rack and their registry."]
    return "\n".join(lines)
