"""The commands `analyse`, `report` and `compare`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from analysis.analyse import RunAnalysis
    from analysis.reached import Objective

_FILE = click.Path(path_type=Path)


def _objective_options(command: Any) -> Any:
    """Add the options that say what users should get, and what a unit costs."""
    options = (
        click.option(
            "--slo-ttft", default="2s", show_default=True, metavar="T",
            help="A request is late when its first token comes later than this after it was due (endpoint time).",
        ),
        click.option(
            "--slo-share", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True,
            help="The share of requests that should not be late.",
        ),
        click.option(
            "--price-per-unit-hour", type=click.FloatRange(min=0), metavar="N",
            help="What one unit costs per hour; idle capacity is then stated as money too.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("run")
@_objective_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the summary.")
def analyse(run: str, as_json: bool, **asked: Any) -> int:
    """Attribute a run's time to capacity; results also go to RUN/analysis/.

    RUN is a run directory, or s3://BUCKET/PREFIX.

    \b
    ramptrace analyse runs/20261201T120000Z-demo

    Exit code 2 after a summary: it is whole, but could not be saved into RUN.
    """  # noqa: D301 - click wants the character, not its escape
    from analysis.analyse import analyse_run
    from analysis.entry import SCHEMA, run_entry
    from analysis.locations import opened
    from analysis.report.text import run_text

    with opened([run]) as [path]:
        found = analyse_run(path, *_asked(asked))
        unsaved = _unsaved(found)
    if as_json:
        _print_json({"schema": SCHEMA, "runs": [run_entry(found)]})
    else:
        click.echo(run_text(found, colour=_colour()))
        elsewhere = " -o FILE" if unsaved else ""
        click.echo(f"\nnext: ramptrace report {shlex.quote(run)}{elsewhere}")
    return unsaved


@click.command()
@click.argument("runs", nargs=-1, required=True)
@click.option(
    "-o", "--output", type=_FILE, help="The HTML file to write; RUN/report.html of the first run if not given."
)
@_objective_options
@click.option(
    "--svg",
    "pictures",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write each chart as SVG and PNG.",
)
@click.option("--text", "as_text", is_flag=True, help="Print the report for a terminal, and write no HTML file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object that names what was written.")
def report(
    runs: tuple[str, ...],
    output: Path | None,
    pictures: Path | None,
    as_text: bool,
    as_json: bool,
    **asked: Any,
) -> int:
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
    from traces.errors import BadInputError

    if as_text and (as_json or output is not None):
        raise BadInputError("--text prints the report and writes no file: leave out --json and -o, or --text")
    with opened(runs) as paths:
        found = [analyse_run(path, *_asked(asked)) for path in paths]
        comparison = None
        if len(found) > 1:
            try:
                comparison = compare_runs(found)
            except BadInputError as error:
                click.echo(f"the report has no comparison: {error}", err=True)
        unsaved = max(_unsaved(one) for one in found)
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
        return unsaved
    if as_text:
        from analysis.report.text import report_text

        click.echo(report_text(found, comparison, colour=_colour()))
    else:
        click.echo(f"report: {document['report']}")
    if pictures is not None:
        click.echo(f"pictures: {len(document['pictures'])} files in {pictures}", err=as_text)
    return unsaved


@click.command()
@click.argument("runs", nargs=-1, required=True)
@click.option(
    "--control",
    "controls",
    multiple=True,
    metavar="RUN",
    help="A run where the change could not act: what changed there is taken off. May be given several times.",
)
@click.option("-o", "--output", type=_FILE, help="Also write the comparison as an HTML report.")
@click.option("--plan", is_flag=True, help="Say how many bursts would tell which change.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the summary.")
def compare(runs: tuple[str, ...], controls: tuple[str, ...], output: Path | None, plan: bool, as_json: bool) -> None:
    """Compare runs: what changed, and why. The first is "before"; runs of equal condition form one arm.

    \b
    ramptrace compare runs/before runs/after -o change.html
    ramptrace compare runs/before runs/after --control runs/g4-before --control runs/g4-after
    ramptrace compare --plan runs/before-*
    """  # noqa: D301 - click wants the character, not its escape
    from analysis.analyse import analyse_run
    from analysis.compare import compare_runs
    from analysis.compare_entry import comparison_entry
    from analysis.locations import opened
    from analysis.report.text import comparison_text

    with opened([*runs, *controls]) as paths:
        analysed = [analyse_run(path) for path in paths]
        found, controlling = analysed[: len(runs)], analysed[len(runs) :]
        if plan:
            from analysis.plan import plan_entry, plan_of, plan_text

            made = plan_of(found)
            if as_json:
                _print_json(plan_entry(made))
            else:
                click.echo(plan_text(made))
            return
        comparison = compare_runs(found, controlling)
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


def _asked(options: dict[str, Any]) -> tuple[Objective, float | None]:
    """Return what `_objective_options` were given."""
    from analysis.reached import Objective
    from traces.units import parse_duration_us

    objective = Objective(ttft_us=parse_duration_us(options["slo_ttft"]), share=options["slo_share"])
    return objective, options["price_per_unit_hour"]


def _unsaved(found: RunAnalysis) -> int:
    """Save a run's results; where that cannot be done, say so and return the exit code for it, else 0.

    What was found is worth printing also where a run directory is read-only or its disk is full.
    """
    from analysis.report.store import write_results
    from traces.errors import BadInputError

    try:
        write_results(found)
    except BadInputError as error:
        click.echo(f"ramptrace: {error}", err=True)
        return error.exit_code
    return 0


def _print_json(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, ensure_ascii=False, allow_nan=False))


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
