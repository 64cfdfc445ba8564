"""The commands that touch the world: `replay`, and, each from its own part, `collect`, `emulate`, `ui` and more."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadgen.scenario import Scenario

_ELSEWHERE = {
    "collect": "loadgen.collect.cli",
    "doctor": "loadgen.collect.doctor_cli",
    "emulate": "loadgen.emulator.cli",
    "mirror": "loadgen.mirroring",
    "soak": "loadgen.soak",
    "simulate": "loadgen.emulator.simulate_cli",
    "ui": "loadgen.live.cli",
}


def __getattr__(name: str) -> Any:
    """Return a command that lives in a part of its own, imported when it is used."""
    if name not in _ELSEWHERE:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(_ELSEWHERE[name]), name)


@click.command()
@click.argument("scenario", required=False, type=click.Path(dir_okay=False))
@click.option("--trace", metavar="FILE", help="Trace to replay: a file, or corpus:NAME.")
@click.option("--format", "fmt", metavar="NAME", help="Trace format, where it cannot be told from the content.")
@click.option("--window", metavar="START..END", help="Part of the trace, such as 0s..180s.")
@click.option("--target", metavar="URL", help="Address of the server.")
@click.option(
    "--kind", metavar="NAME", help="Kind of endpoint: openai, completions, tgi, triton, http, sagemaker, or installed."
)
@click.option("--model", metavar="NAME", help="Model to ask for; without it, what the server says it serves.")
@click.option("--endpoint-name", metavar="NAME", help="SageMaker endpoint.")
@click.option("--region", metavar="NAME", help="AWS region.")
@click.option("--emulator", metavar="URL", help="Emulator whose clock the run uses; found by itself on loopback.")
@click.option(
    "--run-dir", metavar="DIR", help="Directory for this run, or s3://BUCKET/PREFIX  [default: runs/<time>-<name>]"
)
@click.option("--condition", metavar="TEXT", help="What is varied, for a comparison.")
@click.option("--collect/--no-collect", default=None, help="Collect scaling events meanwhile, or not.")
@click.option("--max-in-flight", type=click.IntRange(min=0), help="Cap on requests in flight; 0 is no cap.")
@click.option("--loop", is_flag=True, default=None, help="Repeat the trace until --duration, or until it is stopped.")
@click.option("--duration", metavar="TIME", help="Send what arrives before this time, such as 90s or 12h.")
@click.option("--warm-up", metavar="TIME", help="What is due this early counts for no latency and no verdict.")
@click.option("--max-requests", type=click.IntRange(min=1), help="Refuse a plan with more requests.")
@click.option("--max-rate", type=float, metavar="N", help="Refuse a plan with more requests in any second.")
@click.option("--max-cost", type=float, metavar="N", help="Refuse a plan that costs more, at the scenario's [prices].")
@click.option(
    "--abort-on",
    multiple=True,
    metavar="RULE",
    help="End the run when this holds: errors>5%, lag>100ms or p99>30s. May be given several times.",
)
@click.option("--abort-grace", metavar="TIME", help="How long a rule has to hold  [default: 30s]")
@click.option("--yes", is_flag=True, help="Do not ask before much is sent to another machine.")
@click.option("--resume", metavar="RUN", help="Go on with a run that was stopped or killed, as it was begun.")
@click.option("--seed", type=int, help="Seed of the prompt texts.")
@click.option("--record-chunks", is_flag=True, default=None, help="Keep the instant of every chunk (chunk_us).")
@click.option("--no-stream", is_flag=True, help="Ask for whole answers instead of streams.")
@click.option("--workers", type=click.IntRange(min=1), help="Send from so many processes of this machine.")
@click.option("--master", is_flag=True, help="Have workers on other machines send: see docs/workers.md.")
@click.option("--expect-workers", type=click.IntRange(min=1), help="Master: begin when so many are connected.")
@click.option("--master-bind-host", default="127.0.0.1", show_default=True, help="Master: address to listen at.")
@click.option("--master-bind-port", default=5557, show_default=True, help="Master: port to listen at.")
@click.option("--worker", is_flag=True, help="Send what a master says; only --trace, --target and --run-dir besides.")
@click.option("--master-host", default="127.0.0.1", show_default=True, help="Worker: the master's address.")
@click.option("--master-port", default=5557, show_default=True, help="Worker: the master's port.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def replay(
    scenario: str | None,
    *,
    fmt: str | None,
    run_dir: str | None,
    collect: bool | None,
    abort_on: tuple[str, ...],
    yes: bool,
    resume: str | None,
    no_stream: bool,
    workers: int | None,
    master: bool,
    expect_workers: int | None,
    master_bind_host: str,
    master_bind_port: int,
    worker: bool,
    master_host: str,
    master_port: int,
    as_json: bool,
    **flags: Any,
) -> int:
    """Replay a trace, headless, and collect scaling events meanwhile.

    Each request is sent at its recorded arrival, whatever the server does. Ctrl-C or SIGTERM stops sending and keeps
    the data; answers under way get ten seconds more, a second one ends them at once. `--resume RUN` goes on where a run
    was stopped or killed.

    Exit codes: 0 ok, 2 bad input, 3 ended by an --abort-on rule, 4 target unreachable, 5 the schedule was not held
    (verdict INVALID), 130 interrupted.
    """
    import locust  # noqa: F401 - first: it patches ssl, which botocore must not have imported before

    from loadgen.filing import new_name
    from loadgen.mirroring import local_run
    from loadgen.options import resolve_scenario
    from traces.errors import BadInputError

    _one_way(workers=workers is not None, master=master, worker=worker, resume=resume is not None)
    flags |= {"format": fmt, "stream": False if no_stream else None, "abort_on": list(abort_on) or None}
    if worker:
        flags |= {"SCENARIO": scenario, "collect": collect, "master_host": master_host, "master_port": master_port}
        return _as_worker(flags, run_dir)
    if resume is not None:
        given = {**flags, "SCENARIO": scenario, "run_dir": run_dir, "collect": collect}
        resolved = _resumed_scenario(resume, given)
    else:
        resolved = resolve_scenario(scenario, collect=collect, **flags)
    from loadgen.headless import run_alone, run_master, run_with_workers

    if master and expect_workers is None:
        raise BadInputError("--master: how many workers? give --expect-workers N")
    confirm = _confirmer(yes=yes)
    if resume is not None:
        host = run_alone(resolved, resume=Path(resume), run_path=None, confirm=confirm)
    else:
        with local_run(run_dir, resolved.run.directory, new_name(resolved)) as path:
            session: dict[str, Any] = {"run_path": path, "confirm": confirm}
            if master:
                host = run_master(resolved, expect_workers or 1, (master_bind_host, master_bind_port), **session)
            elif workers is not None:
                host = run_with_workers(resolved, workers, **session)
            else:
                host = run_alone(resolved, resume=None, **session)
    if host.error is not None:
        raise host.error
    if host.summary is not None:
        click.echo(json.dumps(host.summary) if as_json else _as_text(host.summary))
    return host.exit_code()


def _one_way(**ways: bool) -> None:
    from traces.errors import BadInputError

    chosen = [f"--{name}" for name, given in ways.items() if given]
    if len(chosen) > 1:
        raise BadInputError(
            f"{' and '.join(chosen)} exclude each other"
            + ("; a run with workers cannot be gone on with" if "--resume" in chosen else "")
        )


@click.command()
@click.argument("run", type=click.Path(file_okay=False))
@click.argument("parts", nargs=-1, required=True, type=click.Path(file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def merge(run: str, parts: tuple[str, ...], *, as_json: bool) -> int:
    """Add to a run what its workers recorded in directories of their own, and judge it again.

    Only needed for a worker that was lost before the master had its rows.

    Exit codes: 0 ok, 2 not a worker's directory of this run, 5 verdict INVALID.
    """
    from loadgen.merging import merge_parts
    from traces.errors import InvalidRunError

    summary = merge_parts(Path(run), [Path(part) for part in parts])
    click.echo(json.dumps(summary) if as_json else _as_text(summary))
    return InvalidRunError.exit_code if summary["verdict"]["status"] == "INVALID" else 0


def _resumed_scenario(run: str, given: dict[str, Any]) -> Scenario:
    """Return the scenario of a run that is to be gone on with; options beside it would make it another run."""
    from loadgen.filing import refuse_remote, stopped_run, with_address
    from traces.errors import BadInputError

    target = given.pop("target")
    refuse_remote(run)
    beside = sorted(name for name, value in given.items() if value is not None)
    if beside:
        raise BadInputError(f"--resume goes on with the run's own scenario; leave out {', '.join(beside)}")
    return with_address(stopped_run(Path(run))[2], target, Path(run))


def _confirmer(*, yes: bool) -> Callable[[str], bool] | None:
    """Return who is asked before much is sent: nobody without a terminal, where a question would hang for ever."""
    if yes:
        return lambda _question: True
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


def _ask(question: str) -> bool:
    """Ask on the terminal, in a way that lets a Ctrl-C through while it waits."""
    import gevent.select

    click.echo(f"{question} [y/N] ", err=True, nl=False)
    gevent.select.select([sys.stdin], [], [])
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _as_worker(flags: dict[str, Any], run_dir: str | None) -> int:
    """Run as a worker; what is to be sent is the master's to say."""
    import logging

    from loadgen.headless import run_worker
    from traces.errors import BadInputError

    logging.basicConfig(format="ramptrace worker: %(message)s", level=logging.WARNING)
    host, port = flags.pop("master_host"), flags.pop("master_port")
    own = {name: flags.pop(name) for name in ("trace", "target")}
    beside = sorted(name for name, value in flags.items() if value is not None)
    if beside:
        raise BadInputError(f"a worker's scenario is its master's; leave out {', '.join(beside)}")
    return run_worker((host, port), run_path=Path(run_dir) if run_dir else None, **own)


def _as_text(summary: dict[str, Any]) -> str:
    verdict, requests = summary["verdict"], summary["requests"]
    lines = [
        f"run       {summary['run']}" + ("  (emulated)" if summary["emulated"] else ""),
        f"verdict   {verdict['status']}" + "".join(f"\n          {reason}" for reason in verdict["reasons"]),
        *_untrusted(verdict),
        *_worker_lines(summary["workers"]),
        f"lag       {_quantiles(verdict, 'lag_p50_ms', 'lag_p99_ms', 'lag_max_ms')} ms (p50, p99, max)",
        f"requests  {requests['planned']} planned, {requests['sent']} sent, {requests['ok']} ok"
        + (f", {requests['cancelled']} cancelled as recorded" if requests["cancelled"] else "")
        + "".join(f", {count} {kind}" for kind, count in requests["failed"].items())
        + "".join(f", {count} not sent ({reason})" for reason, count in requests["not_sent"].items()),
        *_error_lines(summary["errors"]),
        *_token_lines(summary["tokens"]),
        *_collector_lines(summary["collector"]),
        f"{'latency of the successful, ms' + _times_real(summary['time_scale']):<41}{'p50':>12}{'p95':>12}{'p99':>12}",
    ]
    for name, row in summary["latency_ms"].items():
        values = "".join(f"{'-' if row[q] is None else format(row[q], '.1f'):>12}" for q in ("p50", "p95", "p99"))
        lines.append(f"  {name.replace('_', ' '):<39}{values}")
    return "\n".join([*lines, f"next      ramptrace analyse {summary['run']}"])


def _worker_lines(workers: list[dict[str, Any]]) -> list[str]:
    if not workers:
        return []
    error_ms = max(worker["clock_error_us"] for worker in workers) / 1e3
    done = sum(worker["state"] in {"finished", "merged"} for worker in workers)
    return [f"workers   {done} of {len(workers)} finished, clocks in step within {error_ms:.2f} ms"]


def _times_real(time_scale: float) -> str:
    return "" if time_scale == 1 else f", {time_scale:g}x time"


def _collector_lines(collector: dict[str, Any]) -> list[str]:
    if collector["state"] in {"finished", "absent"}:
        return [] if collector["state"] == "finished" else ["collector none: no scaling events were asked for"]
    return [f"collector {collector['state'].upper()}: {collector['detail'] or 'no reason known'}"]


def _error_lines(errors: list[dict[str, Any]]) -> list[str]:
    words = [f"{found['rows']} {found['kind']}: {found['text'] or 'the server gave no reason'}" for found in errors]
    return [f"{'' if number else 'errors':<9} {text}" for number, text in enumerate(words)]


def _token_lines(tokens: dict[str, Any]) -> list[str]:
    return [
        f"{name + ' tokens':<13} {found['planned']:,} planned, {found['reported']:,} reported by the server"
        + (f" ({found['differing_share']:.1%} of the requests differ)" if found["differing_share"] else "")
        for name, found in tokens.items()
        if found["rows"]
    ]


def _untrusted(verdict: dict[str, Any]) -> list[str]:
    windows = verdict["untrusted"]
    if not windows:
        return []
    plural = "window" if len(windows) == 1 else "windows"
    return [f"untrusted {len(windows)} {plural}, {verdict['untrusted_share']:.1%} of the run: see `ramptrace analyse`"]


def _quantiles(verdict: dict[str, Any], *names: str) -> str:
    return " / ".join("-" if verdict[name] is None else f"{verdict[name]:.2f}" for name in names)
