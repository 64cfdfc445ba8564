"""Where the copies of an inference component are placed: instances are launched beneath them, and released."""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from loadgen.emulator.config import EmulatorConfig, Faults
from loadgen.emulator.startup import Timeline, plan_start


class Host(msgspec.Struct, kw_only=True):
    """One instance beneath the copies."""

    host_id: str
    launched_us: int
    plan: Timeline
    copies: set[str] = msgspec.field(default_factory=set)
    released_us: int | None = None


class Placed(NamedTuple):
    """A copy's start, its instance, and whether that was launched for it (or for another copy of the same change)."""

    plan: Timeline
    host_id: str
    launched: bool


class Placement:
    """The instances beneath one component, each with room for `copies_per_instance` copies."""

    def __init__(self, config: EmulatorConfig, seed: int) -> None:
        self._config, self._seed = config, seed
        self.hosts: list[Host] = []

    def place(self, index: int, now_us: int, *, sound: bool = False) -> Placed:
        """Return where the `index`-th copy ever goes, and how it starts there; `sound` leaves out all faults."""
        assert self._config.component is not None
        room = self._config.component.copies_per_instance
        host = next((h for h in self.hosts if h.released_us is None and len(h.copies) < room), None)
        suffix = f"{random.Random(f'{self._seed}:copy:{index}').getrandbits(32):08x}"
        if host is None:
            config = replace(self._config, faults=Faults()) if sound else self._config
            plan = plan_start(config, self._seed, index, now_us)
            host = Host(host_id=plan.unit_id, launched_us=plan.launched_us, plan=plan)
            self.hosts.append(host)
            launched = True
        elif host.launched_us > now_us:
            plan, launched = host.plan, True
        else:
            plan, launched = plan_start(self._on_an_instance(), self._seed, index, now_us), False
        unit_id = f"{host.host_id}-{suffix}"
        host.copies.add(unit_id)
        return Placed(replace(plan, unit_id=unit_id, index=index), host.host_id, launched)

    def leave(self, unit_id: str, now_us: int) -> None:
        """Take a copy away; an instance without any is released."""
        for host in self.hosts:
            host.copies.discard(unit_id)
            if not host.copies and host.released_us is None:
                host.released_us = now_us

    def counts(self, now_us: int) -> tuple[int, int]:
        """Return how many instances there are, and how many are wanted."""
        wanted = [host for host in self.hosts if host.released_us is None]
        return sum(host.launched_us <= now_us for host in wanted), len(wanted)

    def _on_an_instance(self) -> EmulatorConfig:
        """The image is there already; the model is fetched again unless the component caches its data."""
        component = self._config.component
        assert component is not None
        startup = replace(
            self._config.startup,
            reuse_share=1.0,
            image_cache=True,
            image_cache_miss_share=0.0,
            data_cache=component.data_cache,
        )
        return replace(self._config, startup=startup, faults=Faults())
