"""How a run begins: the plan held against the guards, the target reached, the run directory made or taken up again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gevent.event
import msgspec

from loadgen.filing import new_run, same_clock, stopped_run
from loadgen.guard import Estimate, described, estimate, needs_confirmation, refuse_beyond
from loadgen.intake import Cut, cut_trace, last_arrival_us, recut, write_trace
from loadgen.link import TargetLink
from loadgen.native import in_thread
from loadgen.plan import due_offset_us
from loadgen.preflight import is_loopback
from loadgen.scenario import Scenario
from traces.clock import ClientClock, EndpointClock
from traces.errors import EXIT_INTERRUPTED, BadInputError, RamptraceError
from traces.manifest import Manifest
from traces.run import RunDir


class StoppedError(RamptraceError):
    """Stopped by the user before there was a run."""

    exit_code = EXIT_INTERRUPTED


class Opened(msgspec.Struct, kw_only=True):
    """A run that may be sent: `planned` rows, the last due `last_due_us` after t0 (`None`: there is no end)."""

    run: RunDir
    manifest: Manifest
    estimate: Estimate
    planned: int | None
    last_due_us: int | None


class Opening:
    """Opens runs. Raises `BadInputError` or `UnreachableError` before anything is written.

    `confirm` is asked, with what would be sent, when another machine is the target and it is much; without it the
    answer is no. `stopped` says that the user does not want it any more.
    """

    def __init__(
        self,
        scenario: Scenario,
        link: TargetLink,
        clock: ClientClock,
        *,
        confirm: Callable[[str], bool] | None,
        stopped: gevent.event.Event,
    ) -> None:
        self._scenario = scenario
        self._link = link
        self._clock = clock
        self._confirm = confirm
        self._stopped = stopped

    def new(self, path: Path | None, check: Callable[[Cut], None] | None = None) -> Opened:
        """Open a new run, at `path` or where the scenario files its runs; `check` may refuse what was cut."""
        if path is not None:
            RunDir.refuse_existing(path)
        scenario = self._scenario
        cut = in_thread(cut_trace, scenario)
        found = in_thread(estimate, cut.frame, scenario.replay, scenario.prices, cut.laps, cut.planned)
        self._allow(found)
        clock = self._reach()
        if check is not None:
            check(cut)
        run = new_run(scenario, path, cut, clock, self._clock.now_us())
        last_us = in_thread(write_trace, cut.frame, run.path)
        return _opened(run, run.manifest(), found, cut, last_us)

    def stopped_run(self, path: Path) -> Opened:
        """Open a run that was stopped or killed, to go on with it."""
        run, manifest, _ = stopped_run(path)
        cut = in_thread(recut, manifest, path)
        replay, prices = self._scenario.replay, self._scenario.prices
        found = in_thread(estimate, cut.frame, replay, prices, cut.laps, cut.planned)
        self._allow(found, again=True)
        same_clock(manifest, self._reach(), path)
        manifest.state, manifest.verdict, manifest.finished_us = "running", None, None
        return _opened(run, manifest, found, cut, in_thread(last_arrival_us, path))

    def _allow(self, found: Estimate, *, again: bool = False) -> None:
        """Refuse a plan that goes beyond the guards, or that nobody said yes to."""
        guard, target = self._scenario.guard, self._link.endpoint.target
        if not again:
            refuse_beyond(found, guard)
        if not needs_confirmation(found, guard, loopback=is_loopback(target.host)):
            return
        rest = "the rest of " if again else ""
        if self._confirm is None:
            raise BadInputError(f"this would send {rest}{described(found)} to {target.origin}; confirm it with --yes")
        if not self._confirm(f"Send {rest}{described(found)} to {target.origin}?"):
            raise StoppedError("not confirmed; nothing was sent")

    def _reach(self) -> EndpointClock | None:
        self._link.reach()
        clock = self._link.read_clock()
        if self._stopped.is_set():
            raise StoppedError("interrupted before anything was sent")
        return clock


def _opened(run: RunDir, manifest: Manifest, found: Estimate, cut: Cut, last_arrival_us: int) -> Opened:
    last_us = last_arrival_us if cut.laps is None else cut.laps.until_us
    return Opened(
        run=run,
        manifest=manifest,
        estimate=found,
        planned=cut.planned,
        last_due_us=None if last_us is None else due_offset_us(last_us, manifest.time_scale),
    )
