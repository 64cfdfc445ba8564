"""Continuous batching, seen from outside: slots per instance, one queue per endpoint, tokens at the batch's pace.

All requests that an instance decodes advance together, so one *token clock* per instance says where each of them is:
it runs at one token per `token time of the present batch`, and only the clock changes pace when the batch does.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable

import msgspec

from loadgen.emulator.agenda import Agenda, Rank
from loadgen.emulator.config import Serving, to_us

_EPSILON = 1e-6
"""Tokens. Far above the rounding of a token clock, far below what a microsecond can show."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Something a request's client can notice, at its exact instant."""

    request_id: str
    at_us: int


class Admitted(Effect, frozen=True, kw_only=True):
    """A request got a slot on an instance."""

    unit_id: str


class Finished(Effect, frozen=True, kw_only=True):
    """A request gave its last token."""


class TimedOut(Effect, frozen=True, kw_only=True):
    """A request waited too long for a slot."""


class Refused(Effect, frozen=True, kw_only=True):
    """A request came when nothing was in service."""


class Job(msgspec.Struct, kw_only=True, eq=False):
    """A request under way. `first_at` is its place on its instance's token clock at its first token."""

    request_id: str
    input_tokens: int
    output_tokens: int
    arrived_us: int
    unit: Unit | None = None
    first_us: int | None = None
    first_at: float | None = None
    gone: bool = False


class Unit:
    """One instance's slots and its token clock."""

    def __init__(self, unit_id: str, config: Serving, now_us: int) -> None:
        self.unit_id = unit_id
        self.accepting = True
        self.served = False
        self.jobs: set[Job] = set()
        self.version = 0
        self._config = config
        self._decoding: list[tuple[float, int, Job]] = []
        self._entered = itertools.count()
        self._clock = 0.0
        self._clock_us = now_us

    def __lt__(self, other: Unit) -> bool:
        return self.unit_id < other.unit_id

    @property
    def free(self) -> int:
        """How many more requests it takes now."""
        return self._config.slots_per_instance - len(self.jobs) if self.accepting else 0

    def token_us(self) -> float:
        """Return the time per token at the present batch, in microseconds."""
        config = self._config
        fullest = max(1, config.slots_per_instance - 1)
        share = min(1.0, max(0, len(self.jobs) - 1) / fullest)
        return (config.token_s + share * (config.token_full_batch_s - config.token_s)) * 1e6

    def clock(self, at_us: int) -> float:
        """Return the token clock at an instant that is not before the last change of batch."""
        return self._clock + (at_us - self._clock_us) / self.token_us()

    def instant(self, clock: float) -> int:
        """Return when the token clock gets to a place, if the batch stays as it is."""
        return self._clock_us + math.ceil((clock - self._clock) * self.token_us() - _EPSILON)

    def change(self, now_us: int, *, add: Job | None = None, remove: Job | None = None) -> None:
        """Change the batch; the token clock goes on from where it is, at the new pace."""
        self._clock = self.clock(now_us)
        self._clock_us = now_us
        self.version += 1
        if add is not None:
            self.jobs.add(add)
        if remove is not None:
            self.jobs.discard(remove)
            remove.gone = True

    def start_decoding(self, job: Job, now_us: int) -> None:
        """Give a job its first token."""
        job.first_at = self.clock(now_us)
        last_at = job.first_at + job.output_tokens - 1
        heapq.heappush(self._decoding, (last_at, next(self._entered), job))
        self.version += 1

    def next_last_token(self) -> tuple[float, Job] | None:
        """Return where on the token clock a job gives its last token next, and which."""
        while self._decoding and self._decoding[0][2].gone:
            heapq.heappop(self._decoding)
        return (self._decoding[0][0], self._decoding[0][2]) if self._decoding else None


class ServingModel:
    """The endpoint's queue and its units. Effects are handed to `emit`, a unit's first token to `first_served`."""

    def __init__(
        self,
        config: Serving,
        seed: int,
        agenda: Agenda,
        *,
        emit: Callable[[Effect], None],
        changed: Callable[[], None],
        first_served: Callable[[str], None],
    ) -> None:
        self._config, self._agenda = config, agenda
        self._emit, self._changed, self._first_served = emit, changed, first_served
        self._random = random.Random(f"{seed}:routing")
        self.units: list[Unit] = []
        self.queue: deque[Job] = deque()
        self.jobs: dict[str, Job] = {}

    @property
    def outstanding(self) -> int:
        """How many requests are queued or being served."""
        return len(self.jobs)

    def join(self, unit_id: str) -> None:
        """Put a unit into service."""
        self.units.append(Unit(unit_id, self._config, self._agenda.now_us))

    def leave(self, unit_id: str) -> None:
        """Send a unit no more requests; those it has are finished."""
        for unit in self.units:
            if unit.unit_id == unit_id:
                unit.accepting = False
        self.units = [unit for unit in self.units if unit.accepting or unit.jobs]

    def arrive(self, request_id: str, input_tokens: int, output_tokens: int) -> None:
        """Take a request in."""
        now_us = self._agenda.now_us
        job = Job(
            request_id=request_id,
            input_tokens=input_tokens,
            output_tokens=max(1, output_tokens),
            arrived_us=now_us,
        )
        self.jobs[request_id] = job
        self.queue.append(job)
        self.dispatch()
        if job.unit is None:
            self._agenda.at(now_us + to_us(self._config.queue_timeout_s), Rank.SERVING, self._give_up, job)
        self._changed()

    def cancel(self, request_id: str) -> None:
        """Forget a request whose client went away, wherever it is; unknown ones are fine."""
        job = self.jobs.pop(request_id, None)
        if job is None:
            return
        self._release(job)
        self._changed()

    def dispatch(self) -> None:
        """Give free slots to the queue, first come first served."""
        while self.queue:
            unit = self._route()
            if unit is None:
                return
            self._admit(self.queue.popleft(), unit)

    def tokens_by(self, request_id: str, at_us: int) -> int | None:
        """Return how many tokens a request has given by an instant (not before now); None when it is not under way."""
        job = self.jobs.get(request_id)
        if job is None:
            return None
        if job.unit is None or job.first_at is None:
            return 0
        return min(job.output_tokens, 1 + math.floor(job.unit.clock(at_us) - job.first_at + _EPSILON))

    def token_due_us(self, request_id: str, number: int) -> int | None:
        """Return when a request gives its `number`-th token (from 1) at the present pace; None when not admitted."""
        job = self.jobs.get(request_id)
        if job is None or job.unit is None or job.first_us is None:
            return None
        if job.first_at is None:
            return job.first_us
        return job.unit.instant(job.first_at + number - 1)

    def _route(self) -> Unit | None:
        free = [unit for unit in self.units if unit.free > 0]
        if not free:
            return None
        if self._config.routing == "RANDOM":
            return self._random.choice(free)
        return min(free, key=lambda unit: len(unit.jobs))

    def _admit(self, job: Job, unit: Unit) -> None:
        now_us = self._agenda.now_us
        config = self._config
        prefill_s = (
            config.prefill_base_s
            + config.first_token_extra_s
            + config.prefill_per_1000_tokens_s * job.input_tokens / 1000
        )
        job.unit = unit
        job.first_us = now_us + to_us(prefill_s)
        unit.change(now_us, add=job)
        self._agenda.at(job.first_us, Rank.SERVING, self._first_token, job)
        self._watch(unit)
        self._emit(Admitted(request_id=job.request_id, at_us=now_us, unit_id=unit.unit_id))

    def _first_token(self, job: Job) -> None:
        unit = job.unit
        if job.gone or unit is None:
            return
        unit.start_decoding(job, self._agenda.now_us)
        if not unit.served:
            unit.served = True
            self._first_served(unit.unit_id)
        self._watch(unit)

    def _watch(self, unit: Unit) -> None:
        """Enter the unit's next last token; entries that a later change made wrong are skipped by their version."""
        upcoming = unit.next_last_token()
        if upcoming is not None:
            self._agenda.at(unit.instant(upcoming[0]), Rank.SERVING, self._last_token, unit, unit.version)

    def _last_token(self, unit: Unit, version: int) -> None:
        if unit.version != version:
            return
        now_us = self._agenda.now_us
        reached = unit.clock(now_us) + _EPSILON
        done = []
        while (upcoming := unit.next_last_token()) is not None and upcoming[0] <= reached:
            done.append(upcoming[1])
            unit.change(now_us, remove=upcoming[1])
        for job in done:
            del self.jobs[job.request_id]
            self._emit(Finished(request_id=job.request_id, at_us=now_us))
        self._vacated(unit)
        self._changed()

    def _give_up(self, job: Job) -> None:
        if job.unit is not None or job.gone:
            return
        del self.jobs[job.request_id]
        self._release(job)
        self._emit(TimedOut(request_id=job.request_id, at_us=self._agenda.now_us))
        self._changed()

    def _release(self, job: Job) -> None:
        job.gone = True
        if job.unit is None:
            self.queue.remove(job)
        else:
            job.unit.change(self._agenda.now_us, remove=job)
            self._vacated(job.unit)

    def _vacated(self, unit: Unit) -> None:
        if not unit.accepting and not unit.jobs:
            self.units.remove(unit)
        self.dispatch()
        self._watch(unit)
