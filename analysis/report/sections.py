"""The parts of the report, as markup; charts go into `charts` by the id of the place that they fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from analysis.analyse import RunAnalysis
from analysis.gate import held
from analysis.latency import MEASURES
from analysis.reached import Objective
from analysis.records import PhaseRow, ScaleOutResult
from analysis.report import charts as draw
from analysis.report import palette
from analysis.report.cost import cost_table, reached_table
from analysis.report.ladder import AlarmRule, alarm_rule, ladder, ladder_note
from analysis.report.markup import Markup, element, grouped_table, table
from analysis.report.parts import Charts, drawn, figure
from analysis.report.provenance import gaps, provenance
from analysis.report.summary import summary
from analysis.report.words import (
    CRITICAL,
    MARGINAL_UNIT,
    PART_WORDS,
    bounds,
    figures,
    headline,
    run_headline,
    seconds_text,
    span_text,
    units_words,
    window_of,
)

_MOST_UNTRUSTED: Final = 50
_DEMAND_KEYS: Final = (
    (palette.DEMAND, "offered load"),
    (palette.CAPACITY, "ready capacity"),
    (palette.DEFICIT, "deficit"),
)
_LATENCY_KEYS: Final = (
    (palette.FROM_DUE, "from due: what a user felt, waiting included"),
    (palette.FROM_SENT, "from sent: what the endpoint did"),
)


def run_section(analysis: RunAnalysis, charts: Charts, number: int, *, alone: bool) -> Markup:
    """Return everything about one run; when it is `alone`, the page's own headline has summed it up already."""
    manifest = analysis.manifest
    parts: list[Any] = [element("h2", f"Run {manifest.condition or manifest.name}")]
    if not alone:
        parts.append(element("p", run_headline(analysis)))
    parts.append(summary(analysis))
    parts += figure(
        "Offered load" if analysis.unit_rate is None else "Demand against ready capacity",
        draw.demand_chart(analysis),
        charts,
        f"run{number}-demand",
        _demand_note(analysis),
        keys=_DEMAND_KEYS if analysis.unit_rate is not None else _DEMAND_KEYS[:1],
    )
    rule = alarm_rule(analysis.snapshots)
    for found in analysis.scale_outs:
        parts += _scale_out(found, analysis.objective, charts, f"run{number}-out{found.index}", rule)
    parts += _latency(analysis, charts, f"run{number}-latency")
    parts += [element("h3", "Replay fidelity"), _fidelity(analysis)]
    if judged := held(analysis):
        rows = [(one.threshold.text, one.status, one.reason) for one in judged]
        parts += [element("h3", "Gate"), table(("threshold", "result", "why"), rows)]
    if analysis.findings:
        items = (element("li", f.text, class_=f.severity) for f in analysis.findings)
        parts += [element("h3", "What to know about the data"), element("ul", *items)]
    parts += gaps(analysis)
    parts.append(element("div", element("h3", "Provenance"), provenance(analysis), class_="whole"))
    return element("section", *parts)


def _demand_note(analysis: RunAnalysis) -> Markup:
    numbered = " Numbers stand where each scale-out begins." if len(analysis.scale_outs) > draw.MOST_TOLD else ""
    rate = analysis.unit_rate
    if rate is None:
        why = (
            "What one unit can do could not be read: units were not seen saturated, or too few requests succeeded."
            if analysis.scale_outs
            else f"{units_words(analysis)} What one unit can do is read around a scale-out only."
        )
        return element("p", f"{why} Capacity is not drawn.{numbered}", class_="soft")
    short = analysis.deficit_requests or 0.0
    text = (
        f"One unit delivered {rate.requests_per_s:.2f} requests/s ({rate.tokens_per_s:.0f} tokens/s) while saturated "
        f"in this very run; by that, demand exceeded ready capacity by {short:.0f} requests in all.{numbered}"
    )
    return element("p", text, class_="soft")


def _scale_out(
    found: ScaleOutResult, objective: Objective, charts: Charts, place: str, rule: AlarmRule | None
) -> list[Any]:
    units = f"{_count(found.units_before)} → {_count(found.units_desired)} units"
    parts: list[Any] = [element("h3", f"Scale-out {found.index + 1}: {units}")]
    if found.index:
        parts.append(element("p", headline(found)))
    spec = draw.waterfall(found)
    if spec is not None:
        parts.append(drawn(f"Scale-out {found.index + 1}: phases over time", spec, charts, place))
        parts.append(
            element(
                "p",
                "Whiskers below the bars are hard bounds on a phase's own length, not confidence intervals. A dashed "
                "line is a window within which a reported length lies.",
                class_="soft",
            )
        )
    rows, window = [], window_of(found)
    for row in found.phases:
        if row.parent is None:
            rows.append(_phase_cells(row, window))
            rows += [_phase_cells(part, row.phase) for part in found.phases if part.parent == row.phase]
    if rows:
        total = found.time_to_capacity_us if found.time_to_capacity_us is not None else found.startup_us
        rows.append(
            (element("strong", "sum of the critical path"), element("strong", seconds_text(total)), "", "", "", "")
        )
        head = ("phase", "critical, s", "critical bounds, s", "own length, s", "bounds, s", "known how")
        parts.append(element("div", *_terms(found), class_="soft terms"))
        parts.append(table(head, rows, numeric=(1, 2, 3, 4)))
    note = element("p", ladder_note(rule), class_="soft")
    parts += figure("Detection, rung by rung", ladder(found, rule), charts, f"{place}-ladder", note)
    parts += [*reached_table(found), *cost_table(found, objective)]
    return [*parts, *_units(found)]


def _terms(found: ScaleOutResult) -> list[Markup]:
    """Return a line per term of the table that its name does not explain."""
    names = [row.phase for row in found.phases if row.parent == "detection" and row.phase in PART_WORDS]
    unit = element("code", found.marginal_unit or "unknown", class_="id")
    return [
        element("p", "Shown is the path of the marginal unit ", unit, f": {MARGINAL_UNIT}."),
        element("p", f"critical: {CRITICAL}."),
        *(element("p", f"{name}: {PART_WORDS[name]}.") for name in names),
    ]


def _units(found: ScaleOutResult) -> list[Any]:
    """Return a table of the new units; the one whose path is shown is marked."""
    if len(found.units) < 2:
        return []
    rows = []
    for unit in found.units:
        name = element("code", unit.unit_id or "unnamed", class_="id")
        mark = " ← marginal" if unit.unit_id == found.marginal_unit else ""
        lengths = (unit.window, unit.download, unit.startup)
        cells = ("–" if x is None else f"{seconds_text(x.at_us)} [{span_text(x.lo_us, x.hi_us)}]" for x in lengths)
        rows.append((element("span", name, mark), *cells))
    head = ("new unit", "decision → container, s", "download, s", "decision → in service, s")
    return [element("h3", "New units"), table(head, rows, numeric=(1, 2, 3))]


def _count(units: int | None) -> str:
    return "?" if units is None else str(units)


def _phase_cells(row: PhaseRow, window: str | None) -> tuple[Any, ...]:
    swatch = element("span", class_="swatch", style=f"background:{palette.colour(row.parent or row.phase)}")
    name = element("span", swatch, row.phase, class_="name part" if row.parent else "name")
    critical = span_text(row.critical_lo_us, row.critical_hi_us)
    inside = row.start_us is None and row.duration_us and window
    how = f"{row.method}; inside {window}" if inside else row.method
    return (name, seconds_text(row.critical_us), critical, seconds_text(row.duration_us), bounds(row), how)


_PERCENTILES: Final = ("p50_s", "p90_s", "p95_s", "p99_s", "max_s")
_MEASURE_WORDS: Final = {"ttft": "time to first token", "end_to_end": "end to end"}


def _latency(analysis: RunAnalysis, charts: Charts, place: str) -> list[Any]:
    title = "Time to first token"
    parts = figure(title, draw.latency_chart(analysis, "p50"), charts, place, keys=_LATENCY_KEYS)
    parts += figure(None, draw.latency_chart(analysis, "p95"), charts, f"{place}_p95")
    groups = {}
    for window, row in analysis.latency.items():
        shown = {name: row[name] for name in MEASURES if row[name]["n"]}
        if shown:
            groups[window] = [
                (_measure(name), q["n"], *(figures(q[k]) for k in _PERCENTILES)) for name, q in shown.items()
            ]
    if groups:
        head = ("when due", "measure", "n", "p50, s", "p90, s", "p95, s", "p99, s", "max, s")
        parts.append(grouped_table(head, groups, numeric=range(2, 8)))
    if analysis.errors:
        cells = (
            (e["outcome"], e["http_status"] or "", e["error_kind"] or "", e["error_class"] or "", e["n"])
            for e in analysis.errors
        )
        failures = table(("outcome", "status", "kind", "error", "n"), cells, numeric=(1, 4))
        parts += [element("h3", "Requests that failed or were not sent"), failures]
    return parts


def _measure(name: str) -> str:
    """Return a measure of `latency.MEASURES` in words.

    >>> _measure("ttft_from_due")
    'time to first token, from due'
    """
    what, _, since = name.partition("_from_")
    return f"{_MEASURE_WORDS[what]}, from {since}"


def _fidelity(analysis: RunAnalysis) -> Markup:
    f = analysis.fidelity
    how = ", worked out from the recorded rows as the run was never closed" if f["recomputed"] else ""
    lag = (
        ""
        if f["lag_p99_ms"] is None
        else f" The client's own lag: p50 {f['lag_p50_ms']:.2f} ms, p99 {f['lag_p99_ms']:.2f} ms."
    )
    lost = f"{f['not_sent']} of {f['requests']} requests were not sent or not recorded."
    sentence = f"{f['verdict'] or 'unknown'}{how}.{lag} {lost}"
    return element(
        "div",
        element("p", sentence),
        element("ul", *(element("li", r) for r in f["reasons"])) if f["reasons"] else None,
        *_untrusted(f["untrusted"]),
    )


def _untrusted(windows: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the windows whose latencies are not to be read, as a table; nothing without one."""
    if not windows:
        return []
    rows = [(w["start"][:23], w["end"][:23], w["why"]) for w in windows[:_MOST_UNTRUSTED]]
    if len(windows) > _MOST_UNTRUSTED:
        rows.append((f"and {len(windows) - _MOST_UNTRUSTED} more", "", ""))
    note = "In these windows the load generator itself was late, so their latencies say nothing of the endpoint."
    return [element("p", note, class_="soft"), table(("from (UTC)", "to", "why"), rows)]
