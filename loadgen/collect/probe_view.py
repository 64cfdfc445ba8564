"""How well a scale-out will be seen by asking the units alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadgen.collect.platform import Finding, PhaseView

_NO_PLATFORM = "the platform is not read; a table of it in [collect] tells more"


def findings(units: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Return what each unit answered: its `stage`, and `counter`, whether its metrics tell of answers."""
    found = []
    for unit, told in units.items():
        stage = str(told.get("stage"))
        answers = stage in {"ready", "not-ready"}
        advice = None if answers else "that is what a unit that is still to come says; else check its address"
        found.append(Finding(f"unit {unit}", "ok" if answers else "warn", stage, advice))
        if stage == "ready" and not told.get("counter"):
            advice = "set `metrics` to where its engine's counters are, or leave them out with an empty text"
            found.append(Finding(f"metrics of {unit}", "warn", "no known counter of answers in its metrics", advice))
    return found


def phases(units: Mapping[str, Mapping[str, Any]], period_s: float) -> list[PhaseView]:
    """Return how well each phase will be seen, in causal order, at one question each `period_s`."""
    counted = any(told.get("counter") for told in units.values())
    hidden = ("emission", "evaluation", "decision", "provisioning", "pull", "download", "start")
    return [
        *(PhaseView(phase, "invisible", "the units alone do not tell", _NO_PLATFORM) for phase in hidden),
        PhaseView("weights", "bounded", f"from listening to ready, asked every {period_s:g} s"),
        PhaseView("registration", "invisible", "the units alone do not tell", _NO_PLATFORM),
        PhaseView(
            "recovery",
            "measured" if counted else "bounded",
            "responses of the replay" + (", the engines' own counters" if counted else ""),
            None if counted else "an engine's counters tell its first answer",
        ),
    ]
