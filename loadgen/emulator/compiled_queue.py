"""The virtual queue compiled by numba, where that is installed: `pip install 'ramptrace[fast]'`.

It is `virtual_queue.BatchQueue` over arrays: the same decisions in the same order with the same arithmetic, so that
every instant is equal to the microsecond; a test holds the two together, and that one to the event-by-event model.
Why there are two: without a compiler the loop over arrays takes several times as long as the one over objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from loadgen.emulator.agenda import Agenda
from loadgen.emulator.compiled_loop import (
    ACTIVE,
    ARRIVED,
    ERRORS,
    FIRST_SERVED,
    LATENCIES,
    NEVER_US,
    NEXT,
    NOBODY,
    OUTSTANDING,
    State,
    dispatch,
    run,
)
from loadgen.emulator.config import Serving, to_us
from loadgen.emulator.metrics import Gauge, Tally
from loadgen.emulator.virtual_load import NEVER, Load, Served

_LOGGED: Final = 8_192
"""How many things the loop tells before it has to be called again."""


class CompiledQueue:
    """As `virtual_queue.BatchQueue`, for requests that go to the unit with the fewest."""

    def __init__(
        self,
        config: Serving,
        agenda: Agenda,
        load: Load,
        start_us: int,
        *,
        gauge: Gauge,
        latency: Tally,
        errors: Tally,
        first_served: Callable[[str], None],
    ) -> None:
        self._agenda, self._gauge, self._latency, self._errors = agenda, gauge, latency, errors
        self._first_served = first_served
        self.served = Served(len(load))
        self.unit_ids: list[str] = []
        self._s = _state_of(config, load, start_us, self.served)

    @property
    def outstanding(self) -> int:
        """How many requests are queued or being served."""
        return int(self._s.n[OUTSTANDING])

    @property
    def arrived(self) -> int:
        """How many have arrived."""
        return int(self._s.n[ARRIVED])

    @property
    def finished(self) -> bool:
        """Whether every request has come and gone."""
        s = self._s
        if s.n[OUTSTANDING] or s.n[NEXT] != len(s.tokens):
            return False
        return not s.before.size or not bool((s.due_us == NEVER).any())

    def join(self, unit_id: str) -> None:
        """Put a unit into service."""
        u = len(self.unit_ids)
        self.unit_ids.append(unit_id)
        if u == len(self._s.jobs):
            self._s = _with_more_units(self._s)
        s = self._s
        s.order[s.n[ACTIVE]] = u
        s.n[ACTIVE] += 1
        s.accepting[u], s.clock_us[u], s.token_us[u], s.next_us[u] = True, self._agenda.now_us, s.pace_us[0], NEVER_US

    def leave(self, unit_id: str) -> None:
        """Send a unit no more requests; those it has are finished."""
        s = self._s
        for u, name in enumerate(self.unit_ids):
            if name == unit_id:
                s.accepting[u] = False
        stay = [u for u in s.order[: s.n[ACTIVE]] if s.accepting[u] or s.jobs[u]]
        s.order[: len(stay)] = stay
        s.n[ACTIVE] = len(stay)

    def dispatch(self) -> None:
        """Give free slots to the queue, first come first served."""
        dispatch(self._s, self._agenda.now_us, NOBODY)

    def run(self, before_us: int, instances: int) -> None:
        """Do everything due before `before_us`, with so many instances in service."""
        s, gauge = self._s, self._gauge
        s.gauge[:], s.gauge_us[:] = gauge.held(NEVER)
        while run(s, before_us, instances):
            self._take_told()
        self._take_told()
        gauge.resume(s.gauge.tolist(), s.gauge_us.tolist(), NEVER)

    def _take_told(self) -> None:
        s = self._s
        self._latency.values += s.latency[: s.n[LATENCIES]].tolist()
        self._errors.values += [1.0] * int(s.n[ERRORS])
        for at_us, u in zip(s.served_us[: s.n[FIRST_SERVED]], s.served_unit, strict=False):
            self._agenda.now_us = int(at_us)
            self._first_served(self.unit_ids[u])
        s.n[LATENCIES] = s.n[ERRORS] = s.n[FIRST_SERVED] = 0


def _state_of(config: Serving, load: Load, start_us: int, served: Served) -> State:
    size, slots = len(load), config.slots_per_instance
    fullest = max(1, slots - 1)
    shares = [min(1.0, max(0, n - 1) / fullest) for n in range(slots + 1)]
    base_s = config.prefill_base_s + config.first_token_extra_s
    prefill_s = base_s + config.prefill_per_1000_tokens_s * np.array(load.input_tokens, dtype=np.int64) / 1000
    first_follower, next_follower = _followers(load)
    heap = size + 1 if not load.patience_us and not load.before else 3 * size + 1

    def blank(length: int, kind: type = np.int64) -> Any:
        return np.zeros(length, dtype=kind)

    def units(kind: type = np.int64) -> Any:
        return np.zeros(_FIRST_UNITS, dtype=kind)

    return State(
        n=blank(14),
        arrival_us=np.array([start_us + at for at in load.arrival_us] + [NEVER_US], dtype=np.int64),
        prefill_us=np.rint(prefill_s * 1e6).astype(np.int64),
        tokens=np.array(load.tokens, dtype=np.int64),
        leaves=np.array(load.leaves, dtype=np.bool_),
        patience_us=np.array([NEVER if p is None else p for p in load.patience_us], dtype=np.int64),
        before=np.array([NOBODY if b is None else b for b in load.before], dtype=np.int64),
        think_us=np.array(load.think_us, dtype=np.int64),
        first_follower=first_follower,
        next_follower=next_follower,
        due_us=np.frombuffer(served.due_us, dtype=np.int64),
        admitted_us=np.frombuffer(served.admitted_us, dtype=np.int64),
        first_us=np.frombuffer(served.first_us, dtype=np.int64),
        done_us=np.frombuffer(served.done_us, dtype=np.int64),
        unit=np.frombuffer(served.unit, dtype=np.dtype("l")),
        outcome=np.frombuffer(served.outcome, dtype=np.int8),
        on=np.full(size, NOBODY, dtype=np.int64),
        pace_us=np.array([(config.token_s + s * (config.token_full_batch_s - config.token_s)) * 1e6 for s in shares]),
        heap_us=blank(heap),
        heap_seq=blank(heap),
        heap_kind=blank(heap, np.int8),
        heap_k=blank(heap),
        queue=blank(size),
        queue_timeout_us=np.array([to_us(config.queue_timeout_s)], dtype=np.int64),
        give_us=blank(size),
        give_seq=blank(size),
        give_k=blank(size),
        order=units(),
        accepting=units(np.bool_),
        has_served=units(np.bool_),
        jobs=units(),
        clock=units(np.float64),
        clock_us=units(),
        token_us=units(np.float64),
        entered=units(),
        next_us=units(),
        next_seq=units(),
        decoding=units(),
        last_at=np.zeros((_FIRST_UNITS, slots)),
        last_seq=np.zeros((_FIRST_UNITS, slots), dtype=np.int64),
        last_k=np.zeros((_FIRST_UNITS, slots), dtype=np.int64),
        gauge=blank(5, np.float64),
        gauge_us=blank(2),
        latency=blank(_LOGGED + slots, np.float64),
        served_us=blank(_LOGGED),
        served_unit=blank(_LOGGED),
    )


_FIRST_UNITS: Final = 16
_OF_UNITS: Final = (
    "order", "accepting", "has_served", "jobs", "clock", "clock_us", "token_us", "entered", "next_us", "next_seq",
    "decoding", "last_at", "last_seq", "last_k",
)  # fmt: skip


def _with_more_units(s: State) -> State:
    """Return the state with room for twice as many units."""
    grown = {name: getattr(s, name) for name in _OF_UNITS}
    return s._replace(**{name: np.concatenate([held, np.zeros_like(held)]) for name, held in grown.items()})


def _followers(load: Load) -> tuple[Any, Any]:
    """Return each request's first follower, and the next one of the same request, in order."""
    if not load.before:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    first, following = np.full(len(load), NOBODY, dtype=np.int64), np.full(len(load), NOBODY, dtype=np.int64)
    for k in range(len(load) - 1, -1, -1):
        before = load.before[k]
        if before is not None:
            following[k], first[before] = first[before], k
    return first, following
