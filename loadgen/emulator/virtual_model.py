"""The emulated endpoint with its whole load known: the same control plane, over the virtual queue. Pure."""

from __future__ import annotations

from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.model import ERRORS, INVOCATIONS, LATENCY, PER_INSTANCE, EndpointModel, Queue
from loadgen.emulator.virtual_load import Load
from loadgen.emulator.virtual_queue import BatchQueue

_STEP_US = 60_000_000


class VirtualModel(EndpointModel):
    """One endpoint and everything that will be asked of it, `load` being counted from `load_start_us`."""

    def __init__(self, config: EmulatorConfig, seed: int, load_start_us: int, load: Load) -> None:
        self._load, self._load_start_us = load, load_start_us
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
        self.queue = BatchQueue(
            self.config.serving,
            seed,
            self._agenda,
            self._load,
            self._load_start_us,
            gauge=self._gauge,
            latency=self._tallies[LATENCY],
            errors=self._tallies[ERRORS],
            first_served=self._first_served,
        )
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
