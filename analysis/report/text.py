"""The terminal summary: at most 80 columns, readable at a glance, plain text when piped."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from analysis.analyse import RunAnalysis
from analysis.compare import Comparison
from analysis.controlled import ControlledPair
from analysis.gate import held
from analysis.pairs import Pair
from analysis.records import PhaseRow, ScaleOutResult
from analysis.report import palette
from analysis.report.consequences import cost_lines, reached_lines, statistics_lines
from analysis.report.control_words import COLUMNS, headline_of, rows_of
from analysis.report.gates import MARKS as GATE_MARKS
from analysis.report.words import (
    BEYOND_DOWNLOAD,
    CRITICAL,
    EMULATED,
    EVERYTHING_ELSE,
    FASTER_ALONE,
    HOW_A_PAIR,
    MARGINAL_UNIT,
    NOT_THE_LINE,
    PART_WORDS,
    SPLIT_WORDS,
    WHY_A_PAIR,
    arm_failures,
    arm_verdict,
    attempts,
    failed_words,
    figures,
    headline,
    is_reference_case,
    order_words,
    pair_headline,
    run_headline,
    seconds_text,
    span_text,
    window_of,
)
from traces.units import US_PER_S, format_duration

WIDTH: Final = 80
_BAR: Final = 24
_MOST_UNTRUSTED: Final = 5
_MOST_RUNS_TOLD: Final = 4
_MARK: Final = {"error": "!!", "warning": "! ", "info": "  "}


def run_text(analysis: RunAnalysis, *, colour: bool = False) -> str:
    """Return the summary of a run; `colour` adds ANSI colours to the bars and nothing else."""
    lines = _wrapped(run_headline(analysis))
    if analysis.manifest.emulated:
        lines += _wrapped(EMULATED)
    condition = f"  condition {analysis.manifest.condition}" if analysis.manifest.condition else ""
    lines += _wrapped(f"run {analysis.manifest.run_id}{condition}")
    failed = failed_words(analysis)
    if failed:
        lines += _wrapped(failed, first="! ", rest="  ")
    for found in analysis.scale_outs:
        lines += ["", *_scale_out(found, colour), *reached_lines(found), *cost_lines(found, analysis.objective)]
    lines += ["", *_latency(analysis), "", *_fidelity(analysis)]
    if judged := held(analysis):
        lines += ["", "Gate"]
        for one in judged:
            text = f"{one.threshold.text}: {one.status}, {one.reason}"
            lines += _wrapped(text, first=f"  {GATE_MARKS[one.status]} ", rest="     ")
    if analysis.findings:
        lines += ["", "What to know about the data"]
        for finding in analysis.findings:
            lines += _wrapped(finding.text, first=f"  {_MARK[finding.severity]} ", rest="     ")
    return "\n".join(lines)


def report_text(runs: Sequence[RunAnalysis], comparison: Comparison | None, *, colour: bool = False) -> str:
    """Return what the HTML report says, for a terminal: the comparison, where there is one, and then each run."""
    parts = [] if comparison is None else [comparison_text(comparison)]
    parts += [run_text(run, colour=colour) for run in runs]
    return f"\n\n{'─' * WIDTH}\n\n".join(parts)


def comparison_text(comparison: Comparison) -> str:
    """Return the summary of a comparison."""
    lines: list[str] = []
    for pair in comparison.pairs:
        lines += [*_wrapped(pair_headline(pair)), "", *_pair_table(pair), ""]
        for told in statistics_lines(pair):
            lines += _wrapped(told, first="  ", rest="    ")
        for note in pair.notes:
            lines += _wrapped(note, first="  ! ", rest="    ")
    for found in comparison.controlled:
        lines += ["", *_controlled(found)]
    # Of many runs the table's totals are enough.
    for run in comparison.runs if len(comparison.runs) <= _MOST_RUNS_TOLD else ():
        failed = failed_words(run)
        if failed:
            lines += _wrapped(f"{run.manifest.condition or run.manifest.run_id}: {failed}", first="! ", rest="  ")
    for confounder in comparison.confounders:
        lines += _wrapped(confounder, first="! ", rest="  ")
    lines.append("")
    if any(run.manifest.emulated for run in comparison.runs):
        lines += [*_wrapped(EMULATED), ""]
    if any(pair.pull is not None for pair in comparison.pairs):
        lines += [*_wrapped(f"{WHY_A_PAIR} {HOW_A_PAIR}"), ""]
        lines.append("Assumed")
        for assumption in comparison.assumptions:
            lines += _wrapped(assumption, first="  - ", rest="    ")
    if is_reference_case(comparison):
        lines += ["", *_wrapped(NOT_THE_LINE)]
    return "\n".join(lines).rstrip()


def _controlled(found: ControlledPair) -> list[str]:
    """Return the difference in differences of a pair."""
    lines = _wrapped(headline_of(found))
    for name, *cells, bounds, verdict in [COLUMNS, *rows_of(found)]:
        lines.append(f"  {name:<18}" + "".join(f"{cell:>9}" for cell in cells) + f"{bounds:>17}  {verdict}")
    for note in found.notes:
        lines += _wrapped(note, first="  - ", rest="    ")
    return lines


def _scale_out(found: ScaleOutResult, colour: bool) -> list[str]:
    units = f"{found.units_before if found.units_before is not None else '?'} → {found.units_desired or '?'} units"
    lines = [f"Scale-out {found.index + 1}: {units}"]
    if found.index:
        lines += _wrapped(headline(found))
    lines += _wrapped(f"marginal unit {found.marginal_unit or 'unknown'}: {MARGINAL_UNIT}", first="  ", rest="    ")
    rows = [r for r in found.phases if r.parent is None and (r.critical_us or r.phase != "unattributed")]
    if not rows:
        return lines
    starts = [r.start_us for r in rows if r.start_us is not None]
    begin, window = min(starts, default=0), window_of(found)
    total = sum(r.critical_us for r in rows) or 1
    lines += _wrapped(f"critical s: {CRITICAL}", first="  ", rest="    ")
    lines.append(
        f"  {'phase':<21}{'critical s':>10} {'own length, bounds':>19}  0 s{total / US_PER_S:>{_BAR - 5}.0f} s"
    )
    for row in rows:
        lines.append(_phase_line(row, begin, total, colour, window=window))
        parts = (part for part in found.phases if part.parent == row.phase)
        lines += [_phase_line(part, begin, total, colour, indent="  ") for part in parts]
    lines.append(f"  {'total':<21}{total / US_PER_S:>10.1f}")
    names = [row.phase for row in found.phases if row.parent == "detection"]
    for name in names:
        if name in PART_WORDS:
            lines += _wrapped(f"{name}: {PART_WORDS[name]}", first="  ", rest="    ")
    return lines


def _phase_line(
    row: PhaseRow, begin: int, total: int, colour: bool, *, indent: str = "", window: str | None = None
) -> str:
    name, above = f"{indent}{row.phase}", ""
    if len(name) > 21:
        above, name = f"  {name}\n", f"{indent}  \u21b3"
    if row.lo_us is not None and row.hi_us is not None:
        own = f"[{span_text(row.lo_us, row.hi_us)}]"
        own = own if row.duration_us is not None else f"? {own}"
    else:
        own = seconds_text(row.duration_us)
    bar = ""
    if row.start_us is not None and row.end_us is not None:
        left = round((row.start_us - begin) / total * _BAR)
        width = max(round((row.end_us - begin) / total * _BAR) - left, 1)
        bar = " " * left + _coloured(("░" if indent else "█") * width, row.phase, colour)
    elif row.duration_us:
        around = row.parent or window
        bar = f"inside {around}" if around else "(place not observed)"
    return above + f"  {name:<21}{row.critical_us / US_PER_S:>10.1f} {own:>19}  {bar}".rstrip()


def _coloured(text: str, phase: str, colour: bool) -> str:
    if not colour:
        return text
    code = palette.colour(phase).lstrip("#")
    red, green, blue = (int(code[i : i + 2], 16) for i in (0, 2, 4))
    return f"\x1b[38;2;{red};{green};{blue}m{text}\x1b[0m"


def _latency(analysis: RunAnalysis) -> list[str]:
    lines = [f"{'Time to first token, s':<26}{'':>7}{_over('from due', 27)}   {_over('from sent', 16)}"]
    lines.append(f"{'  when due':<26}{'n':>7}{'p50':>9}{'p95':>9}{'p99':>9}   {'p50':>7}{'p95':>9}")
    for window, row in analysis.latency.items():
        due, sent = row["ttft_from_due"], row["ttft_from_sent"]
        told = "".join(f"{figures(due[k]):>9}" for k in ("p50_s", "p95_s", "p99_s"))
        others = f"{figures(sent['p50_s']):>7}{figures(sent['p95_s']):>9}"
        lines.append(f"  {window:<24}{due['n']:>7}{told}   {others}")
    attempted, good, not_sent = attempts(analysis)
    unsent = f", {not_sent} more never sent" if not_sent else ""
    told = f"{attempted} requests, {attempted - good or 'none'} failed" if attempted else "no request is recorded"
    lines.append(f"  {told}{unsent}")
    return lines


def _over(title: str, width: int) -> str:
    """Return a title that spans the columns under it."""
    return f" {title} ".center(width - 3, "─").rjust(width)


def _fidelity(analysis: RunAnalysis) -> list[str]:
    f = analysis.fidelity
    verdict = f["verdict"] or "unknown"
    how = " (worked out from the recorded rows)" if f["recomputed"] and f["verdict"] else ""
    lag = (
        ""
        if f["lag_p99_ms"] is None
        else f"; client's own lag p50 {f['lag_p50_ms']:.2f} ms, p99 {f['lag_p99_ms']:.2f} ms"
    )
    lines = _wrapped(f"Replay fidelity: {verdict}{how}{lag}; {f['not_sent']} not sent")
    for reason in f["reasons"]:
        lines += _wrapped(reason, first="  - ", rest="    ")
    for window in f["untrusted"][:_MOST_UNTRUSTED]:
        text = f"not to be trusted {window['start'][11:23]} … {window['end'][11:23]}: {window['why']}"
        lines += _wrapped(text, first="  - ", rest="    ")
    if len(f["untrusted"]) > _MOST_UNTRUSTED:
        lines.append(f"  - and {len(f['untrusted']) - _MOST_UNTRUSTED} more such windows")
    return lines


def _pair_table(pair: Pair) -> list[str]:
    before, after = _clip(pair.before, 20), _clip(pair.after, 20)
    lines = [f"  {'seconds':<26}{before:>22}{after:>22}"]

    def row(name: str, left: str, right: str) -> None:
        lines.append(f"  {name:<26}{left:>22}{right:>22}")

    row("replay fidelity", arm_verdict(pair.runs_before), arm_verdict(pair.runs_after))
    row("failed requests", arm_failures(pair.runs_before), arm_failures(pair.runs_after))
    row("time to capacity", seconds_text(pair.capacity_before_us), seconds_text(pair.capacity_after_us))
    row("start-up", seconds_text(pair.startup_before_us), seconds_text(pair.startup_after_us))
    if pair.pull is not None:
        pull = pair.pull
        row("pull (from the pair)", seconds_text(pull.before_us), seconds_text(pull.after_us))
        row(
            "  bounds",
            f"[{span_text(pull.before_lo_us, pull.before_hi_us)}]",
            f"[{span_text(pull.after_lo_us, pull.after_hi_us)}]",
        )
    if pair.download_before is not None and pair.download_after is not None:
        row("model download", seconds_text(pair.download_before.at_us), seconds_text(pair.download_after.at_us))
    if pair.split is not None:
        lines += ["", f"  {'where the change comes from':<48}{'s':>22}"]
        s = pair.split
        for name, us in (
            (BEYOND_DOWNLOAD, s.structural),
            (FASTER_ALONE, s.relief),
            (EVERYTHING_ELSE, s.rest),
            ("sum", pair.delta_us),
        ):
            lines.append(f"  {name:<50}{us / US_PER_S:>20.1f}")
        for name, words in SPLIT_WORDS.items():
            lines += _wrapped(f"{name}: {words}", first="  ", rest="    ")
    if pair.sensitivity is not None:
        lines += _wrapped(order_words(pair.sensitivity), first="  ", rest="    ")
    return lines


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    clean = "".join(c if c.isprintable() else "�" for c in text)
    return textwrap.wrap(clean, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


__all__ = ["WIDTH", "comparison_text", "format_duration", "report_text", "run_text"]
