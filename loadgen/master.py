"""A replay whose load is sent by workers: the plan handed out, one t0 for all, what they record brought together."""

from __future__ import annotations

import logging
import time
from typing import Any

import gevent
import msgspec

from loadgen.crew import Crew, Member, shown
from loadgen.filing import filed_scenario, versions
from loadgen.gathering import fetch_shards
from loadgen.guard import abort_watch
from loadgen.histogram import Histogram
from loadgen.intake import Cut
from loadgen.native import in_thread
from loadgen.offsets import Offset, best, offset_of, widened
from loadgen.opening import Opened, Opening, StoppedError
from loadgen.parts import recorded_per_shard, unaccounted, worst
from loadgen.scenario import Scenario
from loadgen.session import Progress, ReplaySession
from loadgen.settling import clear, settle_lost
from loadgen.sharding import shard_cap
from loadgen.verdict import ClientState
from loadgen.worker import MASTER_LOST_S
from traces.errors import RamptraceError
from traces.manifest import WorkerPart

_PINGS = 20
_PING_GAP_S = 0.02
_LOOK_S = 0.1
_OVERDUE_S = 60.0

logger = logging.getLogger("ramptrace")


class _Told(msgspec.Struct):
    """What a worker has told of its sending so far."""

    started: int = 0
    in_flight: int = 0
    lag: Histogram = msgspec.field(default_factory=Histogram)
    ended: dict[str, Any] | None = None


class MasterSession(ReplaySession):
    """Has the load sent by the workers that are connected when it is prepared."""

    sends_elsewhere = True

    def __init__(self, scenario: Scenario, crew: Crew, **more: Any) -> None:
        super().__init__(scenario, **more)
        self._crew = crew
        self._told: dict[int, _Told] = {}
        self._parts: dict[int, WorkerPart] = {}
        self._offsets: dict[int, Offset] = {}
        self._checked_us = 0
        self._watch = abort_watch(scenario.guard, scenario.gate)

    def progress(self) -> Progress:
        """Return where the replay stands."""
        lag = Histogram()
        for told in self._told.values():
            lag.merge(told.lag)
        return Progress(
            planned=self._planned,
            started=sum(told.started for told in self._told.values()),
            in_flight=sum(told.in_flight for told in self._told.values()),
            lag_p99_us=lag.quantile_us(0.99),
            elapsed_us=self._elapsed_us() if self._t0_us else 0,
            length_us=self._last_due_us,
        )

    def stop(self, reason: str = "interrupted") -> None:
        """As ever. Locust also stops a test that has lost its last worker: that is no user's interruption."""
        nobody_left = bool(self._crew.members) and not self._crew.present
        if reason != "interrupted" or not (nobody_left or self._all_ended):
            super().stop(reason)

    @property
    def _all_ended(self) -> bool:
        """Whether the load has ended, and its rows are being brought in."""
        members = self._crew.members
        return bool(self._told and members) and all(m.lost or self._has_ended(m) for m in members)

    def prepare(self) -> None:
        """As ever, and hand the plan out. A worker's refusal ends it, with that worker's exit code."""
        try:
            super().prepare()
        except Exception:
            self._crew.dismiss()
            raise

    def _open(self, opening: Opening) -> Opened:
        return opening.new(self._run_path, self._check)

    def _check(self, cut: Cut) -> None:
        """Have every worker read the plan's file and reach the target, before anything is written."""
        crew = self._crew
        crew.muster(self.clock, self._stopped)
        crew.on_news = self._on_news
        shards = len(crew.members)
        shard_cap(self.scenario.replay.max_in_flight, 0, max(1, shards))
        plan = {
            "scenario": filed_scenario(msgspec.structs.replace(self.scenario, collect=None)),
            "sha256": cut.used.sha256,
            "rows": cut.used.rows,
            "shards": shards,
            "versions": versions(),
        }
        answers = crew.ask("check", lambda member: plan | {"shard": member.shard}, cut_short=self._stopped)
        if not answers:
            raise StoppedError("interrupted before anything was sent")
        for member in crew.members:
            planned = answers[member.shard].data["planned"]
            part = WorkerPart(shard=member.shard, host=member.host, planned=planned)
            self._parts[member.shard], self._told[member.shard] = part, _Told()
        planned_by_all = sum(part.planned or 0 for part in self._parts.values())
        if cut.planned is not None and planned_by_all != cut.planned:
            raise RamptraceError(f"the workers' shares come to {planned_by_all} rows, not to the plan's {cut.planned}")

    def _opened(self) -> None:
        self.manifest.workers = list(self._parts.values())
        self.run.write_manifest(self.manifest)
        place = {"run_path": str(self.run.path.absolute()), "manifest": msgspec.to_builtins(self.manifest)}
        try:
            answers = self._crew.ask("open", lambda _: place)
        except RamptraceError:
            self._give_up()
            raise
        for shard, answer in answers.items():
            self._parts[shard].shared = answer.data["shared"]

    def _begin(self) -> None:
        try:
            self._go()
        except RamptraceError:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Leave nobody sending, and nothing running, when the load could not begin on every worker."""
        self._stop_reason = self._stop_reason or "interrupted"
        self._pass_on_stop()
        self._crew.dismiss()
        if self._companion is not None:
            self._companion.finish(0.0, self._abandoned)
        self.manifest.state = "interrupted"
        self._note_collector()

    def _go(self) -> None:
        readings = self._ping()
        if len(readings) < len(self._parts):
            raise StoppedError("interrupted before anything was sent")
        for shard, offset in readings.items():
            self._parts[shard].clock_offset_us, self._parts[shard].clock_error_us = offset.offset_us, offset.error_us
        self._offsets = readings
        self._begin_stretch()
        schedule = {
            "t0_us": self._t0_us,
            "measured_from_us": self._measured_from_us,
            "last_due_us": self._last_due_us,
            "time_scale": self.manifest.time_scale,
        }
        self._crew.ask("go", lambda member: schedule | {"offset_us": readings[member.shard].offset_us})

    def _ping(self) -> dict[int, Offset]:
        """Return how far each worker's clock is from ours, from the tightest of several round trips."""
        found: dict[int, list[Offset]] = {}
        for _ in range(_PINGS):
            sent: dict[int, int] = {}

            def stamped(member: Member, sent: dict[int, int] = sent) -> dict[str, Any]:
                sent[member.shard] = self.clock.now_us()
                return {}

            for shard, answer in self._crew.ask("ping", stamped, cut_short=self._abandoned).items():
                reading = offset_of(sent[shard], int(answer.data["worker_us"]), answer.received_us)
                found.setdefault(shard, []).append(reading)
            gevent.sleep(_PING_GAP_S)
        return {shard: best(readings) for shard, readings in found.items()}

    def _send(self) -> None:
        if self._stop_reason is not None:
            self._pass_on_stop()  # told before it was told to go
        while self._crew.remaining and not all(self._has_ended(member) for member in self._crew.remaining):
            gevent.sleep(_LOOK_S)
            for member in self._crew.remaining:
                if not self._has_ended(member):
                    self._note_loss(member)
            self._check_rules()
        self._bound_offsets()
        for member in self._crew.members:
            self._bring_in(member)
        self._crew.dismiss()

    def _has_ended(self, member: Member) -> bool:
        return self._told[member.shard].ended is not None

    def _note_loss(self, member: Member) -> None:
        overdue_us = None if self._last_due_us is None else self._last_due_us + self._overdue_us()
        if overdue_us is not None and self._elapsed_us() > overdue_us:
            member.lost = "it did not end in time"
            self._crew.tell(member, "stop", reason="overdue")
            self._crew.tell(member, "abandon")
        why = self._crew.loss(member)
        if why is not None:
            logger.error("%s was lost: %s; the run is INVALID, the others go on", shown(member), why)
            part = self._parts[member.shard]
            part.state, part.detail = "lost", why
            self.run.write_manifest(self.manifest)

    def _overdue_us(self) -> int:
        replay = self.scenario.replay
        return round(replay.drain_us / self.manifest.time_scale) + replay.stop_grace_us + round(_OVERDUE_S * 1e6)

    def _check_rules(self) -> None:
        now_us = self.clock.now_us()
        if now_us - self._checked_us >= 1_000_000:
            self._checked_us = now_us
            self._abort(self._watch.check(now_us))

    def _bound_offsets(self) -> None:
        """Read the clocks again: what they have drifted apart meanwhile widens the error."""
        try:
            again = self._ping()
        except RamptraceError:
            return  # one was lost meanwhile; the readings from the start are what there is
        for shard, last in again.items():
            if shard in self._offsets:
                self._parts[shard].clock_error_us = widened(self._offsets[shard], last).error_us

    def _bring_in(self, member: Member) -> None:
        """Take a worker's rows into the run's directory, and what it told into the manifest."""
        part, ended = self._parts[member.shard], self._told[member.shard].ended
        if ended is not None:
            self._take_words(part, ended)
        if part.shared:
            if part.state != "lost" or self._settle(member):
                clear(self.run, member.shard)
            return
        if ended is not None:
            try:
                fetch_shards(self._crew, member, self.run, self._abandoned)
            except RamptraceError as error:
                part.state, part.detail = "lost", f"its rows could not be fetched: {error}"
        if part.state == "lost":
            logger.error("%s: merge its directory into this run with `ramptrace merge`", shown(member))

    def _take_words(self, part: WorkerPart, ended: dict[str, Any]) -> None:
        state = msgspec.convert(ended["client"], ClientState)
        part.hub_latency_p99_us, part.connect_p99_us = state.hub_latency_p99_us, state.connect_p99_us
        part.cpu_share, part.cpu_wait_share = state.cpu_share, state.cpu_wait_share
        if ended["failure"] is not None:
            part.state, part.detail = "failed", ended["failure"]
        elif ended["reason"] in {"worker_stopped", "master_lost"}:
            part.state, part.detail = "stopped", ended["reason"]
        else:
            part.state = "finished"

    def _settle(self, member: Member) -> bool:
        """Account for a lost worker's rows; one that still runs, cut off, is given the time to stop by itself."""
        patience_s = MASTER_LOST_S + self.scenario.replay.stop_grace_us / 1e6
        deadline = time.monotonic() + patience_s
        while not settle_lost(self.run, self.manifest, self.scenario, member.shard, self._link.endpoint.kind):
            if self._abandoned.is_set() or time.monotonic() > deadline:
                return False
            gevent.sleep(1.0)
        return True

    def _sent(self) -> None:
        self._link.client.close()

    def _pass_on_stop(self) -> None:
        for member in self._crew.remaining:
            self._crew.tell(member, "stop", reason=self._stop_reason)
            if self._abandoned.is_set():
                self._crew.tell(member, "abandon")

    def _client_state(self) -> ClientState:
        return worst(self.manifest.workers)

    def _never_taken(self) -> dict[str, int]:
        return unaccounted(self.manifest.workers, in_thread(recorded_per_shard, self.run), self._stop_reason)

    def _on_news(self, member: Member, news: dict[str, Any]) -> None:
        told = self._told[member.shard]
        if news["do"] == "tick":
            told.started, told.in_flight = news["started"], news["in_flight"]
            told.lag = Histogram.from_document(news["lag"])
            self._watch.merge(news["ended"])
        elif news["do"] == "ended":
            told.ended = news
