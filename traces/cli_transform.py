"""`ramptrace trace transform`: change a trace step by step, and record each step in the file that comes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traces.cli_options import check_outputs, declaring_options, open_declared, output_options
from traces.terminal import print_json, print_pairs

if TYPE_CHECKING:
    from traces.shaping import Shaped

_ORDER = "ramptrace.steps"


def _note(ctx: click.Context, option: click.Parameter, values: tuple[str, ...]) -> None:
    """Note the steps as they are given: click calls this in the order of the command line."""
    name = str(option.opts[0]).removeprefix("--")
    if len(values) > 1 and name != "merge":
        raise click.UsageError(f"{option.opts[0]} is given {len(values)} times; transform the result once more instead")
    ctx.meta.setdefault(_ORDER, []).extend((name, value) for value in values)


def _step(option: str, metavar: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(option, metavar=metavar, help=text, multiple=True, callback=_note, expose_value=False)


@click.command(short_help="Change a trace step by step, and record each step.")
@click.argument("file", metavar="FILE")
@declaring_options
@output_options("Parquet file.")
@_step("--window", "START..END", "Keep what arrives inside, such as 10m..25m.")
@_step("--time-scale", "FACTOR", "Play FACTOR times as fast.")
@_step(
    "--rate-scale",
    "FACTOR|sampling",
    "FACTOR times the traffic: thinned below 1, superposed above; sampling takes 100 / --sampling-percent.",
)
@click.option("--rate-jitter", default="10s", show_default=True, help="How far --rate-scale displaces copies.")
@_step("--jitter-ties", "WIDTH|auto", "Spread rows that share a stamp; auto takes the source's own time grid.")
@_step("--loop", "TIMES|DURATION", "Repeat, TIMES in all, or until DURATION (such as 2h) has passed.")
@_step("--merge", "FILE", "Add another trace, found by content. May be given several times.")
@click.option(
    "--merge-by",
    type=click.Choice(["start", "clock"]),
    default="start",
    show_default=True,
    help="Align what is merged by both starts, or by the recorded times.",
)
@_step("--model", "NAME,…", "Keep requests for these models.")
@_step("--clamp-tokens", "BOUNDS", "Move lengths into bounds, such as input=..8192,output=1..512.")
@_step("--shift-zone", "ZONE", "Read the source's clock as local to ZONE, such as Europe/Berlin or +02:00.")
@click.option("--seed", default=0, show_default=True, help="Seed of whatever is drawn, in reading and in the steps.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def transform(
    ctx: click.Context,
    /,
    file: str,
    *,
    output: Path,
    force: bool,
    rate_jitter: str,
    merge_by: str,
    seed: int,
    as_json: bool,
    **declared: Any,
) -> None:
    """Change FILE step by step and write OUTPUT, a Parquet file.

    Steps apply in the order in which they are given. OUTPUT's metadata names each with its parameters and seed, and a
    replay of it repeats them in its manifest. What each does to burstiness is in docs/traces-shaping.md.
    """
    from traces import shaping
    from traces.errors import BadInputError
    from traces.lineage import metadata
    from traces.readers import own

    steps = ctx.meta.get(_ORDER, [])
    if not steps:
        raise BadInputError("nothing to do: name at least one step, such as --window 10m..25m; see --help")
    check_outputs([output], [file, *(value for name, value in steps if name == "merge")], force=force)
    drawing = shaping.Drawing(seed=seed, jitter=rate_jitter, merge_by=merge_by)
    shaped = before = shaping.load(open_declared(file, seed=seed, **declared))
    for name, value in steps:
        shaped = shaping.apply(shaped, name, value, drawing)
    own.write(output, shaped.frame, shaped.origin_us, metadata(shaped.steps), sampling_percent=shaped.sampling_percent)
    _report(before, output, shaped, as_json=as_json)


def _report(before: Shaped, output: Path, shaped: Shaped, *, as_json: bool) -> None:
    import msgspec
    import polars as pl

    from traces.describe import describe

    old, new = describe(before.frame), describe(pl.scan_parquet(output))
    made = shaped.steps[len(before.steps) :]
    if as_json:
        kept = ("rows", "span_us", "mean_rate_per_s", "dispersion")
        sides = {
            name: {key: value for key, value in msgspec.to_builtins(side).items() if key in kept}
            for name, side in (("before", old), ("after", new))
        }
        print_json({"schema": 1, "output": str(output), **sides, "steps": msgspec.to_builtins(made)})
        return
    rows = {"rows": f"{old.rows:,} → {new.rows:,}"}
    rows |= {
        f"index of dispersion, {window}": f"{_figure(old.dispersion[window])} → {_figure(new.dispersion[window])}"
        for window in old.dispersion
    }
    rows |= {f"step {i}": _words(step.name, step.parameters, step.seed) for i, step in enumerate(made, 1)}
    print_pairs(str(output), rows)


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def _words(name: str, parameters: dict[str, Any], seed: int | None) -> str:
    """Return a step in words; what was merged is named by its file."""
    shown = {key: value[-1]["parameters"]["file"] if key == "with" else value for key, value in parameters.items()}
    listed = ", ".join(f"{key} {value}" for key, value in shown.items())
    return f"{name}: {listed}" + ("" if seed is None else f", seed {seed}")
