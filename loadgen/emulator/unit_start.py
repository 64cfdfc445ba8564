"""How one task, pod or instance of a group comes up on ECS, Kubernetes and EC2 Auto Scaling: every instant, planned.

Unlike on SageMaker the image is pulled alone, and the model comes after it, inside the container, or before it, by an
init container. Units come into service one by one.
"""

from __future__ import annotations

import random

import msgspec

from loadgen.emulator.config import EmulatorConfig, to_us
from loadgen.emulator.startup import Timeline, pull_attempts


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that a unit waited for: asked for, running, joined its cluster, and able to give accelerators."""

    machine_id: str
    requested_us: int
    running_us: int
    joined_us: int
    usable_us: int
    from_warm_pool: bool = False


class Start(Timeline, frozen=True, kw_only=True):
    """A unit's start. `launched_us` is when it had its place; `machine` is `None` where one with room was there.

    `ready_us` is when the engine answers, `healthy_us` when the platform's health check noticed, `in_service_us` when
    traffic is sent. `failed_pulls_us` are the attempts that failed, each (begin, end) µs.
    """

    created_us: int
    machine: Machine | None
    pulling_us: int
    failed_pulls_us: tuple[tuple[int, int], ...]
    last_pull_us: int
    healthy_us: int
    in_service_us: int
    settled_us: int


def plan_unit(config: EmulatorConfig, seed: int, index: int, requested_us: int, *, place: int) -> Start:
    """Return the start of the `index`-th unit ever, the `place`-th (from 0) of those asked for at `requested_us`.

    Chance depends on the seed and the index alone.
    """
    chance = random.Random(f"{seed}:unit:{index}")
    cluster, startup = config.cluster, config.startup
    created_us = requested_us + to_us(cluster.schedule_s * chance.uniform(0.5, 1.5))
    errors_us, machine = _machine(config, chance, created_us, place)
    placed_us = created_us if machine is None else machine.usable_us
    launched_us = placed_us + to_us(cluster.place_s * chance.uniform(0.5, 1.5))
    begin_us = launched_us + to_us(cluster.sandbox_s)
    if machine is not None and config.platform != "kubernetes":
        # On EC2 the machine itself is the unit; on ECS a task has its place once its machine has joined.
        launched_us = machine.running_us if config.platform == "ec2" else machine.joined_us
    cached = startup.image_cache and chance.random() >= startup.image_cache_miss_share
    model_us = to_us(startup.model_gb * 1000 / startup.transfer_mb_per_s)
    fetched_us = begin_us
    if cluster.download == "init-container":
        fetched_us = begin_us + model_us
    pulling_us = fetched_us + to_us(0.2)
    attempts = [] if cached else pull_attempts(config)
    waited_us = pulling_us if cached else pulling_us + to_us(cluster.pull_queue_s * place)
    spans = [(waited_us + to_us(begin), waited_us + to_us(end)) for begin, end in attempts]
    pulled_us = spans[-1][1] if spans else waited_us
    started_us = pulled_us + to_us(cluster.create_s * chance.uniform(0.7, 1.3))
    cold_us = 0 if cached else to_us(startup.cold_page_cache_s)
    load_us = started_us + to_us(startup.process_start_s) + cold_us
    download = (begin_us, fetched_us)
    if cluster.download == "container":
        download = (load_us, load_us + model_us)
        load_us += model_us
    loaded_us = load_us + to_us(startup.load_s)
    ready_us = loaded_us + to_us(startup.warm_up_s)
    healthy_us = ready_us + to_us(cluster.health_interval_s * chance.random())
    register_s = cluster.register_s if cluster.load_balancer else 0.0
    serving_us = healthy_us + to_us(register_s * chance.uniform(0.5, 1.5))
    return Start(
        unit_id=_unit_id(config, chance, machine),
        index=index,
        requested_us=requested_us,
        capacity_errors_us=errors_us,
        created_us=created_us,
        machine=machine,
        launched_us=launched_us,
        pulling_us=pulling_us,
        pull_started_us=spans[0][0] if spans else waited_us,
        pull_finished_us=pulled_us,
        failed_pulls_us=tuple(spans[:-1]),
        last_pull_us=spans[-1][0] if spans else waited_us,
        download_started_us=download[0],
        download_finished_us=download[1],
        container_started_us=started_us,
        load_started_us=load_us,
        load_finished_us=loaded_us,
        ready_us=ready_us,
        healthy_us=healthy_us,
        in_service_us=serving_us,
        settled_us=serving_us + to_us(cluster.instance_warmup_s),
        image_cached=cached,
    )


def moved(start: Start, by_us: int) -> Start:
    """Return the same start, earlier or later."""
    machine = start.machine
    if machine is not None:
        stamps = ("requested_us", "running_us", "joined_us", "usable_us")
        machine = msgspec.structs.replace(machine, **{name: getattr(machine, name) + by_us for name in stamps})
    failed = tuple((begin + by_us, end + by_us) for begin, end in start.failed_pulls_us)
    lists = {"capacity_errors_us", "failed_pulls_us"}
    stamps_of_unit = [name for name in start.__struct_fields__ if name.endswith("_us") and name not in lists]
    shifted = {name: getattr(start, name) + by_us for name in stamps_of_unit}
    return msgspec.structs.replace(start, machine=machine, failed_pulls_us=failed, **shifted)


def _machine(
    config: EmulatorConfig, chance: random.Random, created_us: int, place: int
) -> tuple[tuple[int, ...], Machine | None]:
    """Return the capacity errors and the machine of a unit; none where a machine with room is there already."""
    cluster, startup, faults = config.cluster, config.startup, config.faults
    machine_id = f"i-{chance.getrandbits(68):017x}"
    jitter_s = chance.uniform(-startup.provisioning_jitter_s, startup.provisioning_jitter_s)
    lag_s = chance.uniform(0.5, 1.5) * cluster.ask_s
    if place < cluster.spare_machines and config.platform != "ec2":
        return (), None
    if config.platform == "ecs" and cluster.launch_type == "FARGATE":
        joined_us = created_us + to_us(max(1.0, startup.provisioning_s + jitter_s))
        return (), Machine(
            machine_id=machine_id,
            requested_us=created_us,
            running_us=joined_us,
            joined_us=joined_us,
            usable_us=joined_us,
        )
    warm = config.platform == "ec2" and place < startup.warm_pool
    errors = 0 if warm else faults.capacity_errors
    errors_us = tuple(created_us + to_us(k * faults.capacity_retry_s) for k in range(1, errors + 1))
    requested_us = (errors_us[-1] if errors_us else created_us) + to_us(lag_s)
    whole_s = max(0.1, startup.warm_pool_start_s) if warm else max(1.0, startup.provisioning_s + jitter_s)
    joined_us = requested_us + to_us(whole_s)
    return errors_us, Machine(
        machine_id=machine_id,
        requested_us=requested_us,
        running_us=requested_us + to_us(whole_s * 0.3),
        joined_us=joined_us,
        usable_us=joined_us + to_us(cluster.accelerator_s if config.platform == "kubernetes" else 0.0),
        from_warm_pool=warm,
    )


def _unit_id(config: EmulatorConfig, chance: random.Random, machine: Machine | None) -> str:
    """Return a name as the platform makes them: a task id, a pod's name, or the instance's own id."""
    if config.platform == "ec2" and machine is not None:
        return machine.machine_id
    if config.platform == "kubernetes":
        letters = "bcdfghjklmnpqrstvwxz2456789"
        return f"{config.endpoint_name}-7c9d8f6b5-{''.join(chance.choice(letters) for _ in range(5))}"
    return f"{chance.getrandbits(128):032x}"
