"""Where a run's figures come from: its manifest, its scenario, and when a source could not be read."""

from __future__ import annotations

import json
from typing import Any, Final

from analysis.analyse import RunAnalysis
from analysis.report.markup import Markup, element, table
from traces.clock import to_datetime
from traces.manifest import Manifest
from traces.units import US_PER_S, format_duration

_MOST_GAPS: Final = 100


def gaps(analysis: RunAnalysis) -> list[Any]:
    """Return the stretches in which a source could not be read; nothing without one."""
    frame = analysis.gaps
    if frame.is_empty():
        return []
    rows = []
    for gap in frame.head(_MOST_GAPS).iter_rows(named=True):
        start, end = gap["start"], gap["end"]
        length = "" if end is None else format_duration((end - start).total_seconds() * US_PER_S)
        until = "still lasting" if end is None else f"{end:%H:%M:%S}"
        rows.append((gap["source"], f"{start:%H:%M:%S}", until, length, gap["reason"], gap["detail"] or ""))
    if len(frame) > _MOST_GAPS:
        rows.append((f"and {len(frame) - _MOST_GAPS} more", "", "", "", "", ""))
    head = ("source", "from (UTC, endpoint clock)", "to", "length", "why", "what it said")
    note = "What happened meanwhile is known less well: a gap widens bounds, it never disappears."
    return [
        element("h3", "When a source could not be read"),
        element("p", note, class_="soft"),
        element("div", table(head, rows), class_="free"),
    ]


def provenance(analysis: RunAnalysis) -> Markup:
    """Return everything that the run's manifest says of how it came to be."""
    m = analysis.manifest
    rows = [
        ("run", element("code", m.run_id)),
        ("directory", element("code", str(analysis.path))),
        ("condition", m.condition or "none stated"),
        ("started", "unknown" if m.t0_us is None else to_datetime(m.t0_us).isoformat(timespec="seconds")),
        ("ended", "unknown" if m.finished_us is None else to_datetime(m.finished_us).isoformat(timespec="seconds")),
        ("state", m.state),
        ("stretches", str(len(m.stretches)) if m.stretches else "unknown"),
        ("platform", f"{analysis.platform or 'unknown'}{', emulated' if m.emulated else ''}"),
        *_trace(m),
        ("endpoint clock", f"×{m.time_scale:g}, map accurate to {format_duration(m.clock.error_us)} of client time"),
        ("collector", _collector(m)),
        ("snapshots", ", ".join(sorted(analysis.snapshots)) or "none"),
        ("versions", ", ".join(f"{k} {v}" for k, v in sorted(m.versions.items())) or "unknown"),
        ("table version", m.schema_version),
    ]
    return element("div", table(("what", "value"), rows), *_documents(m), class_="free")


def _trace(m: Manifest) -> list[tuple[str, Any]]:
    used = m.trace
    if used is None:
        return [("trace", "unknown")]
    rows: list[tuple[str, Any]] = [
        ("trace", used.source),
        ("trace sha256", element("code", used.sha256 or "unknown")),
        (
            "trace format, window, rows",
            f"{used.format or 'unknown'}, {used.window or 'whole'}, {used.rows or 'unknown'}",
        ),
    ]
    if used.transforms:
        steps = json.dumps([_plain(step) for step in used.transforms], ensure_ascii=False)
        rows.append(("trace made by", element("code", steps)))
    if m.laps is not None:
        rows.append(("laps", f"of {m.laps.rows} rows, {format_duration(m.laps.length_us)} each"))
    return rows


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value)


def _collector(m: Manifest) -> str:
    found = m.collector or {}
    state = str(found.get("state") or ("alone" if "rows" in found else "unknown"))
    return f"{state}: {found['detail']}" if found.get("detail") else state


def _documents(m: Manifest) -> list[Any]:
    """Return the scenario and the verdict as they are filed, folded up."""
    found = []
    for title, document in (
        ("The scenario as it was resolved", m.scenario),
        ("The verdict as it was filed", m.verdict),
    ):
        if document:
            text = json.dumps(document, indent=2, ensure_ascii=False, default=str)
            found.append(element("details", element("summary", title), element("pre", text)))
    return found
