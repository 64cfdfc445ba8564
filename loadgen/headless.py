"""A replay without a page: alone in this process, with worker processes of its own, as a master, or as a worker."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import gevent
import gevent.event
import zmq.error
from locust.env import Environment

from loadgen.crew import Crew
from loadgen.host import ReplayHost, ReplayUser
from loadgen.local import LocalSession
from loadgen.master import MasterSession
from loadgen.opening import StoppedError
from loadgen.scenario import Scenario
from loadgen.session import Progress
from loadgen.team import TARGET_VARIABLE, Team
from loadgen.worker import WorkerHost
from traces.errors import BadInputError, UnreachableError
from traces.units import format_duration

_ASK_AGAIN_S = 0.1
_SAY_EVERY_S = 10.0


def run_alone(scenario: Scenario, **session: Any) -> ReplayHost:
    """Run one replay in this process and return its host, finished."""
    environment = Environment(user_classes=[ReplayUser])
    environment.create_local_runner()
    host = ReplayHost(environment, lambda record: LocalSession(scenario, on_request=record, **session))
    with _stopping(host.stop):
        _run(environment, host)
    return host


def run_with_workers(scenario: Scenario, count: int, **session: Any) -> ReplayHost:
    """Run one replay whose load `count` processes of this machine send, and return its host, finished."""
    environment = _master_environment("127.0.0.1", 0)
    team = Team(count, port=environment.runner.server.port, target=scenario.target.url)
    crew = Crew(environment, team.is_gone)
    try:
        return _run_master(
            environment, crew, scenario, lambda stopped: team.wait_for(lambda: crew.present, stopped.is_set), session
        )
    finally:
        environment.runner.quit()
        team.end()


def run_master(scenario: Scenario, expected: int, bind: tuple[str, int], **session: Any) -> ReplayHost:
    """Run one replay whose load `expected` workers send, once they are connected, and return its host, finished."""
    environment = _master_environment(*bind)
    crew = Crew(environment)

    def wait(stopped: gevent.event.Event) -> None:
        waited_s = 0.0
        while crew.present < expected and not stopped.is_set():
            if waited_s % _SAY_EVERY_S < _ASK_AGAIN_S:
                click.echo(f"waiting for workers at {bind[0]}:{bind[1]}: {crew.present} of {expected}", err=True)
            stopped.wait(_ASK_AGAIN_S)
            waited_s += _ASK_AGAIN_S

    try:
        return _run_master(environment, crew, scenario, wait, session)
    finally:
        environment.runner.quit()


def run_worker(master: tuple[str, int], *, trace: str | None, target: str | None, run_path: Path | None) -> int:
    """Take part in the replay of a master and return the exit code."""
    environment = Environment(user_classes=[ReplayUser])
    nobody = f"no master answers at {master[0]}:{master[1]}; start it with --master, check its address and the network"
    try:
        runner = environment.create_worker_runner(*master)
    except (ConnectionError, zmq.error.ZMQError):
        raise UnreachableError(nobody) from None
    host = WorkerHost(environment, trace=trace, target=target or os.environ.get(TARGET_VARIABLE), run_path=run_path)

    def leave() -> None:
        host.leave()
        runner.quit()

    with _stopping(leave):
        runner.greenlet.join()
    environment.events.quitting.fire(environment=environment, reverse=True)
    return int(environment.process_exit_code or 0)


def _master_environment(host: str, port: int) -> Environment:
    environment = Environment(user_classes=[ReplayUser])
    try:
        environment.create_master_runner(host, port)
    except (SystemExit, Exception) as error:
        cause = "the port is taken" if isinstance(error, SystemExit) else str(error)
        raise BadInputError(f"{host}:{port}: cannot listen there ({cause}); choose with --master-bind-port") from None
    return environment


def _run_master(
    environment: Environment,
    crew: Crew,
    scenario: Scenario,
    wait: Callable[[gevent.event.Event], None],
    session: dict[str, Any],
) -> ReplayHost:
    host = ReplayHost(environment, lambda _record: MasterSession(scenario, crew, **session))
    stopped = gevent.event.Event()

    def stop() -> None:
        stopped.set()
        host.stop()

    with _stopping(stop):
        wait(stopped)
        if stopped.is_set():
            raise StoppedError("interrupted before anything was sent")
        _run(environment, host)
    return host


def _run(environment: Environment, host: ReplayHost) -> None:
    progress = gevent.spawn(_show_progress, host) if sys.stderr.isatty() else None
    runner = environment.runner
    try:
        runner.start(1, spawn_rate=1)
        if runner.spawning_greenlet is not None:
            runner.spawning_greenlet.join()  # a local runner starts the test in a greenlet of its own
        host.join()
    finally:
        if progress is not None:
            progress.kill()
            click.echo("", err=True)
        runner.quit()


@contextmanager
def _stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Have Ctrl-C, SIGTERM and a closed terminal (not under nohup) stop a replay in good order."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    handlers = [gevent.signal_handler(number, stop) for number in numbers]
    try:
        yield
    finally:
        for handler in handlers:
            handler.cancel()


def _show_progress(host: ReplayHost) -> None:
    before = 0
    while True:
        gevent.sleep(1.0)
        if host.session is None:
            continue
        now = host.session.progress()
        line = progress_line(now, now.started - before, host.session.verdict_so_far())
        before = now.started
        width = min(100, shutil.get_terminal_size().columns - 1)
        click.echo(f"\r{line[:width].ljust(width)}", err=True, nl=False)


def progress_line(now: Progress, per_s: int, so_far: dict[str, Any] | None) -> str:
    """Return where a replay stands: what is sent, rate, lag, the verdict so far and the time that is left."""
    if now.elapsed_us < 0:
        return f"starts in {format_duration(-now.elapsed_us)}"
    parts = [f"{now.started}/{now.planned or '∞'} sent", f"{per_s}/s", f"{now.in_flight} in flight"]
    if now.lag_p99_us is not None:
        parts.append(f"lag p99 {format_duration(now.lag_p99_us)}")
    if so_far is not None:
        parts.append(f"{so_far['status']} so far")
    if now.length_us is not None:
        left = now.length_us - now.elapsed_us
        parts.append(f"{format_duration(left)} left" if left > 0 else "last answers")
    return "  ".join(parts)
