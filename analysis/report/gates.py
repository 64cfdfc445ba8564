"""What came of a run's thresholds: for a terminal, as JSON, as JUnit XML, and as Markdown for a job's summary."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

import msgspec

from analysis.analyse import RunAnalysis
from analysis.gate import Judgement, Measured, Undecided
from traces.errors import GateFailedError, InvalidRunError

MARKS: Final = {"pass": "✓", "fail": "✗", "inconclusive": "?", "skipped": "–"}
MARKDOWN_BYTES: Final = 1_000_000
"""GitHub takes step summaries up to 1 MiB."""
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#!|~<>&@])")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The judgements on one run. `undecided` says what an inconclusive one counts as."""

    run: RunAnalysis
    judgements: tuple[Judgement, ...]
    undecided: Undecided

    def is_failed(self, found: Judgement) -> bool:
        """Tell whether a judgement fails the run."""
        return found.status == "fail" or (found.status == "inconclusive" and self.undecided == "fail")

    def is_skipped(self, found: Judgement) -> bool:
        """Tell whether a judgement says nothing about the run."""
        return found.status == "skipped" or (found.status == "inconclusive" and self.undecided == "skip")

    @property
    def is_unclosed(self) -> bool:
        """Whether nobody closed the run: what was measured is what had been written until then."""
        return self.run.manifest.state == "running"

    @property
    def remarks(self) -> list[str]:
        """What to know of the run itself, a sentence each."""
        unclosed = ["the run was never closed: its replay was killed, or it still runs"] if self.is_unclosed else []
        return [*unclosed, *self.run.fidelity["reasons"]]

    @property
    def exit_code(self) -> int:
        """5 for an INVALID run, which never passes; 3 when a threshold failed or nothing could be judged; else 0."""
        if self.run.fidelity["verdict"] == "INVALID":
            return InvalidRunError.exit_code
        failed = any(self.is_failed(found) for found in self.judgements)
        nothing = all(map(self.is_skipped, self.judgements))
        return GateFailedError.exit_code if failed or nothing else 0

    @property
    def sentence(self) -> str:
        """What came of it all, in one sentence."""
        count = {status: sum(found.status == status for found in self.judgements) for status in MARKS}
        parts = ", ".join(f"{n} {status}" for status, n in count.items() if n)
        if self.run.fidelity["verdict"] == "INVALID":
            why = "it was never closed" if self.is_unclosed else "the load generator did not hold its schedule"
            return f"the run is INVALID, which is never a pass: {why} ({parts})"
        if self.exit_code and all(map(self.is_skipped, self.judgements)):
            return f"the gate failed: nothing could be judged ({parts})"
        return f"the gate {'failed' if self.exit_code else 'passed'}: {parts}"


def verdict_text(verdict: Verdict) -> str:
    """Return the gate for a terminal."""
    width = max(len(found.threshold.text) for found in verdict.judgements)
    lines = [
        f"  {MARKS[found.status]} {found.threshold.text:{width}}  {_status(verdict, found)}: {found.reason}"
        for found in verdict.judgements
    ]
    lines += [f"  ! {reason}" for reason in verdict.remarks]
    emulated = ["EMULATED: these figures come from an emulated endpoint"] if verdict.run.manifest.emulated else []
    return "\n".join([verdict.sentence, *lines, *emulated])


def _status(verdict: Verdict, found: Judgement) -> str:
    if found.status != "inconclusive":
        return found.status
    return f"inconclusive, counts as {verdict.undecided}"


def verdict_entry(verdict: Verdict) -> dict[str, Any]:
    """Return the documented JSON object. Times in seconds, shares as fractions; an endless bound is null."""
    return {
        "schema": 1,
        "run": verdict.run.manifest.run_id,
        "emulated": verdict.run.manifest.emulated,
        "verdict": verdict.run.fidelity["verdict"],
        "verdict_reasons": verdict.remarks,
        "passed": verdict.exit_code == 0,
        "inconclusive_counts_as": verdict.undecided,
        "gates": [
            {
                "expr": found.threshold.text,
                "status": found.status,
                "reason": found.reason,
                **_figures(found.measured, found.threshold.quantity.dimension == "time"),
            }
            for found in verdict.judgements
        ],
    }


def _figures(measured: Measured | None, is_time: bool) -> dict[str, float | int | None]:
    if measured is None:
        return {"value": None, "lo": None, "hi": None, "n": None}
    unit = 1e6 if is_time else 1.0

    def plain(value: float) -> float | None:
        return None if math.isinf(value) else value / unit

    return {"value": plain(measured.at), "lo": plain(measured.lo), "hi": plain(measured.hi), "n": measured.n}


def junit(verdict: Verdict) -> str:
    """Return JUnit XML: one test case per threshold, and one for the run's own validity."""
    run = verdict.run
    invalid = run.fidelity["verdict"] == "INVALID"
    failed = sum(map(verdict.is_failed, verdict.judgements)) + invalid
    skipped = sum(map(verdict.is_skipped, verdict.judgements))
    counts = {
        "tests": str(len(verdict.judgements) + 1),
        "failures": str(failed),
        "errors": "0",
        "skipped": str(skipped),
    }
    root = ET.Element("testsuites")
    suite = ET.SubElement(root, "testsuite", {"name": _xml(f"ramptrace {run.manifest.name}"), **counts, "time": "0"})
    properties = ET.SubElement(suite, "properties")
    told = {
        "run": run.manifest.run_id,
        "emulated": str(run.manifest.emulated).lower(),
        "verdict": run.fidelity["verdict"],
    }
    for name, value in told.items():
        ET.SubElement(properties, "property", {"name": name, "value": _xml(value)})
    case = _case(suite, run, "the load generator held its schedule")
    if invalid:
        _told(case, "failure", "; ".join(run.fidelity["reasons"]))
    for found in verdict.judgements:
        case = _case(suite, run, found.threshold.text)
        if verdict.is_skipped(found):
            _told(case, "skipped", found.reason)
        elif verdict.is_failed(found):
            _told(case, "failure", f"{found.status}: {found.reason}")
        else:
            ET.SubElement(case, "system-out").text = _xml(f"{found.status}: {found.reason}")
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _case(suite: ET.Element, run: RunAnalysis, name: str) -> ET.Element:
    known = {
        "classname": _xml(f"ramptrace.{run.manifest.condition or run.manifest.name}"),
        "name": _xml(name),
        "time": "0",
    }
    return ET.SubElement(suite, "testcase", known)


def _told(case: ET.Element, kind: str, message: str) -> None:
    ET.SubElement(case, kind, {"message": _xml(message)})


def _xml(text: str) -> str:
    """Return text that XML can hold: it has no way to write most control characters."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def markdown(verdict: Verdict, room_bytes: int = MARKDOWN_BYTES) -> str:
    """Return a summary of at most `room_bytes` for a job's page; what a name or a reason holds appears as text."""
    run = verdict.run
    rows = [_row(verdict, found) for found in verdict.judgements]
    head = [
        f"### {'✅' if verdict.exit_code == 0 else '❌'} {_plain(verdict.sentence)}",
        "",
        f"Run {_plain(run.manifest.run_id)}, fidelity {_plain(run.fidelity['verdict'])}"
        + (", **emulated**." if run.manifest.emulated else "."),
        "",
        "| | threshold | result | why |",
        "|---|---|---|---|",
    ]
    text = "\n".join([*head, *rows]) + "\n"
    if len(text.encode()) <= room_bytes:
        return text
    cut = "\n\nCut here: the whole is in the JUnit file.\n"
    kept = text.encode()[: max(room_bytes - len(cut), 0)].decode(errors="ignore")
    return kept[: max(kept.rfind("\n"), 0)] + cut if room_bytes >= len(cut) else ""


def _row(verdict: Verdict, found: Judgement) -> str:
    told = map(_plain, (found.threshold.text, _status(verdict, found), found.reason))
    return f"| {' | '.join((MARKS[found.status], *told))} |"


def _plain(text: str) -> str:
    """Return text as Markdown that shows it and does nothing else."""
    return _MARKDOWN.sub(lambda found: f"&#{ord(found[1])};", " ".join(text.split()))


def invalid_reasons(runs: Sequence[RunAnalysis]) -> list[str]:
    """Return which of the baseline's runs are INVALID: nothing may be compared with them."""
    return [str(run.path) for run in runs if run.fidelity["verdict"] == "INVALID"]
