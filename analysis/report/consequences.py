"""Terminal lines on what followed from a scale-out, and on what the statistics say of two arms."""

from __future__ import annotations

from typing import Final

from analysis.pairs import Pair
from analysis.reached import DEFINITIONS, Objective
from analysis.records import ScaleOutResult
from analysis.report.words import figures, seconds_text, span_text
from analysis.user_cost import UserCost
from analysis.verdicts import Statistic
from traces.units import US_PER_S

_MOST_BURSTS: Final = 1000
"""More than so many bursts per arm nobody runs: there is no change to tell."""
DEFINITION_WORDS: Final = {
    "in_service": "in service (headline)",
    "all_in_service": "all units in service",
    "capacity_covers_demand": "ready units cover the load",
    "first_served": "marginal unit's first answer",
    "backlog_drained": "backlog worked off (fluid)",
    "slo_recovered": "users served in time again",
}


def reached_lines(found: ScaleOutResult) -> list[str]:
    """Return time to capacity by each definition; nothing without an onset."""
    if found.onset is None or not found.reached:
        return []
    lines = [f"  {'time to capacity by definition':<32}{'s':>10}   bounds"]
    for name in DEFINITIONS:
        length = found.reached.get(name)
        told = f"{'not seen':>10}" if length is None else f"{seconds_text(length.at_us):>10}"
        around = (
            "" if length is None or length.lo_us == length.hi_us else f"   [{span_text(length.lo_us, length.hi_us)}]"
        )
        lines.append(f"    {DEFINITION_WORDS[name]:<30}{told}{around}")
    return lines


def cost_lines(found: ScaleOutResult, objective: Objective) -> list[str]:
    """Return what a scale-out cost its users, phase by phase; nothing without an onset."""
    cost: UserCost | None = found.cost
    if cost is None or not cost.phases:
        return []
    lines = [f"  {'requests due in':<20}{'n':>7}{'late':>8}{'failed':>8}{'gave up':>9}{'excess wait, s':>17}"]
    for row in cost.phases:
        name = row.phase if len(row.phase) <= 18 else row.phase[:17] + "…"
        failed = row.failed + row.not_sent
        excess = figures(row.excess_latency_s)
        lines.append(f"    {name:<18}{row.requests:>7}{row.late:>8}{failed:>8}{row.abandoned:>9}{excess:>17}")
    share = "–" if cost.attained is None else f"{cost.attained:.1%}"
    late = f"late: first token over {objective.ttft_us / US_PER_S:g} s after due"
    lines.append(f"    {late}; in time {share}, objective {objective.share:.0%}")
    if cost.idle_unit_s is not None:
        money = "" if cost.idle_money is None else f", {cost.idle_money:.2f} at the given price"
        lines.append(f"    idle capacity after: {figures(cost.idle_unit_s)} unit-seconds{money}")
    return lines


def statistics_lines(pair: Pair) -> list[str]:
    """Return what can be said of the arms beyond their representative scale-outs."""
    lines = []
    for name in ("time_to_capacity", "startup"):
        found = pair.statistics.get(name)
        if found is not None and (found.effect is not None or found.restricted_mean is not None):
            lines.append(f"{name.replace('_', ' ')}: {_statistic(found)}")
    return lines


def _statistic(found: Statistic) -> str:
    if found.effect is None:
        r = found.restricted_mean or {}
        watched = f"{found.censored_before} + {found.censored_after} scale-outs did not reach capacity while watched"
        return f"{watched}; mean up to {r['until']:.0f} s: {r['before']:.0f} → {r['after']:.0f} s (Kaplan–Meier)"
    e = found.effect
    if e.verdict == "insufficient":
        least = "4 bursts per arm are the least that can tell a difference at 5 %"
        return f"{e.n_before} + {e.n_after} scale-outs are too few for a verdict; {least}"
    ends = None if e.shift_ci is None else sorted(e.shift_ci if e.shift >= 0 else (-e.shift_ci[0], -e.shift_ci[1]))
    around = "" if ends is None else f" [{ends[0]:.1f} … {ends[1]:.1f}]"
    change = "longer" if e.shift < 0 else "shorter"
    told = f"{e.verdict}, {change} by {abs(e.shift):.1f} s{around} (Hodges–Lehmann, 95 %)"
    told += f", exact p {e.p:.3g}, {e.n_before} + {e.n_after} scale-outs"
    if e.verdict != "different" and found.bursts_needed and found.bursts_needed <= _MOST_BURSTS:
        told += f"; about {found.bursts_needed} bursts per arm tell such a change"
    return told
