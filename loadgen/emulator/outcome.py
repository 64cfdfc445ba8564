"""What a simulation came to: time to capacity, damage to the objective, and cost, straight from the model. Pure.

Time to capacity runs from the onset of the load's largest burst until as many instances are in service as its rate
needs (`needed`, capped by the endpoint's maximum) and none of them leaves again before the burst is over. It is zero
where they were there already, and null where they never came.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import polars as pl

from loadgen.emulator.config import EmulatorConfig, Serving
from loadgen.emulator.fleet import Instance
from loadgen.emulator.virtual_load import CANCELLED, NEVER, TIMED_OUT, Load
from loadgen.emulator.virtual_model import VirtualModel, VirtualQueue
from traces.bursts import find_bursts
from traces.units import US_PER_S

_S_PER_H = 3600.0


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The burst that capacity is measured against: µs from the load's start, requests per second."""

    onset_us: int
    end_us: int
    rate_per_s: float


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """When a request counts as damage, and what an instance costs (unknown: no cost is stated)."""

    ttft_s: float = 2.0
    price_per_hour: float | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation's result. `excess_s` sums the waits for first tokens beyond the objective, over all requests."""

    seed: int
    time_to_capacity_s: float | None
    needed: int
    requests: int
    violations: int
    failed: int
    excess_s: float
    instance_hours: float
    cost: float | None


def demand_of(load: Load) -> Demand:
    """Return a load's largest burst; of a load without one, the whole."""
    frame = pl.LazyFrame({"row_id": load.row_id, "arrival_us": load.arrival_us})
    bursts = find_bursts(frame).bursts if len(load) > 1 else []
    if not bursts:
        span_us = max(load.last_us, US_PER_S)
        return Demand(onset_us=0, end_us=span_us, rate_per_s=len(load) / span_us * US_PER_S)
    largest = bursts[0]
    return Demand(onset_us=largest.start_us, end_us=largest.end_us, rate_per_s=largest.rate_per_s)


def unit_rate(serving: Serving, load: Load) -> float:
    """Return how many of the load's requests one saturated instance finishes per second (Little's law)."""
    mean_input = sum(load.input_tokens) / len(load)
    mean_tokens = sum(load.tokens) / len(load)
    prefill_s = (
        serving.prefill_base_s + serving.first_token_extra_s + serving.prefill_per_1000_tokens_s * mean_input / 1000
    )
    return serving.slots_per_instance / (prefill_s + (mean_tokens - 1) * serving.token_full_batch_s)


def evaluate(
    config: EmulatorConfig, load: Load, demand: Demand, objective: Objective, *, start_us: int, seed: int
) -> Outcome:
    """Simulate one endpoint under a load and return what it came to."""
    model = VirtualModel(config, seed, start_us, load)
    end_us = model.finish()
    needed = min(math.ceil(demand.rate_per_s / unit_rate(config.serving, load) - 1e-9), config.scaling.max_instances)
    violations, failed, excess_s = _damage(model.queue, objective.ttft_s)
    hours = _instance_hours(model.fleet.instances, start_us, end_us)
    hours += config.startup.warm_pool * (end_us - start_us) / US_PER_S / _S_PER_H
    reached_us = _reached(model.fleet.instances, needed, start_us + demand.onset_us, start_us + demand.end_us)
    return Outcome(
        seed=seed,
        time_to_capacity_s=None if reached_us is None else (reached_us - start_us - demand.onset_us) / US_PER_S,
        needed=needed,
        requests=len(load),
        violations=violations,
        failed=failed,
        excess_s=excess_s,
        instance_hours=hours,
        cost=None if objective.price_per_hour is None else hours * objective.price_per_hour,
    )


def _damage(queue: VirtualQueue, ttft_s: float) -> tuple[int, int, float]:
    """Return how many requests missed the objective or failed, how many failed, and the seconds beyond it."""
    limit_us = ttft_s * US_PER_S
    served = queue.served
    violations = failed = 0
    excess_us = 0.0
    for due, first, done, outcome in zip(served.due_us, served.first_us, served.done_us, served.outcome, strict=True):
        if due == NEVER:
            continue
        never_began = first == NEVER or (done != NEVER and first > done)
        waited_us = (done if never_began else first) - due
        if outcome == TIMED_OUT:
            failed += 1
        if waited_us > limit_us or (never_began and outcome != CANCELLED):
            violations += 1
            excess_us += max(0.0, waited_us - limit_us)
    return violations, failed, excess_us / US_PER_S


def _instance_hours(instances: Sequence[Instance], start_us: int, end_us: int) -> float:
    """Return the time for which instances were there, from their launch on, also while they start and drain."""
    total_us = 0
    for instance in instances:
        ended_us = end_us if instance.left_us is None else min(instance.left_us, end_us)
        total_us += max(0, ended_us - max(instance.timeline.launched_us, start_us))
    return total_us / US_PER_S / _S_PER_H


def _reached(instances: Sequence[Instance], needed: int, onset_us: int, end_us: int) -> int | None:
    """Return since when at least `needed` instances served until the burst's end (or later, if they came later)."""
    changes = [(i.joined_us, 1) for i in instances if i.joined_us is not None]
    changes += [(i.left_us, -1) for i in instances if i.left_us is not None]
    count, since_us = 0, None
    for at_us, change in sorted(changes, key=lambda c: (c[0], -c[1])):
        if since_us is not None and at_us > max(end_us, since_us):
            break
        count += change
        if count >= needed and since_us is None:
            since_us = at_us
        elif count < needed:
            since_us = None
    return None if since_us is None else max(since_us, onset_us)
