"""The commands `analyse`, `report` and `compare`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the summary.")
def analyse(run: str, as_json: bool) -> None:
    """Attribute a run's time to capacity; results also go to RUN/analysis/.

    RUN is a run directory, or s3://BUCKET/PREFIX.

    \b
    ramptrace analyse runs/20261201T120000Z-demo
    """  # noqa: D301 - click wants the character, not its escape
    from analysis.analyse import analyse_run
    from analysis.entry import SCHEMA, run_entry
    from analysis.locations import opened
    from analysis.report.store import write_results
    from analysis.report.text import run_text

    with opened([run]) as [path]:
        found = analyse_run(path)
        write_results(found)
    if as_json:
        _print_json({"schema": SCHEMA, "runs": [run_entry(found)]})
    else:
        click.echo(run_text(found, colour=_colour()))
        click.echo(f"\nnext: ramptrace report {shlex.quote(run)}")


@click.command()
@click.argument("runs", nargs=-1, required=True)
@click.option(
    "-o", "--output", type=_FILE, help="The HTML file to write; RUN/report.html of the first run if not given."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object that names the report.")
def report(runs: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Write a run's report, or that of several with their comparison, as one offline HTML file.

    \b
    ramptrace report runs/before
    ramptrace report runs/before runs/after -o change.html
    """  # noqa: D301 - click wants the character, not its escape
    from analysis.analyse import analyse_run
    from analysis.compare import compare_runs
    from analysis.entry import SCHEMA, run_entry
    from analysis.locations import opened
    from analysis.report.html import write_report
    from analysis.report.store import write_results
    from traces.errors import BadInputError

    with opened(runs) as paths:
        found = [analyse_run(path) for path in paths]
        comparison = None
        if len(found) > 1:
            try:
                comparison = compare_runs(found)
            except BadInputError as error:
                click.echo(f"the report has no comparison: {error}", err=True)
        for one in found:
            write_results(one)
        path = write_report(found, comparison, output)
        # A run from S3 has its own report put back there; the local one goes.
        written = str(path) if output is not None else f"{runs[0].rstrip('/')}/{path.name}"
    if as_json:
        _print_json({"schema": SCHEMA, "runs": [run_entry(one) for one in found], "report": written})
    else:
        click.echo(f"report: {written}")


@click.command()
@click.argument("runs", nargs=-1, required=True)
@click.option("-o", "--output", type=_FILE, help="Also write the comparison as an HTML report.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the summary.")
def compare(runs: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Compare runs: what changed, and why. The first is "before"; runs of equal condition form one arm.

    \b
    ramptrace compare runs/before runs/after -o change.html
    """  # noqa: D301 - click wants the character, not its escape
    from analysis.analyse import analyse_run
    from analysis.compare import compare_runs
    from analysis.compare_entry import comparison_entry
    from analysis.locations import opened
    from analysis.report.text import comparison_text

    with opened(runs) as paths:
        found = [analyse_run(path) for path in paths]
        comparison = compare_runs(found)
        written = None
        if output is not None:
            from analysis.report.html import write_report

            written = str(write_report(found, comparison, output))
    if as_json:
        _print_json(comparison_entry(comparison, written))
    else:
        click.echo(comparison_text(comparison))
        if written:
            click.echo(f"\nreport: {written}")


def _print_json(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, ensure_ascii=False, allow_nan=False))


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
