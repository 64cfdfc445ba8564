"""One process's sending: a plan is walked from t0 to its end, and every row of it is recorded."""

from __future__ import annotations

from collections.abc import Callable

import gevent
import gevent.event
import msgspec

from loadgen.checkpoint import Checkpoint
from loadgen.dispatcher import Dispatcher
from loadgen.guard import abort_watch
from loadgen.histogram import Histogram
from loadgen.link import TargetLink
from loadgen.live.meter import Meter
from loadgen.lookahead import LookAhead, Plan, Prepared
from loadgen.native import quiet_interpreter
from loadgen.plan import due_offset_us
from loadgen.probe import HubProbe
from loadgen.recorder import AS_RECORDED, Recorder, RequestRow, UnsentWriter
from loadgen.sampling import Sampler
from loadgen.scenario import Scenario
from loadgen.sender import Sender, planned_row, prepared_row
from loadgen.turns import Turns
from loadgen.verdict import ClientState
from traces.clock import EndpointClock
from traces.errors import RamptraceError
from traces.run import RunDir


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent when. Instants are client µs since 1970; `last_due_us` is from t0, `None` without an end.

    Rows due before `measured_from_us` are warm-up. The unsent rest is recorded row by row, unless `endless` says that
    there may be a hundred times what was sent.
    """

    plan: Plan
    t0_us: int
    measured_from_us: int
    last_due_us: int | None
    endless: bool


class Sending:
    """Sends and records. `on_row` gets each finished row of a request that was attempted.

    `watch` has followed what ended for the rules of the scenario; whoever sends checks it, in `each_second`.
    """

    def __init__(
        self,
        scenario: Scenario,
        link: TargetLink,
        run: RunDir,
        checkpoint: Checkpoint,
        *,
        clock: EndpointClock,
        now_us: Callable[[], int],
        on_row: Callable[[RequestRow], None] | None = None,
        each_second: Callable[[], None],
        shard: int = 0,
    ) -> None:
        self._scenario = scenario
        self._link = link
        self._run = run
        self._checkpoint = checkpoint
        self._clock = clock
        self._now_us = now_us
        self._on_row = on_row
        self._each_second = each_second
        self._shard = shard
        self._stopped = gevent.event.Event()
        self._abandoned = gevent.event.Event()
        self.stop_reason: str | None = None
        self._dispatcher: Dispatcher | None = None
        self._sender: Sender | None = None
        self._schedule: Schedule
        self._meter: Meter | None = None
        self.probe = HubProbe(now_us)
        flush_s = scenario.replay.flush_us / 1e6
        self.recorder = Recorder(run, flush_s=flush_s, on_written=self._note_written, shard=shard)
        self.watch = abort_watch(scenario.guard, scenario.gate)

    def stop(self, reason: str) -> None:
        """Send no more; answers under way get `replay.stop_grace`. The reason is the one that unsent rows will have."""
        self.stop_reason = self.stop_reason or reason
        self._stopped.set()
        if self._dispatcher is not None:
            self._dispatcher.stop(self.stop_reason)

    def abandon(self) -> None:
        """End the answers under way at once, when it was told to stop."""
        self._abandoned.set()

    @property
    def started(self) -> int:
        """How many requests were begun."""
        return self._dispatcher.started if self._dispatcher else 0

    @property
    def in_flight(self) -> int:
        """How many requests are under way."""
        return self._sender.in_flight if self._sender else 0

    @property
    def lag(self) -> Histogram:
        """How late requests went out, so far."""
        return self._sender.lag if self._sender else Histogram()

    @property
    def lag_p99_us(self) -> int | None:
        """The 99th percentile of the lag so far."""
        return self.lag.quantile_us(0.99)

    @property
    def client_state(self) -> ClientState:
        """How this process fared."""
        return ClientState(
            hub_latency_p99_us=self.probe.all.quantile_us(0.99),
            connect_p99_us=self._sender.connect.quantile_us(0.99) if self._sender else None,
            cpu_share=self.probe.cpu_share,
            cpu_wait_share=self.probe.cpu_wait_share,
            resent=self._link.client.resent,
        )

    def run(self, schedule: Schedule, meter: Meter | None = None) -> None:
        """Send all of it; `meter` looks on. Raises, once what was recorded is written, what went wrong."""
        failure: BaseException | None = None
        self._schedule = schedule
        self._meter = meter
        with quiet_interpreter():
            self.recorder.start()
            self.probe.start()
            sampler = gevent.spawn(self._sampler().run)
            try:
                self._send_all(schedule)
            except OSError as error:
                failure = unwritable(self._run, error)
            except Exception as error:
                failure = error
            sampler.kill()
            self.probe.stop()
            self._link.client.close()
            try:
                self.recorder.close()
            except OSError as error:
                failure = failure or unwritable(self._run, error)
        if failure is not None:
            raise failure

    def _sampler(self) -> Sampler:
        return Sampler(
            self.probe,
            clock=self._clock,
            now_us=self._now_us,
            in_flight=lambda: self.in_flight,
            record=self.recorder.sample,
            each_second=self._each_second,
        )

    def _send_all(self, schedule: Schedule) -> None:
        replay, target, time_scale = self._scenario.replay, self._scenario.target, self._clock.time_scale
        drain_us = round(replay.drain_us / time_scale)
        plan, last_due_us = schedule.plan, schedule.last_due_us
        lookahead = LookAhead(plan, self._link.endpoint, self._elapsed_us)
        lookahead.on_take = self._checkpoint.take
        found = plan.traits()
        longest_think_us = due_offset_us(found.longest_think_us, time_scale)
        self._sender = Sender(
            self._link.client,
            self._link.endpoint,
            now_us=self._now_us,
            t0_us=schedule.t0_us,
            timeout_s=target.request_timeout_us / time_scale / 1e6,
            record=self._record,
            watch=self._meter,
            record_chunks=replay.record_chunks,
        )
        dispatcher = self._dispatcher = Dispatcher(
            lookahead,
            elapsed_us=self._elapsed_us,
            send=self._sender.send,
            ensure=self._link.client.ensure,
            turns=Turns(longest_think_us) if found.has_turns else None,
            max_in_flight=replay.max_in_flight,
            give_up_us=None if last_due_us is None else last_due_us + drain_us,
        )
        if self.stop_reason is not None:
            dispatcher.stop(self.stop_reason)
        try:
            dispatcher.run()
            if last_due_us is not None:
                left_us = last_due_us + drain_us - self._elapsed_us()
                dispatcher.drain(max(0.0, left_us / 1e6), self._stopped)
            if self._stopped.is_set():
                dispatcher.drain(replay.stop_grace_us / 1e6, self._abandoned)
        finally:
            dispatcher.cancel(self.stop_reason or "drain_timeout")
            self._record_unsent(lookahead.taken, dispatcher.left, dispatcher.stop_reason or "internal_error")

    def _elapsed_us(self) -> int:
        return self._now_us() - self._schedule.t0_us

    def _record_unsent(self, taken: int, left: list[Prepared], reason: str) -> None:
        """Record the rows that were not sent, so that every row of the plan is accounted for.

        Those are the ones `left` that were taken from the plan, those held back, and the rest. Not those of further
        laps: a loop's rest may be a hundred times what was sent, and the manifest tells it.
        """
        writer, kind, t0_us = UnsentWriter(self._run, self._shard), self._link.endpoint.kind, self._schedule.t0_us
        plan = self._schedule.plan
        writer.write([prepared_row(item, t0_us, kind) for item in left], reason)
        for batch in [list(plan.held[taken:])] if self._schedule.endless else plan.batches(taken):
            writer.write([planned_row(request, t0_us, kind) for request in batch], reason)

    def _record(self, row: RequestRow) -> None:
        self.recorder.request(row)
        if self._meter is not None:
            self._meter.ended(row)
        if row.done is not None and row.due >= self._schedule.measured_from_us:
            self.watch.ended(
                row.done,
                failed=row.outcome != "ok" and row.error_kind != AS_RECORDED,
                lag_us=None if row.sent is None else row.sent - row.due,
                latency_us=round((row.done - row.due) * self._clock.time_scale),
            )
        if self._on_row is not None:
            self._on_row(row)

    def _note_written(self, rows: list[RequestRow]) -> None:
        self._checkpoint.recorded(row.row_id for row in rows)


def unwritable(run: RunDir, error: OSError) -> RamptraceError:
    """Return the error of a run directory that took no more."""
    return RamptraceError(f"{run.path}: {error}; make room and go on with `ramptrace replay --resume`")
