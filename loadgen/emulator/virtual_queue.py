"""The serving model of `serving.py` over a whole load at once: one loop over columns instead of objects and callbacks.

It takes the same decisions in the same order with the same arithmetic, so that every instant is equal to the
microsecond; a test holds the two together. Events lie in one heap; a unit's next last token is entered anew whenever
its batch changes, and an entry with an old version is skipped.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable

from loadgen.emulator.agenda import Agenda
from loadgen.emulator.config import Serving, to_us
from loadgen.emulator.metrics import Gauge, Tally
from loadgen.emulator.virtual_load import CANCELLED, NEVER, OK, TIMED_OUT, WAITING, Load, Served

_EPSILON = 1e-6
_NEVER_US = 2**62
_FIRST, _GIVE_UP, _LEAVE, _ARRIVE = range(4)


class _Unit:
    __slots__ = (
        "accepting",
        "clock",
        "clock_us",
        "decoding",
        "entered",
        "jobs",
        "number",
        "served",
        "token_us",
        "unit_id",
        "version",
    )

    def __init__(self, number: int, unit_id: str, now_us: int, token_us: float) -> None:
        self.number, self.unit_id = number, unit_id
        self.accepting, self.served = True, False
        self.jobs = self.version = self.entered = 0
        self.clock, self.clock_us, self.token_us = 0.0, now_us, token_us
        self.decoding: list[tuple[float, int, int]] = []


class BatchQueue:
    """The endpoint's queue and its units. `gauge` and the tallies are kept as the event-by-event model keeps them."""

    def __init__(
        self,
        config: Serving,
        seed: int,
        agenda: Agenda,
        load: Load,
        start_us: int,
        *,
        gauge: Gauge,
        latency: Tally,
        errors: Tally,
        first_served: Callable[[str], None],
    ) -> None:
        self._config, self._agenda, self._load = config, agenda, load
        self._gauge, self._latency, self._errors, self._first_served = gauge, latency, errors, first_served
        self._random = random.Random(f"{seed}:routing")
        self._spread = config.routing == "RANDOM"
        fullest = max(1, config.slots_per_instance - 1)
        shares = [min(1.0, max(0, n - 1) / fullest) for n in range(config.slots_per_instance + 1)]
        self._pace_us = [(config.token_s + s * (config.token_full_batch_s - config.token_s)) * 1e6 for s in shares]
        self._patience_us = to_us(config.queue_timeout_s)
        self._arrival_us = [start_us + at for at in load.arrival_us]
        self._arrival_us.append(_NEVER_US)
        self._next = 0
        self._heap: list[tuple[int, int, int, int, _Unit | None]] = []
        self._entered = 0
        self._waiting: deque[int] = deque()
        self._followers = _followers(load)
        self._on: dict[int, _Unit] = {}
        self._numbers = 0
        self.units: list[_Unit] = []
        self.outstanding = 0
        self.arrived = 0
        self.served = Served(len(load))
        self.unit_ids: list[str] = []

    @property
    def finished(self) -> bool:
        """Whether every request has come and gone."""
        return self.outstanding == 0 and self._next == len(self._load) and not self._pending_turns()

    def join(self, unit_id: str) -> None:
        """Put a unit into service."""
        self.units.append(_Unit(self._numbers, unit_id, self._agenda.now_us, self._pace_us[0]))
        self._numbers += 1
        self.unit_ids.append(unit_id)

    def leave(self, unit_id: str) -> None:
        """Send a unit no more requests; those it has are finished."""
        for unit in self.units:
            if unit.unit_id == unit_id:
                unit.accepting = False
        self.units = [unit for unit in self.units if unit.accepting or unit.jobs]

    def dispatch(self) -> None:
        """Give free slots to the queue, first come first served."""
        now_us = self._agenda.now_us
        while self._waiting:
            unit = self._route()
            if unit is None:
                return
            self._admit(self._waiting.popleft(), unit, now_us)

    def run(self, before_us: int, instances: int) -> None:
        """Do everything due before `before_us`, with so many instances in service."""
        heap, arrivals, gauge = self._heap, self._arrival_us, self._gauge
        followers = self._followers
        while True:
            arrival_us = arrivals[self._next]
            if heap and heap[0][0] <= arrival_us:
                if heap[0][0] >= before_us:
                    return
                now_us, _, kind, k, unit = heapq.heappop(heap)
                if unit is not None:
                    if unit.version != k:
                        continue
                    self._last_tokens(unit, now_us)
                elif kind == _FIRST:
                    self._first_token(k, now_us)
                    continue
                elif kind == _ARRIVE:
                    self._arrive(k, now_us)
                elif not self._remove(k, now_us, kind):
                    continue
            elif arrival_us >= before_us:
                return
            else:
                k, now_us = self._next, arrival_us
                self._next = k + 1
                if followers and self._load.before[k] is not None and not self._may_start(k, now_us):
                    continue
                self._arrive(k, now_us)
            gauge.set(now_us, self.outstanding / instances)

    def _arrive(self, k: int, now_us: int) -> None:
        self.served.due_us[k] = now_us
        self.outstanding += 1
        self.arrived += 1
        unit = None if self._waiting else self._route()
        if unit is None:
            self._waiting.append(k)
            self._enter(now_us + self._patience_us, _GIVE_UP, k)
        else:
            self._admit(k, unit, now_us)
        if self._load.patience_us and (patience_us := self._load.patience_us[k]) is not None:
            self._enter(now_us + patience_us, _LEAVE, k)

    def _route(self) -> _Unit | None:
        slots = self._config.slots_per_instance
        if self._spread:
            free = [unit for unit in self.units if unit.accepting and unit.jobs < slots]
            return self._random.choice(free) if free else None
        found, least = None, slots
        for unit in self.units:
            if unit.jobs < least and unit.accepting:
                found, least = unit, unit.jobs
        return found

    def _admit(self, k: int, unit: _Unit, now_us: int) -> None:
        config, served = self._config, self.served
        prefill_s = (
            config.prefill_base_s
            + config.first_token_extra_s
            + config.prefill_per_1000_tokens_s * self._load.input_tokens[k] / 1000
        )
        first_us = now_us + to_us(prefill_s)
        served.admitted_us[k], served.first_us[k], served.unit[k] = now_us, first_us, unit.number
        self._on[k] = unit
        self._change(unit, now_us, +1)
        self._enter(first_us, _FIRST, k)
        self._watch(unit)

    def _change(self, unit: _Unit, now_us: int, by: int) -> None:
        """Change the batch; the token clock goes on from where it is, at the new pace."""
        unit.clock += (now_us - unit.clock_us) / unit.token_us
        unit.clock_us = now_us
        unit.jobs += by
        unit.token_us = self._pace_us[unit.jobs]
        unit.version += 1

    def _first_token(self, k: int, now_us: int) -> None:
        unit = self._on.get(k)
        if unit is None:
            return
        first_at = unit.clock + (now_us - unit.clock_us) / unit.token_us
        heapq.heappush(unit.decoding, (first_at + self._load.tokens[k] - 1, unit.entered, k))
        unit.entered += 1
        unit.version += 1
        if not unit.served:
            unit.served = True
            self._agenda.now_us = now_us
            self._first_served(unit.unit_id)
        self._watch(unit)

    def _watch(self, unit: _Unit) -> None:
        """Enter the unit's next last token."""
        decoding, on = unit.decoding, self._on
        while decoding and decoding[0][2] not in on:
            heapq.heappop(decoding)
        if decoding:
            ahead = math.ceil((decoding[0][0] - unit.clock) * unit.token_us - _EPSILON)
            heapq.heappush(self._heap, (unit.clock_us + ahead, self._entered, -1, unit.version, unit))
            self._entered += 1

    def _last_tokens(self, unit: _Unit, now_us: int) -> None:
        reached = unit.clock + (now_us - unit.clock_us) / unit.token_us + _EPSILON
        decoding, on = unit.decoding, self._on
        done = []
        while decoding:
            last_at, _, k = decoding[0]
            if k not in on:
                heapq.heappop(decoding)
            elif last_at > reached:
                break
            else:
                heapq.heappop(decoding)
                del on[k]
                self._change(unit, now_us, -1)
                done.append(k)
        leaves = self._load.leaves
        for k in done:
            self._end(k, now_us, CANCELLED if leaves and leaves[k] else OK)
        self._vacated(unit, now_us)

    def _remove(self, k: int, now_us: int, kind: int) -> bool:
        """Take a request out that waited too long or whose client went away; tell whether it was still there."""
        if self.served.outcome[k] != WAITING:
            return False
        if kind == _GIVE_UP and k in self._on:
            return False
        unit = self._on.pop(k, None)
        if unit is None:
            self._waiting.remove(k)
        else:
            self._change(unit, now_us, -1)
            self._vacated(unit, now_us)
        self._end(k, now_us, TIMED_OUT if kind == _GIVE_UP else CANCELLED)
        return True

    def _end(self, k: int, now_us: int, outcome: int) -> None:
        served = self.served
        served.done_us[k], served.outcome[k] = now_us, outcome
        self.outstanding -= 1
        if outcome != CANCELLED:
            self._latency.values.append(float(now_us - served.due_us[k]))
            if outcome == TIMED_OUT:
                self._errors.values.append(1.0)
        for follower in self._followers.get(k, ()):
            if follower < self._next:
                due_us = max(self._arrival_us[follower], now_us + self._load.think_us[follower])
                self._enter(due_us, _ARRIVE, follower)

    def _vacated(self, unit: _Unit, now_us: int) -> None:
        if not unit.accepting and not unit.jobs:
            self.units.remove(unit)
        version = unit.version
        while self._waiting:
            free = self._route()
            if free is None:
                break
            self._admit(self._waiting.popleft(), free, now_us)
        if unit.version == version:
            self._watch(unit)

    def _may_start(self, k: int, now_us: int) -> bool:
        """Tell whether a turn may go now; one that may not is entered for later, or by the end of the one before."""
        before = self._load.before[k]
        ended_us = NEVER if before is None else self.served.done_us[before]
        if ended_us == NEVER:
            return False
        due_us = ended_us + self._load.think_us[k]
        if due_us > now_us:
            self._enter(due_us, _ARRIVE, k)
            return False
        return True

    def _pending_turns(self) -> bool:
        return bool(self._followers) and NEVER in self.served.due_us

    def _enter(self, at_us: int, kind: int, k: int) -> None:
        heapq.heappush(self._heap, (at_us, self._entered, kind, k, None))
        self._entered += 1


def _followers(load: Load) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for k, before in enumerate(load.before):
        if before is not None:
            found.setdefault(before, []).append(k)
    return found
