"""What top-level phases are made of: the parts of detection and of the container's start, headlines, methods."""

from __future__ import annotations

from typing import Final

from analysis.reconcile import FIRST_DECISION, PERIOD_CLOSED, Timeline
from analysis.records import Length, PhaseRow
from traces.schema import HEADLINES

_DETECTION_ENDS: Final = ((PERIOD_CLOSED, "emission"), ("alarm", "evaluation"), (FIRST_DECISION, "decision"))
_CERTAINTY: Final = ("event", "reported", "polled", "derived", "prior")
_HEADLINE_OF: Final = {leaf: headline for headline, leaves in HEADLINES.items() for leaf in leaves}


def detection_parts(timeline: Timeline) -> list[PhaseRow]:
    """Return emission, evaluation and decision; leaves whose boundary is not dated are joined."""
    if timeline.at("onset") is None:
        return []
    rows, leaves, opens = [], [], "onset"
    for closes, leaf in _DETECTION_ENDS:
        leaves.append(leaf)
        length = timeline.length(opens, closes)
        if length is None:
            continue
        rows.append(_part(timeline, "+".join(leaves), "detection", length, opens=opens, closes=closes))
        leaves, opens = [], closes
    return rows if len(rows) > 1 else []


def start_parts(timeline: Timeline, parent: str | None) -> list[PhaseRow]:
    """Return the weights' load, and a download inside the container, as parts of the start.

    Each from its own dated anchors or from a reported length.
    """
    if parent is None:
        return []
    rows = []
    parts = {"weights": ("load_started", "load_finished")}
    if inside_start(timeline):
        parts = {"download": ("download_started", "download_finished"), **parts}
    for name, (opens, closes) in parts.items():
        placed, reported = timeline.length(opens, closes), timeline.lengths.get(closes)
        if placed is not None:
            rows.append(_part(timeline, name, parent, placed, opens=opens, closes=closes))
        elif reported is not None:
            rows.append(
                PhaseRow(
                    phase=name, parent=parent, headline="load", unit_id=timeline.unit_id, critical_us=reported.at_us,
                    critical_lo_us=reported.lo_us, critical_hi_us=reported.hi_us, duration_us=reported.at_us,
                    lo_us=reported.lo_us, hi_us=reported.hi_us, method="reported",
                )
            )  # fmt: skip
    return rows


def inside_start(timeline: Timeline) -> bool:
    """Tell whether the model was fetched by the container itself: it had started when the download ended."""
    started, fetched = timeline.at("container_started"), timeline.at("download_finished")
    return started is not None and fetched is not None and fetched > started


def _part(timeline: Timeline, name: str, parent: str, length: Length, *, opens: str, closes: str) -> PhaseRow:
    return PhaseRow(
        phase=name,
        parent=parent,
        headline=headline_of(name),
        unit_id=None if parent == "detection" else timeline.unit_id,
        start_us=must(timeline, opens),
        end_us=must(timeline, closes),
        critical_us=length.at_us,
        critical_lo_us=length.lo_us,
        critical_hi_us=length.hi_us,
        duration_us=length.at_us,
        lo_us=length.lo_us,
        hi_us=length.hi_us,
        method=method_of(timeline, opens, closes),
    )


def headline_of(phase: str) -> str | None:
    """Return the headline phase(s) a phase counts to, None for waits of none and for what is unattributed.

    >>> headline_of("provisioning+pull"), headline_of("start"), headline_of("unattributed")
    ('provisioning+pull', 'load', None)
    """
    if phase in HEADLINES:
        return phase
    found = [_HEADLINE_OF[leaf] for leaf in phase.split("+") if leaf in _HEADLINE_OF]
    return "+".join(dict.fromkeys(found)) or None


def method_of(timeline: Timeline, opens: str, closes: str) -> str:
    """Return how a span is known: as badly as the worse of its ends."""
    methods = [timeline.anchors[a].method for a in (opens, closes) if a in timeline.anchors]
    return max(methods, key=_CERTAINTY.index, default="derived")


def must(timeline: Timeline, anchor: str) -> int:
    """Return the best value of an anchor that is known to be dated."""
    at = timeline.at(anchor)
    assert at is not None, anchor
    return at
