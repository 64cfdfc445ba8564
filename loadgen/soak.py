"""The command `soak`: replay with its collector, then gate and report, each the command that a person would run."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any, Final

import click

from loadgen.command import own_command
from traces.errors import EXIT_INTERRUPTED, GateFailedError, InvalidRunError

_MEASURED: Final = frozenset({0, GateFailedError.exit_code, InvalidRunError.exit_code, EXIT_INTERRUPTED})
"""Exit codes of a replay that leave a run worth judging."""


class _Ended(Exception):  # noqa: N818 - no error: a step said its piece and its exit code stands
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@click.command()
@click.argument("scenario", type=click.Path(dir_okay=False))
@click.option("--baseline", metavar="RUN", help="Run to compare with; the scenario's [gate] baseline if not given.")
@click.option("--artefacts", type=click.Path(path_type=Path), metavar="DIR", help="Where all goes  [default: soak]")
@click.option("--markdown", metavar="FILE", help="Append the summary there too, such as to $GITHUB_STEP_SUMMARY.")
@click.option("--json", "as_json", is_flag=True, help="Print the gate's JSON object instead of the summary.")
def soak(scenario: str, *, baseline: str | None, artefacts: Path | None, markdown: str | None, as_json: bool) -> int:
    """Run a scenario headless and judge it: replay, collector, report and gate, for CI.

    DIR then holds the run (DIR/run), report.html, gate.json, junit.xml and summary.md. SIGTERM and Ctrl-C stop the
    sending, let answers under way finish, and what was measured is still judged.

    \b
    ramptrace soak soak.toml --baseline baseline/run

    Exit codes: 0 passed, 2 bad input, 3 the gate failed, 4 target unreachable, 5 the run is INVALID, 130 interrupted.
    """  # noqa: D301 - click wants the character, not its escape
    folder = artefacts or Path("soak")
    run = folder / "run"
    try:
        replayed = _replay(scenario, run)
        judged = _judge(run, folder, baseline, markdown)
    except _Ended as ended:
        return ended.code
    verdict = json.loads((folder / "gate.json").read_text())
    click.echo(json.dumps(verdict) if as_json else _in_ten_lines(verdict, folder))
    if replayed == EXIT_INTERRUPTED:
        return EXIT_INTERRUPTED
    return judged or replayed


def _replay(scenario: str, run: Path) -> int:
    """Replay and return the exit code; a stop is passed on, and waited for."""
    process = subprocess.Popen(
        own_command("replay", scenario, "--run-dir", str(run), "--json"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )

    def pass_on(number: int, _frame: Any) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code not in _MEASURED or not (run / "run.json").is_file():
        raise _Ended(code if code >= 0 else 1)
    return code


def _judge(run: Path, folder: Path, baseline: str | None, markdown: str | None) -> int:
    """Report, and hold the run against its thresholds; return the gate's exit code."""
    _run("report", str(run), "-o", str(folder / "report.html"), "--json")
    against = ["--baseline", baseline] if baseline is not None else []
    files = ["--junit", str(folder / "junit.xml"), "--markdown", str(folder / "summary.md")]
    (folder / "summary.md").unlink(missing_ok=True)
    code, printed = _run("gate", str(run), *against, *files, "--json")
    (folder / "gate.json").write_text(printed)
    if markdown is not None:
        with Path(markdown).open("a", encoding="utf-8") as file:
            file.write((folder / "summary.md").read_text(encoding="utf-8"))
    return code


def _run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(own_command(*arguments), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in {0, GateFailedError.exit_code, InvalidRunError.exit_code}:
        raise _Ended(done.returncode)
    return done.returncode, done.stdout


def _in_ten_lines(verdict: dict[str, Any], folder: Path) -> str:
    """Return what happened: the worst first, and no more than ten lines of it."""
    order = ["fail", "inconclusive", "skipped", "pass"]
    gates = sorted(verdict["gates"], key=lambda gate: order.index(gate["status"]))
    why = verdict["verdict_reasons"][:1]
    shown = gates if len(gates) <= 6 - len(why) else gates[: 5 - len(why)]
    lines = [f"gate {'passed' if verdict['passed'] else 'failed'}; fidelity {verdict['verdict']}"]
    lines += [f"  {reason}" for reason in why]
    lines += [f"  {gate['status']:12} {gate['expr']}: {gate['reason']}" for gate in shown]
    if len(shown) < len(gates):
        lines.append(f"  … and {len(gates) - len(shown)} more in {folder / 'summary.md'}")
    lines.append(f"run {folder / 'run'}, report {folder / 'report.html'}, JUnit {folder / 'junit.xml'}")
    if verdict["emulated"]:
        lines.append("EMULATED: these figures come from an emulated endpoint")
    return "\n".join(lines)
