"""One replay from its scenario to its verdict. Runs inside gevent, with Locust or without."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gevent
import gevent.event
import msgspec

from loadgen.abort import AbortWatch, parse_rule
from loadgen.checkpoint import Checkpoint
from loadgen.closing import compact, conclude
from loadgen.companion import Companion
from loadgen.dispatcher import Dispatcher, HubProbe
from loadgen.endpoints.base import Endpoint
from loadgen.endpoints.http import HttpEndpoint
from loadgen.endpoints.registry import make_endpoint
from loadgen.filing import new_run, same_clock, stopped_run
from loadgen.guard import Estimate, described, estimate, needs_confirmation, refuse_beyond
from loadgen.httpclient import HttpClient
from loadgen.intake import cut_trace, last_arrival_us, recut, write_trace
from loadgen.lookahead import LookAhead, Plan, Prepared
from loadgen.native import in_thread, quiet_interpreter
from loadgen.plan import PlannedRequest, due_offset_us
from loadgen.preflight import find_emulator, get_json, is_loopback, reach
from loadgen.prompts import Prompts
from loadgen.recorder import AS_RECORDED, Recorder, RequestRow, UnsentWriter, forget_unsent
from loadgen.resume import Held, held_back, record_killed
from loadgen.sampling import Sampler
from loadgen.scenario import Scenario
from loadgen.sender import Sender, planned_row, prepared_row
from loadgen.turns import Turns
from traces.clock import ClientClock, EndpointClock
from traces.errors import EXIT_INTERRUPTED, BadInputError, RamptraceError
from traces.run import Manifest, RunDir, Stretch

_COLLECTOR_READY_S = 60.0

logger = logging.getLogger("ramptrace")


class StoppedError(RamptraceError):
    """Stopped by the user before there was a run."""

    exit_code = EXIT_INTERRUPTED


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a replay stands. `elapsed_us` is client time since t0, negative before it; `None` is no end."""

    planned: int | None
    started: int
    in_flight: int
    lag_p99_us: int | None
    elapsed_us: int
    length_us: int | None


class ReplaySession:
    """Prepares and executes one replay. `on_request` gets each finished row of a request that was attempted.

    `resume` is the directory of a run to go on with; then `scenario` is that run's own. `confirm` is asked, with what
    would be sent, when another machine is the target and it is much; without it the answer is no.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        run_path: Path | None = None,
        resume: Path | None = None,
        on_request: Callable[[RequestRow], None] | None = None,
        confirm: Callable[[str], bool] | None = None,
    ) -> None:
        self.scenario = scenario
        self.clock = ClientClock()
        self.load_ended = gevent.event.Event()
        self.run: RunDir
        self.manifest: Manifest
        self.aborted: str | None = None
        self._run_path = run_path
        self._resume = resume
        self._on_request = on_request
        self._confirm = confirm
        self._stopped = gevent.event.Event()
        self._abandoned = gevent.event.Event()
        self._stop_reason: str | None = None
        self._companion: Companion | None = None
        self._probe = HubProbe(self.clock.now_us)
        self._abort = AbortWatch(
            [parse_rule(rule) for rule in scenario.guard.abort_on],
            window_us=scenario.guard.abort_window_us,
            grace_us=scenario.guard.abort_grace_us,
        )
        self._endpoint: Endpoint
        self._client: HttpClient
        self._recorder: Recorder
        self._checkpoint: Checkpoint
        self._dispatcher: Dispatcher | None = None
        self._sender: Sender | None = None
        self._estimate: Estimate | None = None
        self._planned: int | None = 0
        self._last_due_us: int | None = 0
        self._t0_us = 0
        self._measured_from_us = 0
        self._taken: int | None = None
        self._held: list[PlannedRequest] = []

    @property
    def label(self) -> str:
        """What the requests go to, in a word: the model, or the endpoint's name."""
        return self._endpoint.label

    @property
    def url(self) -> str:
        """The target's address."""
        return self._endpoint.url

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
        if self._dispatcher is not None:
            self._dispatcher.stop(self._stop_reason)

    def prepare(self) -> None:
        """Check the trace, the guards and the target, make the run directory, and start the collector.

        Raises `BadInputError` or `UnreachableError` before anything is written, and before the target sees a byte of
        a plan that was not allowed.
        """
        scenario = self.scenario
        prompts = in_thread(lambda: Prompts(scenario.prompts, seed=scenario.replay.seed))
        self._endpoint = make_endpoint(scenario.target, prompts)
        if self._resume is None:
            self._prepare_new()
        else:
            self._prepare_resumed(self._resume)
        self._recorder = Recorder(self.run, flush_s=scenario.replay.flush_us / 1e6, on_written=self._note_written)
        if scenario.collect is not None:
            self._companion = Companion(self.run.path)
            self._companion.start(_COLLECTOR_READY_S, self._stopped)
        self._note_collector()
        if self._companion is not None and self._companion.state["state"] == "died":
            why = self._companion.state["detail"] or "no reason known"
            logger.warning("the collector died before the load (%s); this run will have no scaling events", why)

    def _prepare_new(self) -> None:
        if self._run_path is not None:
            RunDir.refuse_existing(self._run_path)
        cut = in_thread(cut_trace, self.scenario)
        if (share := cut.used.sampling_percent) is not None and share < 100:
            logger.warning(
                "%s is a sample of %g %% of the real requests, replayed as recorded; `ramptrace trace transform "
                "--rate-scale sampling` brings it to the real rate",
                cut.used.source,
                share,
            )
        self._allow(in_thread(estimate, cut.frame, self.scenario.replay, self.scenario.prices, cut.laps, cut.planned))
        clock = self._reach()
        self.run = new_run(self.scenario, self._run_path, cut, clock, self.clock.now_us())
        self.manifest = self.run.manifest()
        last_us = in_thread(write_trace, cut.frame, self.run.path)
        self._checkpoint = Checkpoint(self.run.path)
        self._plan_ends(cut.planned, last_us)

    def _prepare_resumed(self, path: Path) -> None:
        self.run, self.manifest, _ = stopped_run(path)
        cut = in_thread(recut, self.manifest, path)
        self._checkpoint = Checkpoint(path)
        if not self._checkpoint.taken and self.manifest.stretches and self._has_rows():
            raise BadInputError(f"{path}: its checkpoint.bin is missing or empty; what was sent is unknown, start anew")
        replay, prices = self.scenario.replay, self.scenario.prices
        self._allow(in_thread(estimate, cut.frame, replay, prices, cut.laps, cut.planned), again=True)
        same_clock(self.manifest, self._reach(), path)
        self.manifest.state, self.manifest.verdict, self.manifest.finished_us = "running", None, None
        self._plan_ends(cut.planned, in_thread(last_arrival_us, path))

    def _has_rows(self) -> bool:
        return bool(self.run.shards("requests"))

    def _allow(self, found: Estimate, *, again: bool = False) -> None:
        """Refuse a plan that goes beyond the guards, or that nobody said yes to."""
        self._estimate = found
        guard, target = self.scenario.guard, self._endpoint.target
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
        """Connect, and return the emulator's clock, `None` for a real platform."""
        self._client = reach(
            self._endpoint.target,
            connect_timeout_s=self.scenario.target.connect_timeout_us / 1e6,
            verify_tls=self.scenario.target.verify_tls,
            now_us=self.clock.now_us,
        )
        clock = self._read_clock()
        self._name_model()
        self._endpoint.refresh()
        if self._stopped.is_set():
            raise StoppedError("interrupted before anything was sent")
        return clock

    def _plan_ends(self, planned: int | None, last_arrival_us: int) -> None:
        laps, self._planned = self.manifest.laps, planned
        last_us = last_arrival_us if laps is None else laps.until_us
        self._last_due_us = None if last_us is None else due_offset_us(last_us, self.manifest.time_scale)

    def execute(self) -> dict[str, Any]:
        """Replay, and return the run's summary (the document that `--json` prints)."""
        failure: BaseException | None = None
        try:
            self._settle_last_stretch()
            self._begin_stretch()
        except OSError as error:
            raise self._unwritable(error) from error
        with quiet_interpreter():
            self._recorder.start()
            self._probe.start()
            sampler = gevent.spawn(self._sampler().run)
            try:
                self._send_all(self.manifest.time_scale)
            except OSError as error:
                failure = self._unwritable(error)
            except Exception as error:
                failure = error
            sampler.kill()
            self._probe.stop()
            self._client.close()
            try:
                self._recorder.close()
            except OSError as error:
                failure = failure or self._unwritable(error)
        try:
            summary = self._close_run(failed=failure is not None)
        except OSError as error:
            why = f"{self.run.path}: the run could not be closed ({error.strerror or error}); what was recorded is kept"
            raise failure or RamptraceError(why) from error
        if failure is not None:
            raise failure
        return summary

    def progress(self) -> Progress:
        """Return where the replay stands."""
        sender, dispatcher = self._sender, self._dispatcher
        return Progress(
            planned=self._planned,
            started=(self.manifest.stretches[-1].position if dispatcher else 0)
            + (dispatcher.started if dispatcher else 0),
            in_flight=sender.in_flight if sender else 0,
            lag_p99_us=sender.lag.quantile_us(0.99) if sender else None,
            elapsed_us=self._elapsed_us() if self._t0_us else 0,
            length_us=self._last_due_us,
        )

    def _unwritable(self, error: OSError) -> RamptraceError:
        return RamptraceError(f"{self.run.path}: {error}; make room and go on with `ramptrace replay --resume`")

    def _elapsed_us(self) -> int:
        return self.clock.now_us() - self._t0_us

    def _plan(self, first: int, held: Sequence[PlannedRequest] = ()) -> Plan:
        manifest = self.manifest
        trace = self.run.path / "trace.parquet"
        return Plan(trace, self.scenario.replay, manifest.time_scale, laps=manifest.laps, first=first, held=held)

    def _settle_last_stretch(self) -> None:
        """Settle what the stretch before this one left: rows under way when it was killed, rows it left unsent."""
        checkpoint, stretches = self._checkpoint, self.manifest.stretches
        if self._resume is None:
            return
        held: Held = {}
        if stretches and checkpoint.settled < checkpoint.taken:
            plan, t0_us = self._plan(checkpoint.settled), stretches[-1].t0_us
            record_killed(self.run, plan, checkpoint, self._recorder, t0_us=t0_us, kind=self._endpoint.kind)
            held = held_back(self.run, plan, checkpoint)
        checkpoint.settle({request.row_id: position for position, request in held.items()})
        in_thread(forget_unsent, self.run)
        self._held = list(held.values())

    def _begin_stretch(self) -> None:
        """Fix t0: so that the first row of this stretch is due after the lead."""
        position, manifest = self._checkpoint.taken, self.manifest
        rest = next(self._plan(position).batches(), None)
        first_due_us = rest[0].due_us if rest else max((request.due_us for request in self._held), default=0)
        # The turns before those held back have ended since, so these are due at once; as lag it would be ours.
        self._held = [msgspec.structs.replace(request, due_us=first_due_us) for request in self._held]
        began_us = self.clock.now_us() + self.scenario.replay.lead_us
        self._t0_us = began_us - (first_due_us if position else 0)
        self._measured_from_us = began_us + due_offset_us(self.scenario.replay.warm_up_us, manifest.time_scale)
        manifest.t0_us = self._t0_us if manifest.t0_us is None else manifest.t0_us
        stretch = Stretch(t0_us=self._t0_us, began_us=began_us, position=position)
        if self.scenario.replay.warm_up_us:
            stretch.warm_up_until_us = self._measured_from_us
        manifest.stretches.append(stretch)
        self.run.write_manifest(manifest)

    def _sampler(self) -> Sampler:
        return Sampler(
            self._probe,
            clock=self.manifest.clock,
            now_us=self.clock.now_us,
            in_flight=lambda: self._sender.in_flight if self._sender else 0,
            record=self._recorder.sample,
            each_second=self._check_rules,
        )

    def _check_rules(self) -> None:
        if self.aborted is None and not self._stopped.is_set():
            self.aborted = self._abort.check(self.clock.now_us())
            if self.aborted is not None:
                self.stop("aborted")

    def _send_all(self, time_scale: float) -> None:
        replay, target = self.scenario.replay, self.scenario.target
        drain_us = round(replay.drain_us / time_scale)
        plan = self._plan(self._checkpoint.taken, self._held)
        lookahead = LookAhead(plan, self._endpoint, self._elapsed_us)
        lookahead.on_take = self._checkpoint.take
        found = plan.traits()
        longest_think_us = due_offset_us(found.longest_think_us, time_scale)
        self._sender = Sender(
            self._client,
            self._endpoint,
            now_us=self.clock.now_us,
            t0_us=self._t0_us,
            timeout_s=target.request_timeout_us / time_scale / 1e6,
            record=self._record,
        )
        dispatcher = self._dispatcher = Dispatcher(
            lookahead,
            elapsed_us=self._elapsed_us,
            send=self._sender.send,
            ensure=self._client.ensure,
            turns=Turns(longest_think_us) if found.has_turns else None,
            max_in_flight=replay.max_in_flight,
            give_up_us=None if self._last_due_us is None else self._last_due_us + drain_us,
        )
        if self._stop_reason is not None:
            dispatcher.stop(self._stop_reason)
        try:
            dispatcher.run()
            if self._last_due_us is not None:
                left_us = self._last_due_us + drain_us - self._elapsed_us()
                dispatcher.drain(max(0.0, left_us / 1e6), self._stopped)
            if self._stopped.is_set():
                dispatcher.drain(replay.stop_grace_us / 1e6, self._abandoned)
        finally:
            dispatcher.cancel(self._stop_reason or "drain_timeout")
            self._record_unsent(plan, lookahead.taken, dispatcher.left, dispatcher.stop_reason or "internal_error")
            self._taken = self._checkpoint.taken

    def _record_unsent(self, plan: Plan, taken: int, left: list[Prepared], reason: str) -> None:
        """Record the rows that were not sent, so that every row of the plan is accounted for.

        Those are the ones `left` that were taken from the plan, those held back, and the rest. Not those of further
        laps: a loop's rest may be a hundred times what was sent, and the manifest tells it.
        """
        writer, kind = UnsentWriter(self.run), self._endpoint.kind
        writer.write([prepared_row(item, self._t0_us, kind) for item in left], reason)
        for batch in plan.batches(taken) if self.manifest.laps is None else [list(plan.held[taken:])]:
            writer.write([planned_row(request, self._t0_us, kind) for request in batch], reason)

    def _record(self, row: RequestRow) -> None:
        self._recorder.request(row)
        if row.done is not None and row.due >= self._measured_from_us:
            self._abort.ended(
                row.done,
                failed=row.outcome != "ok" and row.error_kind != AS_RECORDED,
                lag_us=None if row.sent is None else row.sent - row.due,
                latency_us=round((row.done - row.due) * self.manifest.time_scale),
            )
        if self._on_request is not None:
            self._on_request(row)

    def _note_written(self, rows: list[RequestRow]) -> None:
        self._checkpoint.recorded(row.row_id for row in rows)

    def _never_taken(self) -> dict[str, int]:
        """Return how many rows of a loop's plan have no row in the table, by reason."""
        if self.manifest.laps is None or self._planned is None or self._taken is None:
            return {}
        rest = self._planned - self._taken
        return {self._stop_reason or "internal_error": rest} if rest > 0 else {}

    def _close_run(self, *, failed: bool) -> dict[str, Any]:
        """Write the verdict, see the collector out, and close the manifest."""
        manifest, partial = self.manifest, self.interrupted or failed
        manifest.finished_us = manifest.stretches[-1].ended_us = self.clock.now_us()
        self._bound_clock_error()
        summary: dict[str, Any] = in_thread(
            lambda: conclude(
                self.run,
                manifest,
                self.scenario,
                probe=self._probe,
                connect_p99_us=self._sender.connect.quantile_us(0.99) if self._sender else None,
                never_taken=self._never_taken(),
                aborted=self.aborted,
                estimate=self._estimate,
            )
        )
        in_thread(lambda: compact(self.run, whole=not partial, planned=self._planned))
        if partial:
            manifest.state = "interrupted"  # now: who stopped it may not wait for the collector's tail
        self.run.write_manifest(manifest)
        self._checkpoint.close()
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
            again = self._read_clock()
        except RamptraceError:
            return  # it is gone; the reading from the start is what there is
        if again is not None:
            clock = self.manifest.clock
            off_us = abs(clock.to_client_us(again.endpoint_epoch_us) - again.client_epoch_us) + again.error_us
            self.manifest.clock = msgspec.structs.replace(clock, error_us=max(clock.error_us, off_us))

    def _read_clock(self) -> EndpointClock | None:
        emulator = self.scenario.emulator
        return find_emulator(emulator.url if emulator else None, self._endpoint.target, self._client, self.clock.now_us)

    def _note_collector(self) -> None:
        if self._companion is not None:
            self.manifest.collector = dict(self._companion.state)
        elif self.scenario.collect is None:
            self.manifest.collector = {"state": "absent", "exit_code": None, "detail": "not asked for"}
        self.run.write_manifest(self.manifest)

    def _name_model(self) -> None:
        """Ask a server that can tell which model it serves, when nobody said."""
        endpoint = self._endpoint
        if not isinstance(endpoint, HttpEndpoint) or endpoint.models_path is None or endpoint.model is not None:
            return
        document = get_json(self._client, endpoint.target, endpoint.models_path, endpoint.auth)
        try:
            endpoint.serve(str(document["data"][0]["id"]))
        except (TypeError, KeyError, IndexError):
            return  # the trace's own names are asked for, or none
