"""The command that simulates in virtual time."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click

_EPILOG = """\b
Axes of --sweep, and what their values look like:
  metrics-resolution=10s,60s   image-cache=off,on       faster-loading=1x,3x
  warm-pool=0,2                min-instances=1,2        max-instances=3,6
  target=2,4                   schedule=off,60s:3       steps=target-tracking,0:+1/8:+2
  data-cache=off,on            reuse-share=0,0.5
"""


@click.command(epilog=_EPILOG)
@click.argument("scenario", required=False, type=click.Path(dir_okay=False))
@click.option("--profile", metavar="NAME", help="Endpoint to simulate: a bundled profile, or a TOML file from --fit.")
@click.option("--trace", metavar="FILE", help="Load: a file, or corpus:NAME  [default: corpus:reference-burst]")
@click.option("--image-cache", type=click.Choice(["on", "off"]), help="Whether new instances find the image cached.")
@click.option("--fit", multiple=True, metavar="RUN", help="Fit a profile to a measured run; to several of one machine.")
@click.option("--image-gb", type=float, help="Size of the image in GB, for --fit.")
@click.option("--model-gb", type=float, help="Size of the model in GB, for --fit.")
@click.option("-o", "--output", metavar="FILE", help="Where --fit saves  [default: RUN/analysis/profile.toml]")
@click.option("--sweep", multiple=True, metavar="AXIS=V,V", help="Values to combine with those of other axes.")
@click.option("--seed", default=0, show_default=True, help="First seed; the same seed gives the same run.")
@click.option("--seeds", type=click.IntRange(1, 10_000), help="How many seeds  [default: 1; 20 for a sweep]")
@click.option("--slo-ttft", default="2s", show_default=True, metavar="TIME", help="Later first tokens are damage.")
@click.option("--price", type=click.FloatRange(min=0), help="Price of an instance-hour.")
@click.option("--run-dir", metavar="DIR", help="Where to file it  [default: runs/<time>-<name>]")
@click.option("--condition", metavar="TEXT", help="What is varied, for a comparison.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def simulate(context: click.Context, /, *, fit: tuple[str, ...], sweep: tuple[str, ...], **options: Any) -> None:
    """Simulate a scenario's load against a modelled endpoint, in virtual time: hours in seconds, without a network.

    The run directory that results is like a replay's, and labelled emulated. With --sweep, variants of the endpoint are
    set against each other over many seeds. With --fit, the endpoint is fitted to a measured run first, saved as a
    profile, and tried on that run's own load.

    \b
    ramptrace simulate --profile sagemaker-qwen3-8b --image-cache off
    ramptrace simulate --fit runs/BEFORE --fit runs/AFTER -o endpoint.toml
    ramptrace simulate --profile endpoint.toml --sweep image-cache=off,on --sweep min-instances=1,2
    """  # noqa: D301 - click wants the character, not its escape
    from traces.errors import BadInputError

    if fit and sweep:
        raise BadInputError("--fit and --sweep are two steps: fit a profile first, then sweep with --profile FILE")
    if fit:
        document = _fit(context, [Path(run) for run in fit], **options)
    elif sweep:
        document = _sweep(context, sweep, **options)
    else:
        document = _runs(context, **options)
    if options["as_json"]:
        click.echo(json.dumps(document, allow_nan=False))


def _runs(context: click.Context, **options: Any) -> dict[str, Any]:
    from loadgen.emulator import simulate_job as job

    analysis: job.Analysis = context.obj.analysis()
    plan, folder = _plan(options)
    paths = job.simulate_runs(plan, folder, _seeds(options, 1))
    found = analysis.analysed(paths)
    if not options["as_json"]:
        click.echo(analysis.texts(found))
        click.echo(f"\nnext: ramptrace report {shlex.join(str(path) for path in paths[:2])}")
    return {"schema": 1, "runs": analysis.entries(found)}


def _sweep(context: click.Context, sweep: tuple[str, ...], **options: Any) -> dict[str, Any]:
    from loadgen.emulator import simulate_job as job
    from loadgen.emulator.levers import parse_axis
    from loadgen.emulator.outcome import Objective
    from loadgen.emulator.simulate_text import sweep_text
    from traces.units import US_PER_S, parse_duration_us

    analysis: job.Analysis = context.obj.analysis()
    axes = [parse_axis(text) for text in sweep]
    objective = Objective(ttft_s=parse_duration_us(options["slo_ttft"]) / US_PER_S, price_per_hour=options["price"])
    plan, folder = _plan(options)
    found = job.run_sweep(
        plan,
        axes,
        _seeds(options, 20),
        objective,
        currency=plan.scenario.prices.currency,
        analysis=analysis,
        progress=_show if sys.stderr.isatty() else lambda _done, _total: None,
    )
    files = job.write_sweep(found, folder, analysis)
    if not options["as_json"]:
        click.echo(sweep_text(found))
        click.echo("\n" + "\n".join(f"{name}: {path}" for name, path in files.items() if path))
        if files["picture"] is None:
            click.echo("no picture: it takes the `report` extra")
    return {"schema": 1, "sweep": found, "files": files}


def _fit(context: click.Context, runs: list[Path], **options: Any) -> dict[str, Any]:
    from loadgen.emulator import simulate_job as job
    from loadgen.emulator.simulate_text import check_text, fit_text
    from traces.errors import BadInputError

    beside = [name for name in ("profile", "trace", "scenario") if options[name] is not None]
    if beside:
        raise BadInputError(f"--fit takes load and endpoint from the run; leave out {', '.join(beside)}")
    analysis: job.Analysis = context.obj.analysis()
    cached = None if options["image_cache"] is None else options["image_cache"] == "on"
    output = None if options["output"] is None else Path(options["output"])
    document, path = job.save_fit(
        runs, output, analysis, image_gb=options["image_gb"], model_gb=options["model_gb"], image_cache=cached
    )
    scenario = job.scenario_of_run(runs[-1], str(path))
    folder = job.run_folder(scenario, options["run_dir"])
    paths = job.simulate_runs(job.plan_of(scenario, str(path)), folder, _seeds(options, 1))
    measured = analysis.entries(analysis.analysed([runs[-1]]))[0]
    simulated = analysis.entries(analysis.analysed(paths))
    names = ("time_to_capacity_s", "startup_s")
    check = {
        "observed": {name: _first(measured, name) for name in names},
        "simulated": {name: [_first(run, name) for run in simulated] for name in names},
    }
    if not options["as_json"]:
        click.echo(fit_text(document, str(path)))
        click.echo(check_text(check))
        click.echo(f"\nnext: ramptrace simulate --profile {shlex.quote(str(path))} --sweep image-cache=off,on")
    return {"schema": 1, "profile": str(path), "fit": document, "check": check, "runs": simulated}


def _plan(options: dict[str, Any]) -> tuple[Any, Path]:
    from loadgen.emulator import simulate_job as job

    scenario = job.scenario_of(
        options["scenario"], options["trace"], options["profile"], options["image_cache"], options["condition"]
    )
    return job.plan_of(scenario, options["profile"]), job.run_folder(scenario, options["run_dir"])


def _seeds(options: dict[str, Any], default: int) -> list[int]:
    return list(range(options["seed"], options["seed"] + (options["seeds"] or default)))


def _first(entry: dict[str, Any], name: str) -> float | None:
    found: float | None = entry["scale_outs"][0][name] if entry["scale_outs"] else None
    return found


def _show(done: int, total: int) -> None:
    if done % 10 == 0 or done == total:
        click.echo(f"\r{done}/{total} simulated", err=True, nl=done == total)
