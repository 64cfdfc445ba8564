"""The command `collect`. Imports only click at the top: the rest is heavy, and must not meet gevent."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from loadgen.scenario import CollectSection


_WATCHING = (
    click.option("--endpoint-name", help="SageMaker endpoint to watch."),
    click.option("--variant", help="Production variant to watch.  [default: AllTraffic]"),
    click.option("--inference-component", help="Inference component to watch."),
    click.option("--ecs", metavar="CLUSTER/SERVICE", help="ECS service to watch."),
    click.option("--ec2", metavar="GROUP", help="EC2 Auto Scaling group to watch."),
    click.option("--kubernetes", metavar="[NAMESPACE/]DEPLOYMENT", help="Kubernetes Deployment to watch."),
    click.option("--probe", multiple=True, metavar="UNIT=URL", help="Unit to ask for its health; may be repeated."),
    click.option("--region", help="AWS region.  [default: as AWS is set up]"),
    click.option("--endpoint-url", help="Address that replaces all of AWS's own."),
    click.option("--emulator", "emulator_url", help="Address of an emulator whose clock to read."),
)


def watching(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say what to watch, and where."""
    for option in reversed(_WATCHING):
        command = option(command)
    return command


@click.command(short_help="Collect scaling events alone.")
@click.argument("scenario", required=False, type=click.Path(path_type=Path))
@click.option("--attach", type=click.Path(path_type=Path), help="Collect into this run, for the replay that made it.")
@click.option("--run-dir", help="Where to make the run; may be s3://BUCKET/PREFIX.  [default: runs/<time>-…]")
@watching
@click.option("--since", help="Read a past stretch instead: an instant (2026-07-01T10:00:00Z), or how long ago (6h).")
@click.option("--until", help="Where the past stretch ends.  [default: now]")
@click.option("--duration", help="How long to collect, in endpoint time, such as 10m.  [default: until Ctrl-C]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def collect(
    ctx: click.Context,
    /,
    *,
    scenario: Path | None,
    attach: Path | None,
    duration: str | None,
    since: str | None,
    until: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Read what the platform tells about a scale-out: states, activities, alarms, metrics, logs, reported durations.

    Reads only. What to watch (SageMaker, ECS, EC2 Auto Scaling, Kubernetes, addresses) comes from [collect] of a
    SCENARIO, from options, or, with --attach, from a replay's run. With --attach it prints {"ready": true} once every
    source was tried; SIGTERM, or the end of standard input, tells it that the load has ended, and it goes on for the
    tail.

    With --since it reads a past stretch from what the platform still keeps (six weeks of scaling activities, two of
    alarm history, metrics and logs), makes a run of it, and says which sources had expired.
    """
    if since is None and until is not None:
        raise click.UsageError("--until goes with --since")
    if attach is not None:
        _attach(attach)
    elif since is not None:
        _backfill(scenario, since, until, as_json, **options)
    else:
        ctx.exit(_alone(scenario, duration, as_json, **options))


def _attach(run_dir: Path) -> None:
    import asyncio

    from loadgen.collect.session import attach

    written = asyncio.run(attach(run_dir, say=_say, on_ready=lambda: _print(json.dumps({"ready": True}))))
    _print(json.dumps({"ended": True, **written}))


def _backfill(
    scenario: Path | None,
    since: str,
    until: str | None,
    as_json: bool,
    *,
    run_dir: str | None,
    emulator_url: str | None,
    **options: str | None,
) -> None:
    import asyncio

    import msgspec

    from loadgen.collect.backfill import backfill
    from loadgen.mirroring import local_run

    section, directory, condition, emulator = settings(scenario, options)
    with local_run(run_dir, directory, _name_now("backfill")) as place:
        path, told = asyncio.run(
            backfill(
                section,
                since,
                until,
                run_dir=place,
                directory=directory,
                condition=condition,
                emulator_url=emulator_url or emulator,
                say=_say,
            )
        )
    if as_json:
        _print(json.dumps({"schema": 1, "run": str(path), "sources": msgspec.to_builtins(told)}))
        return
    for one in told:
        detail = f"  {one.detail}" if one.detail else ""
        _print(f"{one.source:42} {one.kept:8} {one.observations:5} observations {one.samples:6} samples{detail}")
    _print(f"{path}: ramptrace analyse {path}")


def _alone(
    scenario: Path | None,
    duration: str | None,
    as_json: bool,
    *,
    run_dir: str | None,
    emulator_url: str | None,
    **options: str | None,
) -> int:
    import asyncio

    from loadgen.collect.session import alone
    from loadgen.mirroring import local_run
    from traces.errors import EXIT_INTERRUPTED
    from traces.units import parse_duration_us

    section, directory, condition, emulator = settings(scenario, options)
    duration_us = None if duration is None else parse_duration_us(duration)
    with local_run(run_dir, directory, _name_now("collect")) as place:
        path, written, interrupted = asyncio.run(
            alone(
                section,
                run_dir=place,
                directory=directory,
                condition=condition,
                emulator_url=emulator_url or emulator,
                duration_us=duration_us,
                say=_say,
            )
        )
    if as_json:
        _print(json.dumps({"schema": 1, "run": str(path), "interrupted": interrupted, "rows": written}))
    else:
        _print(f"{path}: " + ", ".join(f"{count} {table}" for table, count in written.items()))
    return EXIT_INTERRUPTED if interrupted else 0


def _name_now(kind: str) -> str:
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{kind}"


def settings(scenario: Path | None, options: dict[str, Any]) -> tuple[CollectSection, str, str | None, str | None]:
    """Return the section, the directory for runs, the condition and the emulator's address; options override."""
    import msgspec

    from loadgen.scenario import CollectSection
    from loadgen.scenario_file import load_scenario
    from traces.errors import BadInputError

    if "@" in (options.get("endpoint_url") or ""):
        raise BadInputError("--endpoint-url must hold no user name or password; it is written to the run's manifest")
    given = _platforms({name: value for name, value in options.items() if value})
    if scenario is None:
        if not given.keys() & _WATCHED:
            raise BadInputError(
                "nothing to watch; give a SCENARIO with [collect], or one of --endpoint-name, --ecs, --ec2, "
                "--kubernetes, --probe"
            )
        return msgspec.convert(given, CollectSection), "runs", None, None
    loaded = load_scenario(scenario)
    if loaded.collect is None and not given.keys() & _WATCHED:
        raise BadInputError(f"{scenario}: it has no [collect]; add one, or give --endpoint-name or another platform")
    base = {} if loaded.collect is None else msgspec.to_builtins(loaded.collect)
    section = msgspec.convert(base | given, CollectSection)
    emulator = loaded.emulator.url if loaded.emulator else None
    return section, loaded.run.directory, loaded.run.condition, emulator


_WATCHED = {"endpoint_name", "ecs", "ec2", "kubernetes", "probe"}


def _platforms(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with each platform as its table of a scenario."""
    from traces.errors import BadInputError

    if "ecs" in given:
        cluster, slash, service = given["ecs"].partition("/")
        if not slash or not cluster or not service:
            raise BadInputError(f'--ecs: "{given["ecs"]}" is not CLUSTER/SERVICE, such as default/my-service')
        given["ecs"] = {"cluster": cluster, "service": service}
    if "ec2" in given:
        given["ec2"] = {"group": given["ec2"]}
    if "kubernetes" in given:
        namespace, _, deployment = given["kubernetes"].rpartition("/")
        given["kubernetes"] = {"namespace": namespace or "default", "deployment": deployment}
    if "probe" in given:
        units = dict(pair.partition("=")[::2] for pair in given["probe"])
        for unit, url in units.items():
            if not unit or not url.startswith(("http://", "https://")):
                raise BadInputError(f'--probe: "{unit}={url}" is not UNIT=URL, such as a=http://10.0.0.7:8000')
        given["probe"] = {"units": units}
    return given


def _say(line: str) -> None:
    """Write a line of progress; a reader that went away is no reason to stop collecting."""
    with contextlib.suppress(OSError):
        click.echo(f"collect: {line}", err=True)


def _print(line: str) -> None:
    try:
        click.echo(line)
        sys.stdout.flush()
    except OSError:
        # The parent is gone. What is buffered cannot be written any more, and must not be tried again at exit.
        sys.stdout = None
