"""The first figures of a run: what there is to know before any chart."""

from __future__ import annotations

from analysis.analyse import RunAnalysis
from analysis.records import ScaleOutResult
from analysis.report.markup import Markup, element
from analysis.report.words import attempts, seconds_text, span_text


def summary(analysis: RunAnalysis) -> Markup:
    """Return the run's main figures as a list of terms."""
    attempted, good, not_sent = attempts(analysis)
    rows: list[tuple[str, str, str | None]] = [
        ("replay fidelity", analysis.fidelity["verdict"] or "unknown", "how well the load generator held its schedule"),
    ]
    for found in analysis.scale_outs[:1]:
        rows += _of_scale_out(found)
    if analysis.deficit_requests is not None:
        rows.append(("beyond ready capacity", f"{analysis.deficit_requests:.0f} requests", "demand that had to wait"))
    rows.append(("failed", f"{attempted - good} of {attempted}", f"{not_sent} more never sent" if not_sent else None))
    cells = (
        element("div", element("dt", name), element("dd", value), element("dd", note, class_="soft") if note else None)
        for name, value, note in rows
    )
    return element("dl", *cells, class_="summary")


def _of_scale_out(found: ScaleOutResult) -> list[tuple[str, str, str | None]]:
    if found.censored:
        return [("time to capacity", "not reached", "while the run was watched")]
    rows: list[tuple[str, str, str | None]] = []
    if found.time_to_capacity_us is not None:
        rows.append(("time to capacity", f"{seconds_text(found.time_to_capacity_us)} s", capacity_bounds(found)))
    rows.append(("start-up", f"{seconds_text(found.startup_us)} s", "decision → in service"))
    if found.unattributed_us is not None:
        rows.append(("unattributed", f"{seconds_text(found.unattributed_us)} s", "what no signal explains"))
    return rows


def capacity_bounds(found: ScaleOutResult) -> str | None:
    """Return the bounds on the time to capacity, from those of its two ends; None where one is open."""
    onset, end = found.onset, found.in_service
    if onset is None or end is None or end.lo_us is None or end.hi_us is None:
        return None
    return f"within [{span_text(max(end.lo_us - onset.hi_us, 0), end.hi_us - onset.lo_us)}] s"
