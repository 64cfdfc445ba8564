"""How one instance comes up: every instant of its start, planned at once from the configuration and the seed."""

from __future__ import annotations

import math
import random

import msgspec

from loadgen.emulator.config import EmulatorConfig, to_us
from loadgen.emulator.network import Flow, completion_times

_TRANSFER = "transfer"


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The instants of one instance's start (endpoint µs). Weights load and warm-up lie between start and ready."""

    unit_id: str
    index: int
    requested_us: int
    capacity_errors_us: tuple[int, ...]
    launched_us: int
    pull_started_us: int
    pull_finished_us: int
    download_started_us: int
    download_finished_us: int
    container_started_us: int
    load_started_us: int
    load_finished_us: int
    ready_us: int
    image_cached: bool

    def shifted(self, by_us: int) -> Timeline:
        """Return the same start, earlier or later."""
        moved = {
            name: getattr(self, name) + by_us
            for name in self.__struct_fields__
            if name.endswith("_us") and name != "capacity_errors_us"
        }
        errors = tuple(at + by_us for at in self.capacity_errors_us)
        return msgspec.structs.replace(self, capacity_errors_us=errors, **moved)


def plan_start(
    config: EmulatorConfig, seed: int, index: int, requested_us: int, *, from_pool: bool = False
) -> Timeline:
    """Return the start of the `index`-th instance ever, of a machine that is new or out of the warm pool.

    Chance depends on the seed and the index alone, so that two runs which differ in one setting share all else.
    """
    chance = random.Random(f"{seed}:instance:{index}")
    unit_id = f"i-{chance.getrandbits(68):017x}"
    startup, faults = config.startup, config.faults
    jitter_s = chance.uniform(-startup.provisioning_jitter_s, startup.provisioning_jitter_s)
    cached = startup.image_cache and chance.random() >= startup.image_cache_miss_share
    reused = chance.random() < startup.reuse_share
    rate_mb_per_s = startup.transfer_mb_per_s * math.exp(chance.gauss(0.0, startup.transfer_spread))
    kept = reused and startup.data_cache
    cached = cached or kept
    errors = 0 if reused or from_pool else faults.capacity_errors
    errors_us = tuple(requested_us + to_us(k * faults.capacity_retry_s) for k in range(1, errors + 1))
    granted_us = errors_us[-1] if errors_us else requested_us
    provisioning_s = 0.0 if reused else startup.warm_pool_start_s if from_pool else startup.provisioning_s + jitter_s
    launched_us = granted_us + to_us(max(0.0, provisioning_s))
    fetched = (0.0, 0.0) if kept else _transfers(config, rate_mb_per_s, cached=cached)
    pull_us, download_us = (launched_us + to_us(at) for at in fetched)
    started_us = max(pull_us, download_us)
    cold_us = 0 if cached else to_us(startup.cold_page_cache_s)
    load_us = started_us + to_us(startup.process_start_s) + cold_us
    loaded_us = load_us + to_us(startup.load_s)
    return Timeline(
        unit_id=unit_id,
        index=index,
        requested_us=requested_us,
        capacity_errors_us=errors_us,
        launched_us=launched_us,
        pull_started_us=launched_us,
        pull_finished_us=pull_us,
        download_started_us=launched_us,
        download_finished_us=download_us,
        container_started_us=started_us,
        load_started_us=load_us,
        load_finished_us=loaded_us,
        ready_us=loaded_us + to_us(startup.warm_up_s),
        image_cached=cached,
    )


def _transfers(config: EmulatorConfig, rate_mb_per_s: float, *, cached: bool) -> tuple[float, float]:
    """Return when pull and model download end, in seconds after the launch."""
    startup = config.startup
    download = Flow(
        size=startup.model_gb * 1000, work={_TRANSFER: 1.0}, weight=startup.download_share if not cached else 1.0
    )
    pulls = [] if cached else _pulls(config)
    ends = completion_times([download, *pulls], {_TRANSFER: rate_mb_per_s})
    return (ends[-1] if pulls else 0.0), ends[0]


def pull_attempts(config: EmulatorConfig) -> list[tuple[float, float]]:
    """Return the attempts at a pull that has the machine for itself: begin and end in seconds, the last succeeds."""
    # The attempts name each other by their place after a first flow, the download: here there is none.
    flows = [Flow(size=0.0, work={}), *_pulls(config)]
    ends = completion_times(flows, {_TRANSFER: config.startup.transfer_mb_per_s})[1:]
    begins = [0.0, *(end + config.faults.pull_retry_s for end in ends[:-1])]
    return list(zip(begins, ends, strict=True))


def _pulls(config: EmulatorConfig) -> list[Flow]:
    """Return the attempts at a pull, in megabytes: those that fail part-way, each followed by a pause, and the last."""
    startup, faults = config.startup, config.faults
    work = startup.pull_work_per_byte
    # The share speaks of the resource; a flow's weight speaks of its bytes, each of which costs `work`.
    weight = (1 - startup.download_share) / work
    whole = startup.image_gb * 1000
    attempts = []
    for attempt in range(faults.failed_pulls + 1):
        last = attempt == faults.failed_pulls
        attempts.append(
            Flow(
                size=whole if last else whole * faults.failed_pull_at_share,
                work={_TRANSFER: work},
                weight=weight,
                start_s=faults.pull_retry_s if attempt else 0.0,
                after=attempt or None,
            )
        )
    return attempts
