"""One replay from its scenario to its verdict, however its load is sent. Runs inside gevent, with Locust or without."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent.event
import msgspec

from loadgen.closing import compact, conclude
from loadgen.companion import Companion
from loadgen.guard import Estimate
from loadgen.link import TargetLink
from loadgen.live.meter import Meter
from loadgen.live.so_far import verdict_so_far
from loadgen.native import in_thread
from loadgen.opening import Opened, Opening
from loadgen.plan import due_offset_us
from loadgen.recorder import RequestRow
from loadgen.scenario import Scenario
from loadgen.sending import unwritable
from loadgen.verdict import ClientState
from traces.clock import ClientClock
from traces.errors import RamptraceError
from traces.manifest import Manifest, Stretch
from traces.run import RunDir

_COLLECTOR_READY_S = 60.0

logger = logging.getLogger("ramptrace")


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a replay stands. `elapsed_us` is client time since t0, negative before it; `None` is no end."""

    planned: int | None
    started: int
    in_flight: int
    lag_p99_us: int | None
    elapsed_us: int
    length_us: int | None


class ReplaySession(ABC):
    """Prepares and executes one replay. `on_request` gets each finished row that this process sent.

    `confirm` is asked, with what would be sent, when another machine is the target and it is much; without it the
    answer is no. What sends the load, this process or others, is a subclass's; `sends_elsewhere` says that `meter` is
    not fed by what is sent here.
    """

    sends_elsewhere = False

    def __init__(
        self,
        scenario: Scenario,
        *,
        run_path: Path | None = None,
        on_request: Callable[[RequestRow], None] | None = None,
        confirm: Callable[[str], bool] | None = None,
    ) -> None:
        self.scenario = scenario
        self.clock = ClientClock()
        self.load_ended = gevent.event.Event()
        self.run: RunDir
        self.manifest: Manifest
        self.aborted: str | None = None
        self.meter: Meter | None = None
        self._run_path = run_path
        self._on_request = on_request
        self._confirm = confirm
        self._stopped = gevent.event.Event()
        self._abandoned = gevent.event.Event()
        self._stop_reason: str | None = None
        self._companion: Companion | None = None
        self._link: TargetLink
        self._estimate: Estimate | None = None
        self._planned: int | None = 0
        self._last_due_us: int | None = 0
        self._t0_us = 0
        self._measured_from_us = 0

    @property
    def label(self) -> str:
        """What the requests go to, in a word: the model, or the endpoint's name."""
        return self._link.endpoint.label

    @property
    def url(self) -> str:
        """The target's address."""
        return self._link.endpoint.url

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped before its end, by a user or by a rule."""
        return self._stop_reason in {"interrupted", "aborted"}

    def stop(self, reason: str = "interrupted") -> None:
        """Send no more. Answers under way get `replay.stop_grace`; a second call ends them, and the collector, at once.

        The reason is what unsent rows will have as theirs: `interrupted`, `aborted`, or `run_time` for a planned end.
        """
        if self._stopped.is_set():
            self._abandoned.set()
        self._stop_reason = self._stop_reason or reason
        self._stopped.set()
        self._pass_on_stop()

    def prepare(self) -> None:
        """Check the trace, the guards and the target, make the run directory, and start the collector.

        Raises `BadInputError` or `UnreachableError` before anything is written, and before the target sees a byte of
        a plan that was not allowed.
        """
        self._link = TargetLink(self.scenario, self.clock.now_us)
        opening = Opening(self.scenario, self._link, self.clock, confirm=self._confirm, stopped=self._stopped)
        opened = self._open(opening)
        self.run, self.manifest = opened.run, opened.manifest
        self._estimate, self._planned, self._last_due_us = opened.estimate, opened.planned, opened.last_due_us
        self._opened()
        if self.scenario.collect is not None:
            self._companion = Companion(self.run.path)
            self._companion.start(_COLLECTOR_READY_S, self._stopped)
        self._note_collector()
        if self._companion is not None and self._companion.state["state"] == "died":
            why = self._companion.state["detail"] or "no reason known"
            logger.warning("the collector died before the load (%s); this run will have no scaling events", why)

    def execute(self) -> dict[str, Any]:
        """Replay, and return the run's summary (the document that `--json` prints)."""
        failure: Exception | None = None
        try:
            self._begin()
        except OSError as error:
            raise unwritable(self.run, error) from error
        try:
            self._send()
        except Exception as error:
            failure = error
        try:
            summary = self._close_run(failed=failure is not None)
        except OSError as error:
            why = f"{self.run.path}: the run could not be closed ({error.strerror or error}); what was recorded is kept"
            raise failure or RamptraceError(why) from error
        if failure is not None:
            raise failure
        return summary

    @abstractmethod
    def progress(self) -> Progress:
        """Return where the replay stands."""

    def verdict_so_far(self) -> dict[str, Any] | None:
        """Return `status`, `reasons` and `lag_p99_ms` as they would be if it ended now; None before a row was sent."""
        if self.meter is None:
            return None
        return verdict_so_far(self.meter, self.scenario, self._client_state())

    @abstractmethod
    def _open(self, opening: Opening) -> Opened:
        """Open the run."""

    @abstractmethod
    def _opened(self) -> None:
        """Take up the run that was opened, before its collector starts."""

    @abstractmethod
    def _begin(self) -> None:
        """Fix t0, with `_begin_stretch`."""

    @abstractmethod
    def _send(self) -> None:
        """Send the whole load, and return when it has ended."""

    @abstractmethod
    def _sent(self) -> None:
        """Let go of what was needed to send."""

    @abstractmethod
    def _pass_on_stop(self) -> None:
        """Tell whatever sends that it was stopped; told twice, it should end at once."""

    @abstractmethod
    def _client_state(self) -> ClientState:
        """Return how what sent the load fared."""

    @abstractmethod
    def _never_taken(self) -> dict[str, int]:
        """Return how many rows of the plan have no row in the table, by reason."""

    def _begin_stretch(self, position: int = 0, first_due_us: int = 0) -> None:
        """Fix t0: so that the first row of this stretch, the plan's row number `position`, is due after the lead."""
        manifest = self.manifest
        began_us = self.clock.now_us() + self.scenario.replay.lead_us
        self._t0_us = began_us - (first_due_us if position else 0)
        self._measured_from_us = began_us + due_offset_us(self.scenario.replay.warm_up_us, manifest.time_scale)
        manifest.t0_us = self._t0_us if manifest.t0_us is None else manifest.t0_us
        stretch = Stretch(t0_us=self._t0_us, began_us=began_us, position=position)
        if self.scenario.replay.warm_up_us:
            stretch.warm_up_until_us = self._measured_from_us
        manifest.stretches.append(stretch)
        self.run.write_manifest(manifest)
        self.meter = Meter(
            t0_us=self._t0_us,
            time_scale=manifest.time_scale,
            limit_us=round(self.scenario.verdict.invalid_lag_p99_ms * 1e3),
            measured_from_us=self._measured_from_us,
        )

    def _elapsed_us(self) -> int:
        return self.clock.now_us() - self._t0_us

    def _abort(self, why: str | None) -> None:
        """End the replay when a rule says so."""
        if why is not None and self.aborted is None and not self._stopped.is_set():
            self.aborted = why
            self.stop("aborted")

    def _close_run(self, *, failed: bool) -> dict[str, Any]:
        """Write the verdict, see the collector out, and close the manifest."""
        manifest, partial = self.manifest, self.interrupted or failed
        manifest.finished_us = manifest.stretches[-1].ended_us = self.clock.now_us()
        self._bound_clock_error()
        client, never_taken = self._client_state(), self._never_taken()
        summary: dict[str, Any] = in_thread(
            lambda: conclude(
                self.run,
                manifest,
                self.scenario,
                client=client,
                never_taken=never_taken,
                aborted=self.aborted,
                estimate=self._estimate,
            )
        )
        in_thread(lambda: compact(self.run, manifest, whole=not partial, planned=self._planned))
        if partial:
            manifest.state = "interrupted"  # now: who stopped it may not wait for the collector's tail
        self.run.write_manifest(manifest)
        self._sent()
        self.load_ended.set()
        if self._companion is not None and self.scenario.collect is not None:
            self._companion.finish(self.scenario.collect.tail_us / manifest.time_scale / 1e6, self._abandoned)
        manifest.state = "interrupted" if partial or self.interrupted else "finished"
        self._note_collector()
        return summary | {"collector": manifest.collector, "time_scale": manifest.time_scale}

    def _bound_clock_error(self) -> None:
        """Read an emulator's clock again, and widen the map's error to what it was off by at the end."""
        if not self.manifest.emulated:
            return
        try:
            again = self._link.read_clock()
        except RamptraceError:
            return  # it is gone; the reading from the start is what there is
        if again is not None:
            clock = self.manifest.clock
            off_us = abs(clock.to_client_us(again.endpoint_epoch_us) - again.client_epoch_us) + again.error_us
            self.manifest.clock = msgspec.structs.replace(clock, error_us=max(clock.error_us, off_us))

    def _note_collector(self) -> None:
        if self._companion is not None:
            self.manifest.collector = dict(self._companion.state)
        elif self.scenario.collect is None:
            self.manifest.collector = {"state": "absent", "exit_code": None, "detail": "not asked for"}
        self.run.write_manifest(self.manifest)
