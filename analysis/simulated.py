"""What `ramptrace simulate` needs of the analysis; the command line hands it over: rooms do not import each other."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.analyse import RunAnalysis, analyse_run
from analysis.entry import SCHEMA, run_entry
from analysis.pareto import front, label, objectives
from analysis.profile import fit_profile
from analysis.report.store import write_results

__all__ = ["SCHEMA", "analysed", "entries", "fit_profile", "picture", "texts", "with_front"]


def analysed(paths: Sequence[Path]) -> list[RunAnalysis]:
    """Return the analyses of runs, also written into them."""
    found = [analyse_run(path) for path in paths]
    for one in found:
        write_results(one)
    return found


def entries(found: Sequence[RunAnalysis]) -> list[dict[str, Any]]:
    """Return the `runs` of the JSON output."""
    return [run_entry(one) for one in found]


def texts(found: Sequence[RunAnalysis]) -> str:
    """Return the summaries, one below the other."""
    from analysis.report.text import run_text

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return "\n\n".join(run_text(one, colour=colour) for one in found)


def with_front(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return sweep points with `name`, and `pareto`: whether nothing beats it."""
    best = front([objectives(point) for point in points])
    return [{"name": label(point, points), **point, "pareto": on} for point, on in zip(points, best, strict=True)]


def picture(sweep: dict[str, Any], path: Path) -> Path | None:
    """Write the sweep's picture; None where the `report` extra is not installed."""
    if importlib.util.find_spec("altair") is None or importlib.util.find_spec("vl_convert") is None:
        return None
    from analysis.report.pareto import write_picture

    return write_picture(sweep, path)
