"""A replay whose load this process sends by itself; it can also go on with one that was stopped or killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from loadgen.checkpoint import Checkpoint
from loadgen.lookahead import Plan
from loadgen.native import in_thread
from loadgen.opening import Opened, Opening
from loadgen.plan import PlannedRequest
from loadgen.recorder import forget_unsent
from loadgen.resume import Held, held_back, record_killed
from loadgen.scenario import Scenario
from loadgen.sending import Schedule, Sending
from loadgen.session import Progress, ReplaySession
from loadgen.verdict import ClientState
from traces.errors import BadInputError


class LocalSession(ReplaySession):
    """Sends the whole load. `resume` is the directory of a run to go on with; then `scenario` is that run's own."""

    def __init__(self, scenario: Scenario, *, resume: Path | None = None, **more: Any) -> None:
        super().__init__(scenario, **more)
        self._resume = resume
        self._checkpoint: Checkpoint
        self._sending: Sending | None = None
        self._held: list[PlannedRequest] = []
        self._taken = 0

    def progress(self) -> Progress:
        """Return where the replay stands."""
        sending = self._sending
        begun = sending is not None and self.manifest.stretches
        return Progress(
            planned=self._planned,
            started=(self.manifest.stretches[-1].position if begun else 0) + (sending.started if sending else 0),
            in_flight=sending.in_flight if sending else 0,
            lag_p99_us=sending.lag_p99_us if sending else None,
            elapsed_us=self._elapsed_us() if self._t0_us else 0,
            length_us=self._last_due_us,
        )

    def _open(self, opening: Opening) -> Opened:
        return opening.new(self._run_path) if self._resume is None else opening.stopped_run(self._resume)

    def _opened(self) -> None:
        self._checkpoint = Checkpoint(self.run.path)
        if self._resume is not None and not self._checkpoint.taken and self.manifest.stretches and self._has_rows():
            raise BadInputError(
                f"{self.run.path}: its checkpoint.bin is missing or empty; what was sent is unknown, start anew"
            )
        self._sending = Sending(
            self.scenario,
            self._link,
            self.run,
            self._checkpoint,
            clock=self.manifest.clock,
            now_us=self.clock.now_us,
            on_row=self._on_request,
            each_second=self._check_rules,
        )
        if self._stop_reason is not None:
            self._pass_on_stop()

    def _has_rows(self) -> bool:
        return bool(self.run.shards("requests"))

    def _begin(self) -> None:
        self._settle_last_stretch()
        position = self._checkpoint.taken
        rest = next(self._plan(position).batches(), None)
        first_due_us = rest[0].due_us if rest else max((request.due_us for request in self._held), default=0)
        # The turns before those held back have ended since, so these are due at once; as lag it would be ours.
        self._held = [msgspec.structs.replace(request, due_us=first_due_us) for request in self._held]
        self._begin_stretch(position, first_due_us)

    def _settle_last_stretch(self) -> None:
        """Settle what the stretch before this one left: rows under way when it was killed, rows it left unsent."""
        checkpoint, stretches, sending = self._checkpoint, self.manifest.stretches, self._sending
        if self._resume is None:
            return
        assert sending is not None
        held: Held = {}
        if stretches and checkpoint.settled < checkpoint.taken:
            plan, t0_us = self._plan(checkpoint.settled), stretches[-1].t0_us
            record_killed(self.run, plan, checkpoint, sending.recorder, t0_us=t0_us, kind=self._link.endpoint.kind)
            held = held_back(self.run, plan, checkpoint)
        checkpoint.settle({request.row_id: position for position, request in held.items()})
        in_thread(forget_unsent, self.run)
        self._held = list(held.values())

    def _plan(self, first: int) -> Plan:
        manifest, trace = self.manifest, self.run.path / "trace.parquet"
        replay, time_scale = self.scenario.replay, manifest.time_scale
        return Plan(trace, replay, time_scale, laps=manifest.laps, first=first, held=self._held)

    def _send(self) -> None:
        assert self._sending is not None
        schedule = Schedule(
            plan=self._plan(self._checkpoint.taken),
            t0_us=self._t0_us,
            measured_from_us=self._measured_from_us,
            last_due_us=self._last_due_us,
            endless=self.manifest.laps is not None,
        )
        try:
            self._sending.run(schedule, self.meter)
        finally:
            self._taken = self._checkpoint.taken

    def _sent(self) -> None:
        self._checkpoint.close()

    def _pass_on_stop(self) -> None:
        if self._sending is None:
            return
        self._sending.stop(self._stop_reason or "interrupted")
        if self._abandoned.is_set():
            self._sending.abandon()

    def _client_state(self) -> ClientState:
        assert self._sending is not None
        return self._sending.client_state

    def _never_taken(self) -> dict[str, int]:
        if self.manifest.laps is None or self._planned is None:
            return {}
        rest = self._planned - self._taken
        return {self._stop_reason or "internal_error": rest} if rest > 0 else {}

    def _check_rules(self) -> None:
        assert self._sending is not None
        if self.aborted is None and not self._stopped.is_set():
            self._abort(self._sending.watch.check(self.clock.now_us()))
