"""The report: one HTML file that opens offline, loads nothing, and runs no script but its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from analysis.analyse import RunAnalysis
from analysis.compare import Comparison
from analysis.report.markup import Markup, element, joined, json_block
from analysis.report.pair_sections import comparison_section
from analysis.report.parts import Charts
from analysis.report.sections import run_section
from analysis.report.style import CSS
from analysis.report.words import EMULATED, arm_verdict, failed_words, pair_headline, run_headline
from traces.errors import BadInputError
from traces.offline import content_policy, vega_script
from traces.run import write_atomically

_MOUNT: Final = """
for (const [id, spec] of Object.entries(JSON.parse(document.getElementById('charts').textContent))) {
  vegaEmbed('#' + id, spec, {mode: 'vega-lite', ast: true, renderer: 'svg', actions: false, defaultStyle: false,
    loader: {target: null}}).catch(error => { document.getElementById(id).textContent = 'chart failed: ' + error; });
}
"""
"""Draws the charts. `ast` makes Vega interpret expressions, so that the page needs no `unsafe-eval`."""

_BADGES: Final = {"DEGRADED": "DEGRADED", "INVALID": "INVALID", "unknown": "NOT JUDGED"}
_NOT_VALID: Final = "how well the load generator held its schedule, of the worst run; see replay fidelity"


def write_report(runs: Sequence[RunAnalysis], comparison: Comparison | None = None, output: Path | None = None) -> Path:
    """Write the report of one run, or of several with their comparison, and return where it lies.

    Without `output` it goes to `report.html` in the first run's directory.
    """
    path = output if output is not None else runs[0].path / "report.html"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page(runs, comparison).encode())
    except OSError as error:
        raise BadInputError(
            f"{path}: the report cannot be written ({error.strerror}); choose another place with -o"
        ) from error
    return path


def sections(runs: Sequence[RunAnalysis], comparison: Comparison | None) -> tuple[list[Markup], Charts]:
    """Return the report's sections, and the charts that belong into their places."""
    charts: Charts = {}
    body = [] if comparison is None else [comparison_section(comparison, charts)]
    alone = comparison is None and len(runs) == 1
    body += [run_section(run, charts, number, alone=alone) for number, run in enumerate(runs, 1)]
    return body, charts


def page(runs: Sequence[RunAnalysis], comparison: Comparison | None) -> str:
    """Return the whole page."""
    body, charts = sections(runs, comparison)
    sentence = pair_headline(comparison.pairs[0]) if comparison is not None else run_headline(runs[0])
    emulated = any(run.manifest.emulated for run in runs)
    verdict = arm_verdict(runs)
    failed = [(run.manifest.condition or run.manifest.run_id, failed_words(run)) for run in runs]
    script = Markup(vega_script(_MOUNT))
    title = " against ".join(run.manifest.condition or run.manifest.run_id for run in runs)
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{content_policy(script)}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        element("title", f"ramptrace: {title}"),
        element("style", Markup(CSS)),
    )
    banner = element(
        "header",
        element(
            "p",
            "ramptrace",
            element("span", "EMULATED", class_="badge", title=EMULATED) if emulated else None,
            None if verdict == "VALID" else element("span", _BADGES[verdict], class_="badge", title=_NOT_VALID),
            class_="brand",
        ),
        element("h1", sentence),
        element("p", EMULATED + ".", class_="emulated") if emulated else None,
        *(element("p", f"{name}: {words}.", class_="warning") for name, words in failed if words),
        element("noscript", element("p", "Charts need JavaScript; every figure is in the tables too.")),
    )
    content = element("body", banner, element("main", *body), json_block("charts", charts), element("script", script))
    return f"<!doctype html>\n{element('html', head, content, lang='en')}\n"


__all__ = ["joined", "page", "sections", "write_report"]
