"""Locust around a replay: one idle user, and one `request` event per request.

Locust's users do not send the load. A user that waits for an answer before it takes the next arrival closes the loop,
so the trace is walked by `loadgen.dispatcher`; the user exists because a Locust test needs one. Everything that Locust
offers around a test stays: event listeners, statistics, the web UI with its start form and stop button.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gevent
import locust
import locust.stats
from locust.env import Environment

from loadgen import locust_stats
from loadgen.firing import fire_request
from loadgen.recorder import RequestRow
from loadgen.session import ReplaySession
from traces.errors import EXIT_INTERRUPTED, GateFailedError, InvalidRunError, RamptraceError

_TIMER_SLACK_S = 0.2


class ReplayUser(locust.User):  # type: ignore[misc] # untyped base
    """Does nothing: the trace is replayed by the dispatcher."""

    fixed_count = 1

    @locust.task  # type: ignore[untyped-decorator]
    def idle(self) -> None:
        """Wait for the end of the test."""
        gevent.sleep(3600)


class ReplayHost:
    """Runs a new session for each test that a Locust environment starts.

    `make_session` is called with what it should do with each finished request. After a test `summary` holds
    its result, or `error` what ended it; then `on_end` is called with the host.
    """

    def __init__(
        self,
        environment: Environment,
        make_session: Callable[[Callable[[RequestRow], None]], ReplaySession],
        on_end: Callable[[ReplayHost], None] | None = None,
    ) -> None:
        locust_stats.install()
        self._environment = environment
        self._make_session = make_session
        self._on_end = on_end
        self._greenlets: list[gevent.Greenlet] = []
        self.session: ReplaySession | None = None
        self.summary: dict[str, Any] | None = None
        self.error: BaseException | None = None
        self._started_s = 0.0
        environment.events.test_start.add_listener(self._on_test_start)
        environment.events.test_stopping.add_listener(self._on_test_stopping)
        environment.events.quitting.add_listener(self._on_quitting)

    def stop(self) -> None:
        """Stop the replay under way: see `ReplaySession.stop`."""
        if self.session is not None:
            self.session.stop()

    def join(self) -> None:
        """Wait until every session has closed its run, the collector's tail included."""
        gevent.joinall(self._greenlets)

    def exit_code(self) -> int:
        """Return the exit code that the last test deserves."""
        if isinstance(self.error, RamptraceError):
            return self.error.exit_code
        if self.error is not None:
            return 1
        if self.session is not None and self.session.aborted is not None:
            return GateFailedError.exit_code
        if self.session is not None and self.session.interrupted:
            return EXIT_INTERRUPTED
        if self.summary is not None and self.summary["verdict"]["status"] == "INVALID":
            return InvalidRunError.exit_code
        return 0

    def _on_test_start(self, **_: Any) -> None:
        self.summary = self.error = None
        self._started_s = time.monotonic()
        self._greenlets = [greenlet for greenlet in self._greenlets if not greenlet.ready()]
        self._greenlets.append(gevent.spawn(self._replay))

    def _replay(self) -> None:
        session: ReplaySession | None = None
        pruner = gevent.spawn(self._prune)
        try:
            session = self.session = self._make_session(self._fire)
            session.prepare()
            ended = gevent.spawn(session.load_ended.wait)
            ended.link(lambda _: self._end_test(session))
            self.summary = session.execute()
        except Exception as error:
            self.error = error
        finally:
            pruner.kill()
            self._environment.process_exit_code = self.exit_code()
            if session is not None:
                session.load_ended.set()
            if self._on_end is not None:
                self._on_end(self)
            self._end_test(session)

    def _end_test(self, session: ReplaySession | None) -> None:
        runner = self._environment.runner
        if runner is None or session is not self.session:
            return
        if getattr(self._environment.parsed_options, "csv_prefix", None):
            # Locust closes its CSV files without a last write: without this pause they lack the run's end.
            gevent.sleep(locust.stats.CSV_STATS_INTERVAL_SEC + 0.5)
        # The web UI stays for another test; a headless Locust ends, and its exit waits in `quitting` for the tail.
        gevent.spawn(runner.stop if self._environment.web_ui is not None else runner.quit)

    def _on_test_stopping(self, **_: Any) -> None:
        session = self.session
        if session is not None and not session.load_ended.is_set():
            session.stop("run_time" if self._is_run_time_over() else "interrupted")
            session.load_ended.wait()

    def _is_run_time_over(self) -> bool:
        """Tell whether Locust's `--run-time` ends the test: that is its planned end, and no interruption.

        Nothing else stops a headless test before Locust quits. With the web page it is told from a click by the time.
        """
        limit_s = getattr(self._environment.parsed_options, "run_time", None)
        if limit_s is None:
            return False
        return self._environment.web_ui is None or time.monotonic() - self._started_s >= limit_s - _TIMER_SLACK_S

    def _prune(self) -> None:
        while True:
            gevent.sleep(locust_stats.PRUNE_S)
            locust_stats.prune(self._environment.stats)

    def _on_quitting(self, **_: Any) -> None:
        if self.session is not None and not self.session.load_ended.is_set():
            self.session.stop()
        self.join()

    def _fire(self, row: RequestRow) -> None:
        session = self.session
        if session is not None:
            fire_request(self._environment, row, label=session.label, url=session.url)
