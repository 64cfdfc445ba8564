"""The command `gate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from analysis.gate import Undecided

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("run")
@click.option("--expr", "expressions", multiple=True, metavar="EXPR", help="A threshold, such as 'p95(ttft) < 2s'.")
@click.option("--baseline", "baselines", multiple=True, metavar="RUN", help="Run to compare with; may be repeated.")
@click.option(
    "--inconclusive",
    type=click.Choice(["fail", "pass", "skip"]),
    help="What a limit within the bounds counts as  [default: fail]",
)
@click.option(
    "--slo-ttft", default="2s", show_default=True, metavar="T", help="What late(requests) is measured against."
)
@click.option("--junit", "junit_file", type=_FILE, help="Write JUnit XML there.")
@click.option("--markdown", "markdown_file", type=_FILE, help="Append a Markdown summary there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the summary.")
def gate(
    run: str,
    *,
    expressions: tuple[str, ...],
    baselines: tuple[str, ...],
    inconclusive: Undecided | None,
    slo_ttft: str,
    junit_file: Path | None,
    markdown_file: Path | None,
    as_json: bool,
) -> int:
    """Hold a run against thresholds: those of its scenario's [gate], or of --expr.

    \b
    ramptrace gate runs/RUN --expr 'time_to_capacity.p50 < 4m' --expr 'p95(ttft) < 2s'
    ramptrace gate runs/RUN --baseline runs/LAST --expr 'regression(time_to_capacity, baseline) < 10%'

    A limit that lies within a value's bounds is inconclusive; what could not be measured is skipped, with the reason.

    Exit codes: 0 passed, 2 bad input, 3 failed, 5 the run is INVALID, which is never a pass.
    """  # noqa: D301 - click wants the character, not its escape
    from analysis.analyse import analyse_run
    from analysis.gate import gate_of, judge
    from analysis.locations import opened
    from analysis.reached import Objective
    from analysis.report.gates import (
        MARKDOWN_BYTES,
        Verdict,
        invalid_reasons,
        junit,
        markdown,
        verdict_entry,
        verdict_text,
    )
    from traces.errors import BadInputError
    from traces.run import RunDir
    from traces.thresholds import parse_threshold
    from traces.units import parse_duration_us

    with opened([run]) as [path]:
        section = gate_of(RunDir.open(path).manifest())
        thresholds = [parse_threshold(text) for text in expressions or section.thresholds]
        if not thresholds:
            raise BadInputError(f"{run}: its scenario has no [gate] thresholds; state some with --expr")
        compared = baselines or tuple(filter(None, [section.baseline]))
        objective = Objective(ttft_us=parse_duration_us(slo_ttft))
        found = analyse_run(path, objective)
        with opened(compared) as others:
            before = [analyse_run(other, objective) for other in others]
    if broken := invalid_reasons(before):
        raise BadInputError(f"{', '.join(broken)}: INVALID, nothing can be compared with it; name another --baseline")
    judgements = tuple(judge(one, found, before) for one in thresholds)
    verdict = Verdict(run=found, judgements=judgements, undecided=inconclusive or section.undecided)
    if junit_file is not None:
        _write(junit_file, junit(verdict))
    if markdown_file is not None:
        held = markdown_file.stat().st_size if markdown_file.is_file() else 0
        _write(markdown_file, markdown(verdict, MARKDOWN_BYTES - held), append=True)
    click.echo(json.dumps(verdict_entry(verdict), allow_nan=False) if as_json else verdict_text(verdict))
    return verdict.exit_code


def _write(path: Path, text: str, *, append: bool = False) -> None:
    from traces.errors import BadInputError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written ({error.strerror}); name another file") from error
