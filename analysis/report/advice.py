"""An advice for people, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from analysis.advise import Advice, Advised, Range

_WIDTH = 92


def advice_text(found: Advised) -> str:
    """Return the ranked levers, each with its effect, evidence, precondition and alternative."""
    measured = "-" if found.measured_s is None else f"{found.measured_s:.0f} s"
    lines = [
        f"What would shorten the time to capacity of {found.run.manifest.run_id}"
        + ("  (EMULATED)" if found.run.manifest.emulated else ""),
        f"measured {measured}; the model fitted to the run gives {_spread(found.baseline_s, 's')}",
        f"Predictions of the model, not measurements: median (5 %–95 %) of {found.draws} draws of what the run leaves",
        f"open; damage is requests whose first token comes after {found.ttft_s:g} s, or that fail",
    ]
    applying = [advice for advice in found.advices if advice.applies]
    others = [advice for advice in found.advices if not advice.applies]
    for number, advice in enumerate(applying, 1):
        lines += ["", *_lever(f"{number:>2}", advice)]
    if others:
        lines += ["", "Would help, but cannot be had here:"]
        for advice in others:
            lines += ["", *_lever(" –", advice)]
    lines += ["", *(f"assumed: {text}" for text in found.assumptions)]
    return "\n".join(lines)


def _lever(mark: str, advice: Advice) -> Iterator[str]:
    lever = advice.lever
    yield f"{mark} {lever.name}: {lever.change}"
    money = (
        f"{_change(advice.instance_hours, '+.2f')} instance-hours"
        if advice.cost is None
        else f"cost {_change(advice.cost, '+.2f')}"
    )
    at_least = "at least " if advice.at_least else ""
    yield (
        f"     time to capacity {at_least}{_change(advice.time_to_capacity_s, '+.0f')} s, "
        f"damage {_change(advice.violations, '+.0f')} requests, {money}"
    )
    yield from _wrapped("evidence: ", lever.evidence)
    yield from _wrapped(f"precondition {_WORDS[lever.precondition.holds]}: ", lever.precondition.text)
    if lever.precondition.holds != "holds":
        yield from _wrapped("instead: ", lever.alternative)


_WORDS = {"holds": "holds", "fails": "FAILS", "unknown": "not known"}


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(label + text, _WIDTH, initial_indent="     ", subsequent_indent="       ")


def _change(found: Range, form: str) -> str:
    return f"{found.p50:{form}} ({found.p05:{form}} … {found.p95:{form}})"


def _spread(found: Range, unit: str) -> str:
    return f"{found.p50:.0f} {unit} ({found.p05:.0f}–{found.p95:.0f})"
