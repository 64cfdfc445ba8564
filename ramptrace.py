"""ramptrace: replay recorded LLM traffic against an autoscaled endpoint and see where the time to capacity went.

The command line composes the rooms' own commands, lazily: Locust (gevent) has to be imported before botocore, and
`--help` has to be quick. `demo` lives here because it crosses the rooms; it speaks to them as a user would, through
their commands and the run directory.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from traces.lazy import LazyGroup

if TYPE_CHECKING:
    from types import FrameType

__version__ = "0.1.0"

_COMMANDS = {
    "trace": ("traces.cli", "Read, check and describe recorded traffic."),
    "merge": ("loadgen.cli", "Add what a lost worker recorded to its run."),
    "replay": ("loadgen.cli", "Replay a trace, headless, and collect scaling events meanwhile."),
    "ui": ("loadgen.cli", "Replay with Locust's web UI and the live page of scaling."),
    "collect": ("loadgen.cli", "Collect scaling events alone."),
    "mirror": ("loadgen.cli", "Copy a run directory to S3 while it is written."),
    "doctor": ("loadgen.cli", "Check what can be seen of a scale-out, and what cannot."),
    "emulate": ("loadgen.cli", "Serve the emulated endpoint and its platform on loopback."),
    "simulate": ("loadgen.cli", "Simulate an endpoint in virtual time: single runs, sweeps, fits."),
    "analyse": ("analysis.cli", "Attribute a run's time to capacity."),
    "report": ("analysis.cli", "Write a run's report as one offline HTML file."),
    "gate": ("analysis.gate_cli", "Hold a run against thresholds."),
    "soak": ("loadgen.cli", "Replay, collect, report and gate in one command, for CI."),
    "compare": ("analysis.cli", "Compare runs: what changed, and why."),
    "advise": ("analysis.advise_cli", "Rank what would shorten a run's time to capacity."),
}
_TRACE_COMMANDS = {"record": ("loadgen.record.cli", "Record real traffic through a pass-through proxy.")}
_IMPORT_NAMES = ("traces", "loadgen", "analysis", "ramptrace")


class _Commands(LazyGroup):
    """The rooms' commands; what touches the network is added to `trace` here, because it lives in another room."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if cmd_name == "trace" and isinstance(command, LazyGroup):
            command.lazy |= _TRACE_COMMANDS
        return command


@click.group(
    cls=_Commands, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="ramptrace")
@click.pass_context
def cli(context: click.Context) -> None:
    """Replay recorded LLM traffic against an autoscaled endpoint and see where the time to capacity went."""
    _refuse_shared_import_names()
    context.obj = _Rooms()


class _Rooms:
    """What a command of one room needs of the other, which it must not import: handed over here."""

    @staticmethod
    def analysis() -> Any:
        """Return what a simulation needs of the analysis."""
        return importlib.import_module("analysis.simulated")

    @staticmethod
    def simulator() -> Any:
        """Return what an advice needs of the simulation."""
        return importlib.import_module("loadgen.emulator.predict")


def _refuse_shared_import_names() -> None:
    """End with an error when another distribution owns one of our import names: pip overwrites silently."""
    from importlib.metadata import packages_distributions

    from traces.errors import BadInputError

    owners = packages_distributions()
    for name in _IMPORT_NAMES:
        others = sorted(set(owners.get(name, [])) - {"ramptrace"})
        if others:
            raise BadInputError(
                f'the import name "{name}" belongs to both ramptrace and {", ".join(others)} in this environment; '
                "install ramptrace into an environment of its own (pipx or uv tool install)"
            )


_DEMO_ENDPOINT = "demo"
_DEMO_SCENARIO = """\
name = "demo-{condition}"

[trace]
path = "corpus:reference-burst"

[target]
kind = "sagemaker"
url = "{url}"
endpoint_name = "{endpoint}"
region = "us-east-1"

[collect]
endpoint_name = "{endpoint}"
region = "us-east-1"
endpoint_url = "{url}"

[emulator]
url = "{url}"

[run]
condition = "{condition}"
"""
_DEMO_ARMS = (("image-cache-off", "--no-image-cache"), ("image-cache-on", "--image-cache"))
_STOP_PATIENCE_S = 20.0


@cli.command(short_help="Run the main job on this machine, without a cloud.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Where to file the two runs and the report.",
)
@click.option(
    "--time-scale",
    type=click.FloatRange(min=0, min_open=True, max=100_000),
    default=20.0,
    show_default=True,
    help="How many times faster the emulated endpoint runs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def demo(directory: Path, time_scale: float, as_json: bool) -> int:
    """Replay a bundled burst twice against an emulated SageMaker endpoint: image cache off, then on.

    Scaling events are collected meanwhile, the time to capacity of both runs is attributed, and the difference
    explained. The endpoint is emulated with the published reference case: Qwen3-8B, a 17.7 GB image and a 16 GB model
    on ml.g6.2xlarge. Takes under two minutes, talks only to 127.0.0.1, and leaves nothing running.

    Exit code 5: this machine was too busy to hold the schedule; the figures are shown, and say so.
    """
    signal.signal(signal.SIGTERM, _raise_interrupt)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        # A closed terminal is no reason to leave the emulator behind; under nohup it is no reason to stop.
        signal.signal(signal.SIGHUP, _raise_interrupt)
    # Two demos in one second must not share a directory.
    home = directory / f"{time.strftime('%Y%m%dT%H%M%S')}-demo-{secrets.token_hex(2)}"
    environment = _demo_environment()
    runs, worst = [], 0
    for condition, cache_flag in _DEMO_ARMS:
        run = home / condition
        _say(f"{condition}: replaying corpus:reference-burst at {time_scale:g} times the recorded speed …")
        worst = max(worst, _demo_arm(run, condition, cache_flag, time_scale, environment))
        runs.append(run)
    _say("attributing and comparing …")
    _demo_conclude(home, runs, as_json=as_json)
    return worst


def _demo_arm(run: Path, condition: str, cache_flag: str, time_scale: float, environment: dict[str, str]) -> int:
    """Replay one arm into `run` and return the replay's exit code: 0, or 5 for a run that did not hold its schedule."""
    from traces.errors import InvalidRunError

    run.mkdir(parents=True)
    emulate = ["emulate", "--json", "--time-scale", str(time_scale), cache_flag, "--truth", str(run / "truth.parquet")]
    with _child(emulate, environment) as emulator:
        assert emulator.stdout is not None
        line = emulator.stdout.readline()
        if not line:
            ended = emulator.wait()
            _fail(f"the emulator did not start (exit code {ended}); see the lines above", max(ended, 1))
        scenario = run / "scenario.toml"
        url = json.loads(line)["url"]
        scenario.write_text(_DEMO_SCENARIO.format(condition=condition, url=url, endpoint=_DEMO_ENDPOINT))
        with _child(["replay", str(scenario), "--run-dir", str(run), "--json"], environment) as replay:
            printed = replay.communicate()[0]
        code: int = replay.returncode
        if code == 0:
            return 0
        verdict = json.loads(printed).get("verdict", {}) if printed.strip() else {}
        reasons = "; ".join(verdict.get("reasons", [])) or "see the lines above"
        if code != InvalidRunError.exit_code:
            _fail(f"the replay of {condition} ended with exit code {code}: {reasons}", code)
        # The load came late, but the endpoint still scaled: what was seen is shown, with the verdict beside it.
        _say(f"{condition}: INVALID: {reasons}")
        return code


def _demo_conclude(home: Path, paths: list[Path], *, as_json: bool) -> None:
    from analysis.analyse import analyse_run
    from analysis.compare import compare_runs
    from analysis.compare_entry import comparison_entry
    from analysis.report.html import write_report
    from analysis.report.store import write_results
    from analysis.report.text import comparison_text

    runs = [analyse_run(path) for path in paths]
    for run in runs:
        write_results(run)
    comparison = compare_runs(runs)
    report = write_report(runs, comparison, home / "report.html")
    if as_json:
        click.echo(json.dumps(comparison_entry(comparison, str(report)), allow_nan=False))
    else:
        click.echo(comparison_text(comparison))
        click.echo(f"\nreport: {report}")


def _demo_environment() -> dict[str, str]:
    """Return the children's environment: credentials made up for this demo, and nothing of the user's AWS setup."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return kept | {
        "AWS_ACCESS_KEY_ID": "AKIDEMO" + secrets.token_hex(6).upper(),
        "AWS_SECRET_ACCESS_KEY": secrets.token_urlsafe(30),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextlib.contextmanager
def _child(arguments: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run one of our commands in a session of its own, so that Ctrl-C reaches us alone; it never outlives the block."""
    from loadgen.command import own_command

    process = subprocess.Popen(
        own_command(*arguments),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Safe: this process has no other threads yet.
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        # Closed only now: a child that prints while it stops must not meet a closed pipe.
        assert process.stdout is not None
        process.stdout.close()


def _end_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when its parent dies, also by kill -9 (Linux)."""
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGTERM))


def _raise_interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _fail(message: str, exit_code: int = 1) -> NoReturn:
    from traces.errors import RamptraceError

    error = RamptraceError(message)
    error.exit_code = exit_code
    raise error


def _say(message: str) -> None:
    click.echo(message, err=True)


def _make_streams_safe() -> None:
    """Let output go nowhere when a stream is closed (`>&-`), and print `?` for what an old locale cannot show."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - it lasts as long as we do
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; turns errors into one line and an exit code."""
    from traces.errors import EXIT_INTERRUPTED, BadInputError, RamptraceError

    _make_streams_safe()
    try:
        code = cli.main(arguments, prog_name="ramptrace", standalone_mode=False)
    except RamptraceError as error:
        click.echo(f"ramptrace: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("ramptrace: interrupted; what was recorded is kept", err=True)
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe went away (`ramptrace ... | head`): nothing is left to say, and nobody to say it to.
        sys.stderr.close()
        code = 0
    except OSError as error:
        # What the system refuses anywhere: a path that is too long, a directory that went away, a disk that filled up.
        where = f"{error.filename}: " if error.filename is not None else ""
        click.echo(
            f"ramptrace: {where}{error.strerror or error}; check the path, its permissions and free space", err=True
        )
        code = BadInputError.exit_code
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
