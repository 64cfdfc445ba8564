"""The emulated endpoint: serving, metrics, autoscaler and fleet on one agenda. Pure: no clock, no I/O.

The outside world hands in instants; what comes back are effects with the exact instants at which they happened. The
same configuration, seed and arrivals give the same history, however coarsely `advance` is called.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

from loadgen.emulator.agenda import Agenda, Rank
from loadgen.emulator.autoscaler import Autoscaler
from loadgen.emulator.config import EmulatorConfig, to_us
from loadgen.emulator.enhanced import ANSWERED, ARRIVED, EnhancedMetrics
from loadgen.emulator.fleet import Fleet, TruthRow
from loadgen.emulator.hpa import Hpa
from loadgen.emulator.kube_objects import KubeObjects
from loadgen.emulator.message_queue import MessageQueue
from loadgen.emulator.metrics import Gauge, Series, Tally
from loadgen.emulator.serving import Admitted, Effect, Finished, Refused, ServingModel, TimedOut
from loadgen.emulator.units import Units
from loadgen.emulator.words import words_of

INVOCATION_PERIOD_US = 60_000_000
INVOCATIONS, PER_INSTANCE = "Invocations", "InvocationsPerInstance"
LATENCY, ERRORS = "ModelLatency", "InvocationModelErrors"
REFUSED = "NoCapacityInvocationFailures"


class Queue(Protocol):
    """What the endpoint's control plane needs of the queue and the instances that serve it."""

    @property
    def outstanding(self) -> int:
        """How many requests are queued or being served."""
        ...

    def join(self, unit_id: str) -> None:
        """Put a unit into service."""
        ...

    def leave(self, unit_id: str) -> None:
        """Send a unit no more requests."""
        ...

    def dispatch(self) -> None:
        """Give free slots to the queue."""
        ...


class EndpointModel:
    """One endpoint from `start_us` on, all but its queue; before, it was in service, idle, for `config.history_s`."""

    def __init__(self, config: EmulatorConfig, seed: int, start_us: int) -> None:
        self.config = config
        self.words = words_of(config)
        created_us = start_us - to_us(config.history_s)
        self._agenda = Agenda(created_us)
        period_us = to_us(config.scaling.metric_period_s)
        self._gauge = Gauge(created_us, config.scaling.target)
        self._traffic = False
        self.concurrency = Series(period_us)
        self._tallies = {name: Tally() for name in (INVOCATIONS, PER_INSTANCE, LATENCY, ERRORS, REFUSED)}
        self.invocations = {name: Series(INVOCATION_PERIOD_US) for name in self._tallies}
        self._queue = queue = self._make_queue(seed)
        calls: dict[str, Any] = {
            "joined": queue.join,
            "leaving": queue.leave,
            "settled": self._capacity_changed,
            "fulfilled": self._fulfilled,
        }
        self.units = None if config.platform == "sagemaker" else Units(config, seed, self._agenda, **calls)
        # Units have the same face, as far as what all platforms share goes.
        self.fleet = Fleet(config, seed, self._agenda, **calls) if self.units is None else cast("Fleet", self.units)
        refused = self.invocations[REFUSED] if config.scaling.min_instances == 0 else None
        self.scaler: Autoscaler | Hpa
        self.objects: KubeObjects | None = None
        if config.platform == "kubernetes":
            self.scaler = Hpa(config, seed, self._agenda, self.concurrency, self.fleet.change)
            self.objects = KubeObjects(config, seed, self._agenda)
        else:
            self.scaler = Autoscaler(config, seed, self._agenda, self.concurrency, self.fleet.change, refused=refused)
            self.scaler.schedule(start_us)
        if self.units is not None:
            self.units.watcher = self.objects
        self.enhanced = EnhancedMetrics(config, self._agenda, lambda: self.fleet) if config.enhanced_metrics else None
        self.messages = None if config.event_queue is None else MessageQueue(config, seed)
        self.fleet.announce()
        self._agenda.at(_next_multiple(created_us, period_us), Rank.EMISSION, self._close_period, period_us)
        minute_us = _next_multiple(created_us, INVOCATION_PERIOD_US)
        self._agenda.at(minute_us, Rank.EMISSION, self._close_invocations)
        self._agenda.advance(start_us)

    @property
    def now_us(self) -> int:
        """The instant up to which the model has been advanced."""
        return self._agenda.now_us

    def changed(self, after_us: int, until_us: int) -> bool:
        """Tell whether what the platform answers (but for metric data) changed in `(after, until]`."""
        return self._agenda.changed(after_us, until_us)

    @property
    def autoscaler(self) -> Autoscaler:
        """The scaler of AWS's platforms."""
        assert isinstance(self.scaler, Autoscaler), "a HorizontalPodAutoscaler has no alarms"
        return self.scaler

    def truth(self) -> list[TruthRow]:
        """Return what really happened so far, in order of time."""
        return sorted(self.fleet.truth, key=lambda row: row.at_us)

    def _make_queue(self, seed: int) -> Queue:
        raise NotImplementedError

    def _first_served(self, unit_id: str) -> None:
        self.fleet.first_served(unit_id)

    def _fulfilled(self, at_us: int, current: int) -> None:
        self.scaler.fulfilled(at_us, current)

    def _capacity_changed(self) -> None:
        if isinstance(self.scaler, Hpa):
            self.scaler.count(self.fleet.current)
        self._queue.dispatch()
        self._watch_concurrency()

    def _watch_concurrency(self) -> None:
        """The scaling metric is per instance, and a request that waits for a slot counts like one being served."""
        self._gauge.set(self.now_us, self._queue.outstanding / max(1, self.fleet.current))

    def _close_period(self, period_us: int) -> None:
        point = self._gauge.close(self.now_us, to_us(self.config.scaling.publish_lag_s))
        if self._traffic or self.config.scaling.emit_when_idle:
            self.concurrency.add(point)
        self._traffic = self._queue.outstanding > 0
        self._agenda.at(self.now_us + period_us, Rank.EMISSION, self._close_period, period_us)

    def _close_invocations(self) -> None:
        lag_us = to_us(self.config.scaling.publish_lag_s)
        for name, tally in self._tallies.items():
            point = tally.close(self.now_us - INVOCATION_PERIOD_US, self.now_us, lag_us)
            if point is not None:
                self.invocations[name].add(point)
        self._agenda.at(self.now_us + INVOCATION_PERIOD_US, Rank.EMISSION, self._close_invocations)


class Model(EndpointModel):
    """An endpoint whose requests come one by one, and whose tokens can be asked for while they come."""

    def __init__(self, config: EmulatorConfig, seed: int, start_us: int) -> None:
        self._effects: list[Effect] = []
        self._arrived_us: dict[str, int] = {}
        self._on_unit: dict[str, str] = {}
        super().__init__(config, seed, start_us)

    def advance(self, to_us: int) -> list[Effect]:
        """Let time pass up to `to_us`; return what happened to requests, in order."""
        self._agenda.advance(to_us)
        effects, self._effects = self._effects, []
        return effects

    def next_event_us(self) -> int | None:
        """Return when something will happen next if nothing arrives."""
        return self._agenda.next_us()

    def arrive(self, now_us: int, request_id: str, input_tokens: int, output_tokens: int) -> list[Effect]:
        """Take a request in at `now_us`; return what happened up to and including that."""
        self._agenda.advance(now_us)
        self._traffic = True
        if self.fleet.current == 0:
            # Nobody is there to take it: it fails at once, and counts as demand.
            self._tallies[REFUSED].add(1.0, self.now_us)
            self._effects.append(Refused(request_id=request_id, at_us=self.now_us))
            return self.advance(now_us)
        self._arrived_us[request_id] = self.now_us
        self._tallies[INVOCATIONS].add(1.0)
        self._tallies[PER_INSTANCE].add(1.0 / max(1, self.fleet.current))
        self.serving.arrive(request_id, input_tokens, output_tokens)
        return self.advance(now_us)

    def cancel(self, now_us: int, request_id: str) -> list[Effect]:
        """Take a request out whose client went away; return what happened up to and including that."""
        self._agenda.advance(now_us)
        self._arrived_us.pop(request_id, None)
        self._on_unit.pop(request_id, None)
        self.serving.cancel(request_id)
        return self.advance(now_us)

    def state(self) -> dict[str, Any]:
        """Return the present state, for a person to look at."""
        serving, scaler = self.serving, self.scaler
        return {
            "now_us": self.now_us,
            "instances": {i.unit_id: i.state for i in self.fleet.instances},
            "current": self.fleet.current,
            "desired": self.fleet.desired,
            "updating": self.fleet.updating,
            "queued": len(serving.queue),
            "in_service": {unit.unit_id: len(unit.jobs) for unit in serving.units},
            "scaler": scaler.states(),
            "activities": len(scaler.activities),
        }

    def _make_queue(self, seed: int) -> Queue:
        self.serving = ServingModel(
            self.config.serving,
            seed,
            self._agenda,
            emit=self._emit,
            changed=self._watch_concurrency,
            first_served=self._first_served,
        )
        return self.serving

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)
        if isinstance(effect, Admitted) and self.enhanced is not None:
            self._on_unit[effect.request_id] = effect.unit_id
            self.enhanced.count(effect.unit_id, ARRIVED, 1.0)
        if isinstance(effect, Finished | TimedOut):
            arrived_us = self._arrived_us.pop(effect.request_id)
            self._tallies[LATENCY].add(float(effect.at_us - arrived_us))
            unit_id = self._on_unit.pop(effect.request_id, None)
            if unit_id is not None and self.enhanced is not None:
                self.enhanced.count(unit_id, ANSWERED, float(effect.at_us - arrived_us))
            if isinstance(effect, TimedOut):
                self._tallies[ERRORS].add(1.0)


def _next_multiple(at_us: int, period_us: int) -> int:
    return at_us // period_us * period_us + period_us
