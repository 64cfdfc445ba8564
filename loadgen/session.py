"""One replay from its scenario to its verdict. Runs inside gevent, with Locust or without."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from secrets import token_hex
from typing import Any

import gevent
import gevent.event
import msgspec

from loadgen.companion import Companion
from loadgen.dispatcher import Dispatcher, HubProbe
from loadgen.endpoints.base import Endpoint
from loadgen.httpclient import HttpClient
from loadgen.intake import cut_trace, write_trace
from loadgen.lookahead import LookAhead, Plan
from loadgen.native import in_thread, quiet_interpreter
from loadgen.plan import due_offset_us
from loadgen.preflight import find_emulator, get_json, reach
from loadgen.recorder import Recorder, RequestRow, SampleRow
from loadgen.scenario import Scenario, TargetSection
from loadgen.sender import Sender, planned_row
from loadgen.summary import counts, fidelity, latencies_ms, stalls, without_warm_up
from loadgen.verdict import verdict
from traces.clock import ClientClock, EndpointClock
from traces.errors import EXIT_INTERRUPTED, RamptraceError
from traces.run import Manifest, RunDir, TraceUsed

STOP_GRACE_S = 10.0
"""How long answers under way may take after a stop; a second stop ends them at once."""

_COLLECTOR_READY_S = 60.0
_COMPACT_ROWS = 2_000_000
_SAMPLE_S = 1.0
_PACKAGES = ("ramptrace", "locust", "gevent", "geventhttpclient", "polars", "botocore")


class StoppedError(RamptraceError):
    """Stopped by the user before there was a run."""

    exit_code = EXIT_INTERRUPTED


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a replay stands. `elapsed_us` is client time since t0, negative before it."""

    planned: int
    started: int
    in_flight: int
    lag_p99_us: int | None
    elapsed_us: int
    length_us: int


class ReplaySession:
    """Prepares and executes one replay. `on_request` gets each finished row of a request that was attempted."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        run_path: Path | None = None,
        on_request: Callable[[RequestRow], None] | None = None,
    ) -> None:
        self.scenario = scenario
        self.clock = ClientClock()
        self.load_ended = gevent.event.Event()
        self.run: RunDir
        self.manifest: Manifest
        self._run_path = run_path
        self._on_request = on_request
        self._stopped = gevent.event.Event()
        self._abandoned = gevent.event.Event()
        self._companion: Companion | None = None
        self._probe = HubProbe(self.clock.now_us)
        self._endpoint: Endpoint
        self._client: HttpClient
        self._recorder: Recorder
        self._dispatcher: Dispatcher | None = None
        self._sender: Sender | None = None
        self._planned = 0
        self._last_due_us = 0
        self._t0_us = 0

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
        """Whether `stop` was called."""
        return bool(self._stopped.is_set())

    def stop(self) -> None:
        """Send no more. Answers under way get `STOP_GRACE_S`; a second call ends them, and the collector, at once."""
        if self._stopped.is_set():
            self._abandoned.set()
        self._stopped.set()
        if self._dispatcher is not None:
            self._dispatcher.stop("interrupted")

    def prepare(self) -> None:
        """Check the trace and the target, make the run directory, and start the collector.

        Raises `BadInputError` or `UnreachableError` before anything is written.
        """
        scenario, now_us = self.scenario, self.clock.now_us
        if self._run_path is not None:
            RunDir.refuse_existing(self._run_path)
        frame, used = in_thread(cut_trace, scenario)
        self._endpoint = make_endpoint(scenario.target, seed=scenario.replay.seed)
        target = self._endpoint.target
        self._client = reach(
            target,
            connect_timeout_s=scenario.target.connect_timeout_us / 1e6,
            verify_tls=scenario.target.verify_tls,
            now_us=now_us,
        )
        clock = self._read_clock()
        self._name_model()
        self._endpoint.refresh()
        if self._stopped.is_set():
            raise StoppedError("interrupted before anything was sent; no run was made")
        self.run = self._create_run(used, clock)
        self._planned = used.rows or 0
        last_arrival_us: int = in_thread(write_trace, frame, self.run.path)
        self._last_due_us = due_offset_us(last_arrival_us, self.manifest.time_scale)
        self._recorder = Recorder(self.run, flush_s=scenario.replay.flush_us / 1e6)
        if scenario.collect is not None:
            self._companion = Companion(self.run.path)
            self._companion.start(_COLLECTOR_READY_S, self._stopped)
        self._note_collector()

    def execute(self) -> dict[str, Any]:
        """Replay, and return the run's summary (the document that `--json` prints)."""
        time_scale = self.manifest.time_scale
        self._t0_us = self.clock.now_us() + self.scenario.replay.lead_us
        self.manifest.t0_us = self._t0_us
        self.run.write_manifest(self.manifest)
        failure: BaseException | None = None
        with quiet_interpreter():
            self._recorder.start()
            self._probe.start()
            sampler = gevent.spawn(self._sample)
            try:
                self._send_all(time_scale)
            except Exception as error:
                failure = error
            sampler.kill()
            self._probe.stop()
            self._client.close()
            try:
                self._recorder.close()
            except OSError as error:
                failure = failure or RamptraceError(f"{self.run.path}: {error}; make room and run it again")
        summary = self._close_run(time_scale, failed=failure is not None)
        if failure is not None:
            raise failure
        return summary

    def progress(self) -> Progress:
        """Return where the replay stands."""
        sender, dispatcher = self._sender, self._dispatcher
        return Progress(
            planned=self._planned,
            started=dispatcher.started if dispatcher else 0,
            in_flight=sender.in_flight if sender else 0,
            lag_p99_us=sender.lag.quantile_us(0.99) if sender else None,
            elapsed_us=self._elapsed_us() if self._t0_us else 0,
            length_us=self._last_due_us,
        )

    def _elapsed_us(self) -> int:
        return self.clock.now_us() - self._t0_us

    def _send_all(self, time_scale: float) -> None:
        replay, target = self.scenario.replay, self.scenario.target
        drain_us = replay.drain_us / time_scale
        plan = Plan(self.run.path / "trace.parquet", replay, time_scale)
        lookahead = LookAhead(plan, self._endpoint, self._elapsed_us)
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
            max_in_flight=replay.max_in_flight,
            give_up_us=self._last_due_us + round(drain_us),
        )
        if self._stopped.is_set():
            dispatcher.stop("interrupted")
        try:
            dispatcher.run()
            left_us = self._last_due_us + drain_us - self._elapsed_us()
            dispatcher.drain(max(0.0, left_us / 1e6), self._stopped)
            if self._stopped.is_set():
                dispatcher.drain(STOP_GRACE_S, self._abandoned)
        finally:
            dispatcher.cancel("interrupted" if self._stopped.is_set() else "drain_timeout")
            self._record_rest(plan, lookahead.taken, dispatcher.stop_reason or "internal_error")

    def _record_rest(self, plan: Plan, taken: int, reason: str) -> None:
        """Record the rows that were never sent, so that every row of the plan is accounted for."""
        for batch in plan.batches(taken):
            for request in batch:
                row = planned_row(request, self._t0_us, self._endpoint.kind)
                row.outcome, row.error_kind = "not_sent", reason
                self._recorder.request(row)
            self._recorder.flush()

    def _record(self, row: RequestRow) -> None:
        self._recorder.request(row)
        if self._on_request is not None:
            self._on_request(row)

    def _sample(self) -> None:
        clock, period_us = self.manifest.clock, round(_SAMPLE_S * 1e6 * self.manifest.time_scale)
        while True:
            began_us = self.clock.now_us()
            gevent.sleep(_SAMPLE_S)
            now_us = self.clock.now_us()
            self._recorder.sample(
                SampleRow(
                    metric="hub_latency_us",
                    start=clock.to_endpoint_us(began_us),
                    period_us=period_us,
                    statistic="Maximum",
                    value=float(self._probe.take_worst_us()),
                    received=now_us,
                )
            )
            self._recorder.sample(
                SampleRow(
                    metric="in_flight",
                    start=clock.to_endpoint_us(now_us),
                    period_us=0,
                    statistic="Value",
                    value=float(self._sender.in_flight if self._sender else 0),
                    received=now_us,
                )
            )

    def _close_run(self, time_scale: float, *, failed: bool) -> dict[str, Any]:
        """Write the verdict, see the collector out, and close the manifest."""
        manifest = self.manifest
        manifest.finished_us = self.clock.now_us()
        self._bound_clock_error()
        connect_us = self._sender.connect.quantile_us(0.99) if self._sender else None
        requests = self.run.scan("requests")
        found = in_thread(
            lambda: fidelity(
                requests,
                limits=self.scenario.verdict,
                t0_us=self._t0_us,
                time_scale=time_scale,
                warm_ups_us=manifest.warm_ups_us,
                stalls=stalls(self.run.scan("samples"), time_scale),
                hub_latency_p99_us=self._probe.all.quantile_us(0.99),
                connect_p99_us=connect_us,
                cpu_share=self._probe.cpu_share,
                cpu_wait_share=self._probe.cpu_wait_share,
            )
        )
        manifest.verdict = verdict(found, self.scenario.verdict)
        summary = {
            "schema": 1,
            "run": str(self.run.path),
            "emulated": manifest.emulated,
            "condition": manifest.condition,
            "verdict": manifest.verdict,
            "requests": in_thread(counts, requests),
            "latency_ms": in_thread(latencies_ms, without_warm_up(requests, manifest.warm_ups_us), time_scale),
        }
        if self._planned <= _COMPACT_ROWS:
            in_thread(self.run.compact, "requests")
        self.run.write_manifest(manifest)
        self.load_ended.set()
        if self._companion is not None and self.scenario.collect is not None:
            self._companion.finish(self.scenario.collect.tail_us / time_scale / 1e6, self._abandoned)
        manifest.state = "interrupted" if self._stopped.is_set() or failed else "finished"
        self._note_collector()
        return summary

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
        """Ask an OpenAI-compatible server which model it serves, when nobody said."""
        from loadgen.endpoints.openai import OpenAiEndpoint

        endpoint = self._endpoint
        if not isinstance(endpoint, OpenAiEndpoint) or endpoint.model is not None:
            return
        document = get_json(self._client, endpoint.target, endpoint.models_path, endpoint.auth)
        try:
            endpoint.serve(str(document["data"][0]["id"]))
        except (TypeError, KeyError, IndexError):
            return  # the trace's own names are asked for, or none

    def _create_run(self, used: TraceUsed, clock: EndpointClock | None) -> RunDir:
        scenario = self.scenario
        created = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = self._run_path or _free_path(Path(scenario.run.directory) / f"{created}-{_plain_name(scenario.name)}")
        self.manifest = Manifest(
            run_id=f"{created}-{_plain_name(scenario.name)}-{token_hex(3)}",
            name=scenario.name,
            condition=scenario.run.condition,
            emulated=clock is not None,
            created_us=self.clock.now_us(),
            clock=clock or EndpointClock(),
            trace=used,
            scenario=msgspec.to_builtins(scenario),
            versions=_versions(),
            flush_s=scenario.replay.flush_us / 1e6,
        )
        return RunDir.create(path, self.manifest)


def make_endpoint(section: TargetSection, *, seed: int) -> Endpoint:
    """Return the adapter for the kind of endpoint that a scenario names."""
    if section.kind == "sagemaker":
        from loadgen.endpoints.sagemaker import SageMakerEndpoint

        return SageMakerEndpoint(section, seed=seed)
    if section.kind == "http":
        from loadgen.endpoints.http import HttpEndpoint

        return HttpEndpoint(section, seed=seed)
    from loadgen.endpoints.openai import OpenAiEndpoint

    return OpenAiEndpoint(section, seed=seed)


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _plain_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".")[:60] or "run"


def _free_path(path: Path) -> Path:
    number = 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
