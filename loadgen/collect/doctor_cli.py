"""The command `doctor`. Imports only click at the top: the rest is heavy, and must not meet gevent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadgen.collect.cli import settings, watching

if TYPE_CHECKING:
    from loadgen.collect.doctor import Diagnosis

_MARKS = {"ok": "ok", "warn": "warn", "fail": "FAIL", "unknown": "?"}


@click.command(short_help="Check what can be seen of a scale-out, and what cannot.")
@click.argument("scenario", required=False, type=click.Path(path_type=Path))
@watching
@click.option("--print-policy", is_flag=True, help="Print the least-privilege policies instead; connects to nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(
    *,
    scenario: Path | None,
    emulator_url: str | None,
    print_policy: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Read everything that a collection of SCENARIO would read, once, and say what it will measure.

    Checks reachability, identity, each permission by a harmless read, metrics and alarms, scaling limits, routing,
    caches and clocks; says for each phase whether it will be measured, bounded or invisible, and the cheapest thing
    that would improve it. Exit code 3: something stands in the way of measuring a scale-out.
    """
    import asyncio

    from loadgen.collect.doctor import examine, needed_policies
    from traces.errors import GateFailedError

    section, _, _, emulator = settings(scenario, options)
    if print_policy:
        found = needed_policies(section)
        # One policy alone is printed as it can be used.
        click.echo(json.dumps(found if as_json or len(found) != 1 else next(iter(found.values())), indent=2))
        return 0
    diagnosis = asyncio.run(examine(section, emulator_url or emulator, _say))
    if as_json:
        click.echo(json.dumps(_entry(diagnosis)))
    else:
        _show(diagnosis)
    return GateFailedError.exit_code if diagnosis.failed else 0


def _entry(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "schema": 1,
        "ok": not diagnosis.failed,
        "findings": [finding._asdict() for finding in diagnosis.findings],
        "phases": [view._asdict() for view in diagnosis.phases],
        "policies": diagnosis.policies,
    }


def _show(diagnosis: Diagnosis) -> None:
    for finding in diagnosis.findings:
        click.echo(f"{_MARKS[finding.status]:5} {finding.topic:48} {finding.text}")
        if finding.advice:
            click.echo(f"      → {finding.advice}")
    if diagnosis.phases:
        click.echo("\nphase         seen as    by")
    for view in diagnosis.phases:
        click.echo(f"{view.phase:13} {view.sight:10} {view.source}")
        if view.advice:
            click.echo(f"{'':13} → {view.advice}")


def _say(line: str) -> None:
    click.echo(f"doctor: {line}", err=True)
