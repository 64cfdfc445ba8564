"""Runs that are kept in S3: written to a local directory, and copied from there by a process of its own meanwhile.

The copy must neither slow a request down nor end with the replay's death: the process sees its standard input end,
copies what is left, and goes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final

import click

from loadgen.command import own_command
from traces.errors import EXIT_INTERRUPTED, BadInputError, RamptraceError, UnreachableError
from traces.mirror import Mirror, is_remote
from traces.run import RunDir

EVERY_S: Final = 5.0
_TRIES: Final = 5


@contextlib.contextmanager
def local_run(run_dir: str | None, directory: str, name: str) -> Iterator[Path | None]:
    """Give the local path for a new run (`None`: the default one), and keep its copy in S3 if that is where it belongs.

    `run_dir` is the run's own place, else `directory` is where runs go; either may be `s3://BUCKET/PREFIX`. Raises
    `BadInputError` or `UnreachableError` before anything is sent when the place cannot be written to, and
    `UnreachableError` at the end when the copy is not whole.
    """
    if run_dir is None and is_remote(directory):
        run_dir = f"{directory.rstrip('/')}/{name}"
    if run_dir is None or not is_remote(run_dir):
        yield Path(run_dir) if run_dir else None
        return
    local = Path("runs") / (run_dir.rstrip("/").rpartition("/")[2] or name)
    RunDir.refuse_existing(local)
    with _mirrored(local, run_dir):
        yield local


@contextlib.contextmanager
def _mirrored(local: Path, uri: str) -> Iterator[None]:
    process = subprocess.Popen(
        own_command("mirror", str(local), uri, "--attach"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        if not process.stdout.readline():
            kind = UnreachableError if process.wait() == UnreachableError.exit_code else BadInputError
            raise kind(_last_words(process.stderr) or f"{uri}: the copying process ended at once")
        click.echo(f"the run is written to {local} and copied to {uri}", err=True)
        yield
    finally:
        process.stdin.close()
        code = process.wait()
    if code:
        why = _last_words(process.stderr)
        raise UnreachableError(f"{why}; the run is whole in {local}: `ramptrace mirror {local} {uri}` copies it")


def _last_words(stderr: IO[bytes]) -> str:
    return stderr.read().decode("utf-8", "replace").strip().removeprefix("ramptrace: ")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("uri", metavar="s3://BUCKET/PREFIX")
@click.option("--attach", is_flag=True, help="Go on until standard input ends, as a replay wants it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def mirror(run: Path, uri: str, *, attach: bool, as_json: bool) -> int:
    """Copy a run directory to S3, and keep the copy current while the run is being written.

    Ends when the run is closed; Ctrl-C copies what is left and ends it earlier. The copy can be analysed at any time:
    `ramptrace analyse s3://BUCKET/PREFIX`. It takes s3:ListBucket, s3:PutObject and s3:DeleteObject.

    \b
    ramptrace mirror runs/soak s3://load-tests/soak
    """  # noqa: D301 - click wants the character, not its escape
    if not is_remote(uri):
        raise BadInputError(f"{uri}: not an address in S3; expected s3://BUCKET/PREFIX")
    copy = Mirror(run, uri)
    if not attach:
        RunDir.open(run)
    copy.open()
    ended, signals = threading.Event(), []

    def stop(number: int, _frame: Any) -> None:
        signals.append(number)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    if attach:
        click.echo(json.dumps({"ready": True}))
        threading.Thread(target=_until_input_ends, args=[ended], daemon=True).start()
    objects = _follow(copy, ended.wait, closed=lambda: not attach and _closed(run))
    if as_json:
        click.echo(json.dumps({"schema": 1, "run": str(run), "copy": copy.uri, "objects": objects}))
    elif not attach:
        click.echo(f"{run} is copied to {copy.uri}: {objects} objects")
    return EXIT_INTERRUPTED if signals and not attach else 0


def _until_input_ends(ended: threading.Event) -> None:
    # Unbuffered: a buffered reader that still waits when the interpreter ends would abort it.
    while os.read(0, 4096):
        pass
    ended.set()


def _closed(run: Path) -> bool:
    return RunDir(run).manifest().state != "running"


def _follow(copy: Mirror, wait: Callable[[float], bool], closed: Callable[[], bool]) -> int:
    """Copy every few seconds until `wait` says that it is over or the run is `closed`, then once more, patiently."""
    objects, over = 0, False
    while not over:
        # Asked before the copy: what was written before the run was closed is then in it.
        over = closed()
        with contextlib.suppress(RamptraceError):  # tried again in the next round, and at the end
            objects += copy.sync()
        over = over or wait(EVERY_S)
    for attempt in range(1, _TRIES):
        try:
            return objects + copy.sync()
        except RamptraceError:
            time.sleep(attempt)
    return objects + copy.sync()
