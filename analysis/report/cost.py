"""What a scale-out cost its users, and when capacity was there by each definition, as the report's tables."""

from __future__ import annotations

from typing import Any

from analysis.reached import DEFINITIONS, Objective
from analysis.records import ScaleOutResult
from analysis.report.consequences import DEFINITION_WORDS
from analysis.report.markup import element, table
from analysis.report.words import figures, seconds_text, span_text
from traces.units import US_PER_S


def reached_table(found: ScaleOutResult) -> list[Any]:
    """Return time to capacity by each definition; nothing without an onset."""
    if found.onset is None or not found.reached:
        return []
    rows = []
    for name in DEFINITIONS:
        length = found.reached.get(name)
        told = "not seen" if length is None else seconds_text(length.at_us)
        rows.append((DEFINITION_WORDS[name], told, "" if length is None else span_text(length.lo_us, length.hi_us)))
    return [
        element("h3", "Time to capacity by definition"),
        table(("from the rise of demand until", "s", "bounds, s"), rows, numeric=(1, 2)),
    ]


def cost_table(found: ScaleOutResult, objective: Objective) -> list[Any]:
    """Return what the scale-out cost its users, phase by phase; nothing without an onset."""
    cost = found.cost
    if cost is None or not cost.phases:
        return []
    rows = [
        (
            *(row.phase, row.requests, row.late, row.failed + row.not_sent, row.abandoned),
            *(figures(row.excess_latency_s), row.tokens, row.tokens_late, row.tokens_lost),
        )
        for row in cost.phases
    ]
    head = (
        "while in",
        "requests due",
        "late",
        "failed",
        "gave up",
        "excess wait, s",
        "tokens",
        "tokens late",
        "tokens lost",
    )
    share = "unknown" if cost.attained is None else f"{cost.attained:.1%}"
    late = f"Late: the first token came over {objective.ttft_us / US_PER_S:g} s after it was due."
    notes = [late, f"In time: {share}; the objective is {objective.share:.0%}."]
    notes.append(f"{cost.violations} requests missed it.")
    if cost.error_budget_s is not None:
        notes.append(f"That is the error budget of {figures(cost.error_budget_s)} s of such traffic.")
    if cost.idle_unit_s is not None:
        money = "" if cost.idle_money is None else f", {cost.idle_money:.2f} at the given price"
        notes.append(f"Idle capacity after it: {figures(cost.idle_unit_s)} unit-seconds{money}.")
    title = element("h3", "What it cost the users")
    return [title, table(head, rows, numeric=range(1, 9)), element("p", " ".join(notes), class_="soft")]
