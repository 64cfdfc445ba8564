"""The emulated endpoint with its whole load known: the same control plane, over the virtual queue. Pure."""

from __future__ import annotations

import importlib.util
from typing import Any, Protocol

from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.model import ERRORS, INVOCATIONS, LATENCY, PER_INSTANCE, EndpointModel, Queue
from loadgen.emulator.virtual_load import Load, Served
from loadgen.emulator.virtual_queue import BatchQueue

_STEP_US = 60_000_000
WORTH_COMPILING = 200_000
"""From so many requests on the compiled loop is taken, where numba is installed: it takes half a second to load."""


class VirtualQueue(Queue, Protocol):
    """A queue whose whole load is known."""

    served: Served
    unit_ids: list[str]

    @property
    def arrived(self) -> int:
        """How many requests have arrived."""
        ...

    @property
    def finished(self) -> bool:
        """Whether every request has come and gone."""
        ...

    def run(self, before_us: int, instances: int) -> None:
        """Do everything due before `before_us`, with so many instances in service."""
        ...


def is_compiled(config: EmulatorConfig, load: Load) -> bool:
    """Tell whether the compiled loop serves a load: it is there, it knows the routing, and it is worth its start."""
    known = config.serving.routing == "LEAST_OUTSTANDING_REQUESTS"
    return known and len(load) >= WORTH_COMPILING and importlib.util.find_spec("numba") is not None


class VirtualModel(EndpointModel):
    """One endpoint and everything that will be asked of it, `load` being counted from `load_start_us`."""

    def __init__(
        self, config: EmulatorConfig, seed: int, load_start_us: int, load: Load, *, compiled: bool | None = None
    ) -> None:
        self._load, self._load_start_us = load, load_start_us
        self._compiled = is_compiled(config, load) if compiled is None else compiled
        super().__init__(config, seed, load_start_us)

    def advance(self, to_us: int) -> None:
        """Let time pass up to and including `to_us`."""
        agenda = self._agenda
        while (control_us := agenda.next_us()) is not None and control_us <= to_us:
            self._serve(control_us)
            agenda.advance(control_us)
        self._serve(to_us + 1)
        agenda.advance(to_us)

    def finish(self, tail_us: int = 0, drain_us: int | None = None) -> int:
        """Let time pass until every request has ended, but no longer than `drain_us` after the last arrival.

        Then the tail; returns the instant.
        """
        last_us = self._load_start_us + self._load.last_us
        self.advance(max(last_us, self.now_us))
        until_us = None if drain_us is None else last_us + drain_us
        while not self.queue.finished and (until_us is None or self.now_us < until_us):
            step_us = self.now_us + _STEP_US
            self.advance(step_us if until_us is None else min(step_us, until_us))
        self.advance(self.now_us + tail_us)
        return self.now_us

    def _make_queue(self, seed: int) -> Queue:
        given = (self._agenda, self._load, self._load_start_us)
        told: dict[str, Any] = {
            "gauge": self._gauge,
            "latency": self._tallies[LATENCY],
            "errors": self._tallies[ERRORS],
            "first_served": self._first_served,
        }
        self.queue: VirtualQueue
        if self._compiled:
            from loadgen.emulator.compiled_queue import CompiledQueue

            self.queue = CompiledQueue(self.config.serving, *given, **told)
        else:
            self.queue = BatchQueue(self.config.serving, seed, *given, **told)
        return self.queue

    def _serve(self, before_us: int) -> None:
        queue = self.queue
        arrived, instances = queue.arrived, max(1, self.fleet.current)
        queue.run(before_us, instances)
        new = queue.arrived - arrived
        if new:
            self._traffic = True
            self._tallies[INVOCATIONS].values += [1.0] * new
            self._tallies[PER_INSTANCE].values += [1.0 / instances] * new
