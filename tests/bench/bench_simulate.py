"""Virtual time: a day of a million requests on one core, and the same queue written for simpy, per request."""

from __future__ import annotations

import heapq
import importlib.util
import math
import random
import time
from collections import deque

import simpy

from loadgen.emulator.config import EmulatorConfig, Serving
from loadgen.emulator.profiles import profile, with_settings
from loadgen.emulator.virtual_load import Load
from loadgen.emulator.virtual_model import VirtualModel

DAY_S = 86_400
REQUESTS = 1_000_000
START_US = 1_767_225_660_000_000
SERVING = {"slots_per_instance": 8, "queue_timeout_s": 1e9}
COMPARED = 20_000
UNITS = 13
LOOPS = {"interpreted": False} | ({"compiled": True} if importlib.util.find_spec("numba") else {})


def day(requests: int, seed: int = 1) -> Load:
    """Return a day with a daily rhythm: arrivals rise and fall by 80 %."""
    chance = random.Random(seed)
    arrivals: list[int] = []
    while len(arrivals) < requests:
        at_s = chance.random() * DAY_S
        if chance.random() * 1.8 < 1 + 0.8 * math.sin(2 * math.pi * (at_s / DAY_S - 0.25)):
            arrivals.append(round(at_s * 1e6))
    output = [max(1, round(chance.lognormvariate(4.3, 0.5))) for _ in arrivals]
    return Load(
        row_id=range(requests),
        arrival_us=sorted(arrivals),
        input_tokens=[chance.randint(1, 2000) for _ in arrivals],
        output_tokens=output,
        tokens=output,
    )


def in_simpy(load: Load, serving: Serving, units: int) -> list[int]:
    """Return when each request ends: a process per request and per unit, whose one timeout is for its next last token.

    It keeps a token clock per unit too; a process per token or an interrupt per change of batch would cost far more.
    """
    env = simpy.Environment()
    ends = [0] * len(load)
    waiting: deque[tuple[int, simpy.Event]] = deque()
    pools = [_SimpyUnit(env, serving, ends) for _ in range(units)]

    def dispatch() -> None:
        while waiting:
            free = [unit for unit in pools if unit.jobs < serving.slots_per_instance]
            if not free:
                return
            _, admitted = waiting.popleft()
            unit = min(free, key=lambda u: u.jobs)
            unit.change(+1)
            admitted.succeed(unit)

    def request(k: int):
        admitted = env.event()
        waiting.append((k, admitted))
        dispatch()
        unit = yield admitted
        yield env.timeout(
            round((serving.prefill_base_s + serving.prefill_per_1000_tokens_s * load.input_tokens[k] / 1000) * 1e6)
        )
        finished = env.event()
        unit.decode(k, load.tokens[k], finished)
        yield finished
        dispatch()

    def source():
        for k, at_us in enumerate(load.arrival_us):
            yield env.timeout(at_us - env.now)
            env.process(request(k))

    env.process(source())
    env.run()
    return ends


class _SimpyUnit:
    def __init__(self, env: simpy.Environment, serving: Serving, ends: list[int]) -> None:
        self.env, self.ends = env, ends
        fullest = max(1, serving.slots_per_instance - 1)
        shares = [min(1.0, max(0, n - 1) / fullest) for n in range(serving.slots_per_instance + 1)]
        self.pace = [(serving.token_s + s * (serving.token_full_batch_s - serving.token_s)) * 1e6 for s in shares]
        self.jobs, self.clock, self.clock_us = 0, 0.0, 0
        self.decoding: list[tuple[float, int, simpy.Event]] = []
        self.version = 0

    def change(self, by: int) -> None:
        self.clock += (self.env.now - self.clock_us) / self.pace[self.jobs]
        self.clock_us = self.env.now
        self.jobs += by
        self.watch()

    def decode(self, k: int, tokens: int, finished: simpy.Event) -> None:
        now = self.clock + (self.env.now - self.clock_us) / self.pace[self.jobs]
        heapq.heappush(self.decoding, (now + tokens - 1, k, finished))
        self.watch()

    def watch(self) -> None:
        self.version += 1
        if self.decoding:
            ahead = self.clock_us + math.ceil((self.decoding[0][0] - self.clock) * self.pace[self.jobs] - 1e-6)
            self.env.process(self.wait(ahead - self.env.now, self.version))

    def wait(self, length_us: int, version: int):
        yield self.env.timeout(max(0, length_us))
        if version != self.version:
            return
        reached = self.clock + (self.env.now - self.clock_us) / self.pace[self.jobs] + 1e-6
        while self.decoding and self.decoding[0][0] <= reached:
            _, k, finished = heapq.heappop(self.decoding)
            self.ends[k] = self.env.now
            finished.succeed()
            self.change(-1)


def ours(load: Load, endpoint: EmulatorConfig, *, compiled: bool) -> tuple[VirtualModel, float]:
    began = time.process_time()
    model = VirtualModel(endpoint, 0, START_US, load, compiled=compiled)
    model.finish()
    return model, time.process_time() - began


def queue_alone(load: Load, endpoint: EmulatorConfig, *, compiled: bool) -> tuple[list[int], float]:
    """Return when each request ends with a fixed number of units, and the CPU seconds of the queue's loop alone."""
    model = VirtualModel(endpoint, 0, START_US, load, compiled=compiled)
    began = time.process_time()
    model.queue.run(2**61, 1)
    return [at - START_US for at in model.queue.served.done_us], time.process_time() - began


def main() -> None:
    endpoint = with_settings(profile("sagemaker-qwen3-8b"), {"serving": SERVING})
    scaled = with_settings(endpoint, {"scaling": {"target": 6.0, "max_instances": 30}})
    for compiled in LOOPS.values():
        ours(day(100), scaled, compiled=compiled)  # what is compiled once does not count
    whole_day = day(REQUESTS)
    for name, compiled in LOOPS.items():
        model, cpu_s = ours(whole_day, scaled, compiled=compiled)
        grown = sum(a.desired is not None and a.desired > a.capacity for a in model.autoscaler.activities)
        print(f"a day of {REQUESTS:,} requests, {grown} scale-outs, {name}: {cpu_s:.1f} s CPU (to be under 60)")
    fixed = with_settings(endpoint, {"scaling": {"min_instances": UNITS, "max_instances": UNITS}})
    # The day's rate, so that the queue is as full, over a part of it.
    load = day(COMPARED)
    squeezed = Load(
        row_id=load.row_id,
        arrival_us=[at * COMPARED // REQUESTS for at in load.arrival_us],
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        tokens=load.tokens,
    )
    began = time.process_time()
    theirs = in_simpy(squeezed, fixed.serving, UNITS)
    simpy_s = time.process_time() - began
    print(f"{COMPARED:,} requests, {UNITS} instances: simpy {simpy_s / COMPARED * 1e6:.1f} µs per request")
    for name, compiled in LOOPS.items():
        found = [queue_alone(squeezed, fixed, compiled=compiled) for _ in range(4)]
        ends, queue_s = min(found, key=lambda one: one[1])
        furthest = max(abs(a - b) for a, b in zip(ends, theirs, strict=True))
        print(
            f"{name}: {queue_s / COMPARED * 1e6:.2f} µs, {simpy_s / queue_s:.1f} times as fast as simpy (to be 15); "
            f"the same ends to within {furthest} µs"
        )


if __name__ == "__main__":
    main()
