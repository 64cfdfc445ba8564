"""`ramptrace trace`: read, check and describe recorded traffic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traces.cli_options import check_outputs, open_declared, output_options, reading_options
from traces.lazy import LazyGroup
from traces.terminal import print_json as _print_json
from traces.terminal import print_pairs as _print_pairs
from traces.terminal import print_table as _print_table

if TYPE_CHECKING:
    from traces.lint import Finding
    from traces.readers import ImportReport, LoadedTrace

_EXIT_FINDINGS = 2


_ELSEWHERE = {
    "anonymise": ("traces.cli_share", "Take out of a trace what could tell whose it is."),
    "bursts": ("traces.cli_bursts", "Find, rank and cut the bursts of a trace."),
    "export": ("traces.cli_share", "Write a trace in another tool's format."),
    "info": ("traces.cli_info", "Describe a trace: rates, burstiness, lengths, reuse, sessions."),
    "plot": ("traces.cli_plot", "Draw a trace as SVG, PNG or HTML."),
    "synth": ("traces.cli_synth", "Make up a trace from stated distributions."),
    "transform": ("traces.cli_transform", "Change a trace step by step, and record each step."),
}


@click.group(name="trace", cls=LazyGroup, lazy=_ELSEWHERE)
def trace() -> None:
    """Read, check and describe recorded traffic.

    FILE is a path (also of a .gz or .zst file), a folder of files of one format, s3://BUCKET/KEY or a prefix, or
    corpus:NAME for a bundled trace.
    """


_file = click.argument("file", metavar="FILE")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_rejects = click.option(
    "--reject-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write each dropped row here, with its reason and its text (which may hold prompts), as JSON lines.",
)


@trace.command(name="import")
@_file
@reading_options
@output_options("Write the rows to this Parquet file.", required=False)
@_rejects
@_json
def import_(
    file: str, *, output: Path | None, force: bool, reject_file: Path | None, as_json: bool, **declared: Any
) -> None:
    """Read FILE, account for each of its rows, and write the valid ones with -o."""
    loaded = open_declared(file, **declared)
    check_outputs([output, reject_file], loaded.paths, force=force)
    if output is None:
        report = loaded.account()
    else:
        report = loaded.write(output)
        click.echo(f"wrote {report.rows_kept:,} rows to {output}", err=True)
    _keep_rejects(loaded, reject_file)
    document = {
        "schema": 1,
        "format": report.format,
        "rows_read": report.rows_read,
        "rows_kept": report.rows_kept,
        "dropped": report.dropped,
        "remarks": report.remarks,
        "sampling_percent": report.sampling_percent,
        "first_arrival": report.first_arrival,
        "last_arrival": report.last_arrival,
        "input_tokens": report.input_tokens,
        "output_tokens": report.output_tokens,
        "sha256": report.sha256,
        "output": None if output is None else str(output),
    }
    if as_json:
        _print_json(document)
        return
    _print_pairs(file, _import_rows(report))
    if output is None:
        click.echo("nothing was written; name a Parquet file with -o to keep the rows", err=True)


@trace.command()
@_file
@reading_options
@_rejects
@click.option("-f", "--force", is_flag=True, help="Replace a reject file that is there.")
@_json
def lint(file: str, *, reject_file: Path | None, force: bool, as_json: bool, **declared: Any) -> int:
    """Say what is odd about FILE, before it is replayed. Ends with exit code 2 when there are errors."""
    import msgspec

    from traces.lint import lint as findings_of

    loaded = open_declared(file, **declared)
    check_outputs([reject_file], loaded.paths, force=force)
    report = loaded.account()
    _keep_rejects(loaded, reject_file)
    findings = findings_of(loaded.scan(), report)
    errors = sum(finding.severity == "error" for finding in findings)
    if as_json:
        counts = {"format": report.format, "rows_read": report.rows_read, "rows_kept": report.rows_kept}
        _print_json({"schema": 1, **counts, "errors": errors, "findings": msgspec.to_builtins(findings)})
    else:
        _print_table(file, ("severity", "code", "row", "finding"), [_finding_row(finding) for finding in findings])
    return _EXIT_FINDINGS if errors else 0


@trace.command()
@_json
def corpus(as_json: bool) -> None:
    """List the bundled traces; use one as corpus:NAME."""
    import msgspec

    from traces import corpus as bundled

    entries = [bundled.entry(name) for name in bundled.names()]
    if as_json:
        _print_json({"schema": 1, "traces": msgspec.to_builtins(entries)})
        return
    rows = [(f"corpus:{made.name}", f"{made.rows:,}", f"{made.length_s:g} s", made.title) for made in entries]
    _print_table("bundled traces", ("name", "rows", "length", "what it is"), rows)


def _keep_rejects(loaded: LoadedTrace, reject_file: Path | None) -> None:
    if reject_file is None:
        return
    from traces.rejects import write_rejects

    count = write_rejects(reject_file, loaded.batches())
    click.echo(f"wrote {count:,} dropped rows to {reject_file}", err=True)


def _import_rows(report: ImportReport) -> dict[str, str]:
    from traces.cli_info import sampling_text

    dropped = {
        f"dropped: {reason.replace('_', ' ')}": f"{count:,} (first: row {report.examples[reason]:,})"
        for reason, count in report.dropped.items()
    }
    return {
        "format": report.format,
        "rows read": f"{report.rows_read:,}",
        "rows kept": f"{report.rows_kept:,}",
        **dropped,
        **{f"kept: {word.replace('_', ' ')}": f"{count:,}" for word, count in report.remarks.items()},
        **_extent_rows(report),
        "input tokens": "unknown" if report.input_tokens is None else f"{report.input_tokens:,}",
        "output tokens": "unknown" if report.output_tokens is None else f"{report.output_tokens:,}",
        **({} if report.sampling_percent is None else {"sampling": sampling_text(report)}),
        "sha256": report.sha256,
    }


def _extent_rows(report: ImportReport) -> dict[str, str]:
    from traces.units import format_duration

    span = {"span": format_duration(report.span_us)}
    if report.first_arrival is None:
        return span
    return {"first arrival": report.first_arrival, "last arrival": str(report.last_arrival), **span}


def _finding_row(finding: Finding) -> tuple[str, str, str, str]:
    return finding.severity, finding.code, "" if finding.row is None else str(finding.row), finding.message
