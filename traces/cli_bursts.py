"""`ramptrace trace bursts`: the bursts of a trace, as windows ready to replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traces.cli_options import open_declared, reading_options
from traces.terminal import print_json, print_table

if TYPE_CHECKING:
    from traces.bursts import Burst, BurstReport


@click.command(short_help="Find, rank and cut the bursts of a trace.")
@click.argument("file", metavar="FILE")
@reading_options
@click.option(
    "--rise", default=2.0, show_default=True, help="How many times the baseline a burst is worth looking for."
)
@click.option("--baseline", metavar="DURATION", help="How far back traffic is compared.  [default: a tenth, 10s to 5m]")
@click.option("--threshold", default=12.0, show_default=True, help="Evidence asked for, in nats.")
@click.option("--top", default=10, show_default=True, help="How many bursts to list.")
@click.option("--scenario", is_flag=True, help="Print the highest burst as a scenario's [trace] table.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def bursts(
    file: str,
    *,
    rise: float,
    baseline: str | None,
    threshold: float,
    top: int,
    scenario: bool,
    as_json: bool,
    **declared: Any,
) -> None:
    """List the bursts of FILE, the most pronounced first, each with a window for `replay --window`.

    A burst is where a Poisson CUSUM finds the rate risen above that of the stretch before it; a time grid in the stamps
    (Mooncake) does not count as one. docs/traces-shaping.md states the method.
    """
    import msgspec

    from traces.bursts import find_bursts
    from traces.errors import BadInputError
    from traces.units import parse_duration_us

    baseline_us = None if baseline is None else parse_duration_us(baseline)
    if not rise > 1 or not threshold > 0 or baseline_us == 0:
        raise BadInputError("expected --rise above 1, and --threshold and --baseline above 0")
    loaded = open_declared(file, **declared)
    found = find_bursts(loaded.scan(), rise=rise, threshold=threshold, baseline_us=baseline_us)
    if as_json:
        print_json({"schema": 1, "trace": file, **msgspec.to_builtins(found)})
    elif scenario:
        click.echo(_scenario(file, loaded.path, found))
    else:
        _print(file, found, top)


def _print(file: str, found: BurstReport, top: int) -> None:
    if not found.bursts:
        click.echo(f"no burst: nowhere does the rate rise to {found.rise:g} times that of the stretch before it")
        return
    heads = ("window", "from", "for", "requests", "rate", "baseline", "peak", "score", "")
    print_table(file, heads, [_row(burst) for burst in found.bursts[:top]])
    if len(found.bursts) > top:
        click.echo(f"{len(found.bursts) - top:,} more; see --top and --json", err=True)


def _row(burst: Burst) -> tuple[str, ...]:
    from traces.units import format_duration

    return (
        burst.window,
        format_duration(burst.start_us),
        format_duration(burst.end_us - burst.start_us),
        f"{burst.requests:,}",
        f"{burst.rate_per_s:.3g}/s",
        f"{burst.baseline_per_s:.3g}/s",
        f"{burst.peak_per_s:.3g}/s",
        f"{burst.score:.0f}",
        "" if burst.ended else "does not end",
    )


def _scenario(file: str, path: Path, found: BurstReport) -> str:
    """Return the TOML of the first burst; a file's path is made absolute, for the scenario may lie elsewhere."""
    import json

    from traces.errors import BadInputError

    if not found.bursts:
        raise BadInputError(f"{file}: no burst to make a scenario of; lower --rise or --threshold")
    source = file if file.startswith("corpus:") else str(path.resolve())
    # A JSON string is a TOML basic string.
    return f"[trace]\npath = {json.dumps(source)}\nwindow = {json.dumps(found.bursts[0].window)}"
