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
@click.option(
    "--svg",
    "pictures",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write each chart as SVG and PNG.",
)
@click.option("--text", "as_text", is_flag=True, help="Print the report for a terminal, and write no HTML file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object that names what was written.")
def report(runs: tuple[str, ...], output: Path | None, pictures: Path | None, as_text: bool, as_json: bool) -> None:
    """Write a run's report, or that of several with their comparison, as one offline HTML file.

    \b
    ramptrace report runs/before
    ramptrace report runs/before runs/after -o change.html --svg pictures
    ramptrace report runs/before --text
    """  # noqa: D301 - click wants the character, not its escape
    from analysis.analyse import analyse_run
    from analysis.compare import compare_runs
    from analysis.entry import SCHEMA, run_entry
    from analysis.locations import opened
    from analysis.report.store import write_results
    from traces.errors import BadInputError

    if as_text and (as_json or output is not None):
        raise BadInputError("--text prints the report and writes no file: leave out --json and -o, or --text")
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
        document: dict[str, Any] = {"schema": SCHEMA, "runs": [run_entry(one) for one in found]}
        if not as_text:
            from analysis.report.html import write_report

            path = write_report(found, comparison, output)
            # A run from S3 has its own report put back there; the local one goes.
            document["report"] = str(path) if output is not None else f"{runs[0].rstrip('/')}/{path.name}"
        if pictures is not None:
            from analysis.report.html import sections
            from analysis.report.pictures import write_pictures

            document["pictures"] = [str(file) for file in write_pictures(sections(found, comparison)[1], pictures)]
    if as_json:
        _print_json(document)
        return
    if as_text:
        from analysis.report.text import report_text

        click.echo(report_text(found, comparison, colour=_colour()))
    else:
        click.echo(f"report: {document['report']}")
    if pictures is not None:
        click.echo(f"pictures: {len(document['pictures'])} files in {pictures}", err=as_text)


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
