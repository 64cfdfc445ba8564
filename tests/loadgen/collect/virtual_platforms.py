"""An emulated platform in virtual time, read by the collector's own sources through transports without a network.

A call is sent at the client's present, sees the model some milliseconds later and is received some later still. A watch
tells what happened up to now and is then closed by the server, as every watch is after a while.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from loadgen.collect.aws import Api
from loadgen.collect.base import Answer, Reading, Row, SourceError, SourceUnreachableError
from loadgen.collect.ec2 import Ec2
from loadgen.collect.ecs import Ecs
from loadgen.collect.kube_client import refused
from loadgen.collect.kubernetes import Kubernetes
from loadgen.collect.platform import Context
from loadgen.emulator.config import EmulatorConfig, to_us
from loadgen.emulator.kube_api import selected
from loadgen.emulator.model import Model
from loadgen.emulator.platform import operations
from loadgen.scenario import CollectSection
from traces.clock import EndpointClock

EPOCH_US = 1_800_000_000_123_456
US = 1_000_000


class World:
    """A model and its client's clock."""

    def __init__(self, config: EmulatorConfig, seed: int) -> None:
        self.config = config
        self.random = random.Random(f"{seed}:world")
        self.model = Model(config, seed, EPOCH_US)
        self.present_us = EPOCH_US
        self.calls = 0

    def now_us(self) -> int:
        return self.present_us

    def pass_time(self) -> None:
        self.present_us += self.random.randrange(2_000, 40_000)
        self.model.advance(max(self.present_us, self.model.now_us))
        self.present_us = max(self.present_us, self.model.now_us)


class VirtualApi(Api):
    """One AWS service."""

    def __init__(self, world: World, service: str) -> None:
        self.service = service
        self._world = world

    async def call(self, operation: str, **parameters: Any) -> Answer:
        sent_us = self._world.present_us
        self._world.calls += 1
        self._world.pass_time()
        camel = "".join(word.capitalize() for word in operation.split("_"))
        data = operations(self._world.config.platform)[self.service][camel](self._world.model, parameters)
        self._world.pass_time()
        return Answer({k: v for k, v in data.items() if v is not None}, sent_us, self._world.present_us)


class VirtualAws:
    """The session, as platforms use it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.offsets = None

    def api(self, service: str) -> VirtualApi:
        return VirtualApi(self._world, service)


class VirtualCluster:
    """A Kubernetes API server, with its watches' faults."""

    def __init__(self, world: World) -> None:
        self._world = world
        assert world.model.objects is not None
        self._store = world.model.objects.store
        self._kinds = {"pods": "pods", "nodes": "nodes", "events": "events", "deployments": "deployments"}
        self._kinds |= {"horizontalpodautoscalers": "hpa", "endpointslices": "endpointslices"}
        self._kinds |= {"nodeclaims": "nodeclaims", "configmaps": "configmaps"}

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        sent_us = self._world.present_us
        self._world.pass_time()
        *_, before, last = path.split("/")
        if before == "deployments":
            data: dict[str, Any] = self._store.get("deployments", last)
        elif last in self._kinds:
            wanted = selected(query or {})
            items = [item for item in self._store.items(self._kinds[last]) if wanted(item)]
            data = {"metadata": {"resourceVersion": str(self._store.version)}, "items": items}
        else:
            raise refused(404, "the server could not find the requested resource", path)
        self._world.pass_time()
        return Answer(data, sent_us, self._world.present_us)

    async def text(self, path: str, query: Mapping[str, str]) -> tuple[str, int, int]:
        raise refused(404, "not found", path)

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Answer]:
        world, faults, chance = self._world, self._world.config.faults, self._world.random
        sent_us = world.present_us
        world.pass_time()
        kind = self._kinds.get(path.rpartition("/")[2])
        if kind is None:
            raise refused(404, "the server could not find the requested resource", path)
        if chance.random() < faults.gone_share:
            raise refused(410, "too old resource version", path)
        wanted = selected(query)
        horizon_us = world.model.now_us - round(chance.random() * faults.late_s * US)
        for change in list(self._store.since(self._store.position_after(int(query["resourceVersion"])))):
            if change.at_us > horizon_us:
                break
            if change.kind == kind and wanted(change.object):
                for _ in range(2 if chance.random() < faults.duplicate_share else 1):
                    yield Answer({"type": change.change, "object": change.object}, sent_us, world.present_us)
                if faults.watch_lasts_s and chance.random() < 0.02:
                    raise SourceUnreachableError("the watch was cut off")
        bookmark = {"metadata": {"resourceVersion": query["resourceVersion"]}}
        yield Answer({"type": "BOOKMARK", "object": bookmark}, sent_us, world.present_us)


class Collected:
    """What a collection in virtual time saw: the newest row by (source, native id), and how often it failed."""

    def __init__(self, world: World, section: CollectSection, period_us: int) -> None:
        self.world = world
        self.rows: dict[tuple[str, str], Row] = {}
        self.snapshots: dict[str, Any] = {}
        self.failures: list[SourceError] = []
        context = Context(
            section=section,
            clock=world,  # type: ignore[arg-type]
            endpoint_clock=EndpointClock(),
            aws=VirtualAws(world),  # type: ignore[arg-type]
            since_us=EPOCH_US - 300 * US,
            until_us=None,
            before={},
            say=lambda _line: None,
        )
        if world.config.platform == "kubernetes":
            self.platform: Any = Kubernetes(context, VirtualCluster(world))
        else:
            self.platform = {"ecs": Ecs, "ec2": Ec2}[world.config.platform](context)
        self._period_us = period_us

    async def run(self, until: Any, most_us: int) -> None:
        """Poll all sources, each at its own pace, until `until(model)` held for a while, or `most_us` passed."""
        await self.platform.open(None)
        sources = self.platform.sources()
        due = {k: self.world.present_us + self.world.random.randrange(self._period_us) for k in range(len(sources))}
        end_us = None
        while True:
            k = min(due, key=lambda k: due[k])
            self.world.present_us = max(self.world.present_us, due[k])
            if self.world.present_us > EPOCH_US + most_us or (end_us is not None and self.world.present_us > end_us):
                return
            await self._read(sources[k])
            due[k] += round(sources[k].period_us * self.world.random.uniform(0.9, 1.1))
            if end_us is None and until(self.world.model):
                end_us = self.world.present_us + 4 * self._period_us + 30 * US

    async def _read(self, source: Any) -> None:
        try:
            if hasattr(source, "poll"):
                self._take(await source.poll(self.world.present_us))
            else:
                await source.follow(self._take)
        except SourceError as error:
            self.failures.append(error)

    def _take(self, reading: Reading) -> None:
        for row in reading.observations:
            self.rows[row["source"], row["native_id"]] = {"platform": self.platform.name, **row}
        self.snapshots |= reading.snapshots
        self.failures += reading.failures


def drawn(platform: str, seed: int) -> tuple[EmulatorConfig, CollectSection, int]:
    """Return a scenario of a platform, drawn from a seed: how units come up, what goes wrong, how often it is read."""
    chance = random.Random(f"{platform}:{seed}")
    balanced = chance.random() < 0.7
    cluster = {
        "launch_type": chance.choice(["EC2", "FARGATE"]),
        "spare_machines": chance.choice([0, 0, 1, 2]),
        "schedule_s": chance.uniform(0.1, 5.0),
        "accelerator_s": chance.uniform(0.0, 30.0),
        "pull_queue_s": chance.choice([0.0, 0.0, 12.5]),
        "download": chance.choice(["container", "init-container", "image"]),
        "health_interval_s": chance.uniform(0.0, 15.0),
        "register_s": chance.uniform(0.0, 6.0),
        "instance_warmup_s": chance.choice([0.0, 40.0]),
        "load_balancer": balanced,
    }
    startup = {
        "provisioning_s": chance.uniform(5.0, 90.0),
        "image_gb": chance.uniform(0.2, 4.0),
        "model_gb": chance.choice([0.0, chance.uniform(1.0, 5.0)]),
        "process_start_s": chance.uniform(1.0, 10.0),
        "weights_s": chance.uniform(0.5, 20.0),
        "image_cache": chance.random() < 0.3,
        "warm_pool": chance.choice([0, 0, 1]),
        "warm_pool_start_s": chance.uniform(2.0, 25.0),
    }
    faults = {
        "failed_pulls": chance.choice([0, 0, 0, 1, 2]),
        "capacity_errors": chance.choice([0, 0, 0, 1]),
        "capacity_retry_s": 20.0,
        "pull_retry_s": 10.0,
        "gone_share": chance.choice([0.0, 0.1]),
        "duplicate_share": chance.choice([0.0, 0.3]),
        "late_s": chance.choice([0.0, 4.0]),
        "watch_lasts_s": chance.choice([0.0, 60.0]),
    }
    document = {
        "platform": platform,
        "history_s": 60.0,
        "scaling": {"min_instances": chance.choice([1, 2]), "max_instances": chance.choice([3, 4])},
        "cluster": cluster,
        "startup": startup,
        "faults": faults,
    }
    poll_s = chance.choice([4.0, 8.0, 15.0])
    cluster |= {
        "node_scaler": chance.choice(["karpenter", "cluster-autoscaler"]),
        "autoscaler_status": chance.choice(["yaml", "text"]),
    }
    watched = {
        "ecs": {"ecs": {"cluster": "demo", "service": "demo"}},
        "ec2": {"ec2": {"group": "demo"}},
        "kubernetes": {"kubernetes": {"deployment": "demo", "service": "demo" if balanced else None}},
    }
    section = msgspec.convert({"poll": f"{poll_s:g}s", **watched[platform]}, CollectSection)
    return msgspec.convert(document, EmulatorConfig), section, to_us(poll_s)


def collect(platform: str, seed: int) -> Collected:
    """Return what the collector saw of a scale-out that a burst caused."""
    config, section, poll_us = drawn(platform, seed)
    world = World(config, seed)
    found = Collected(world, section, poll_us)
    world.model.advance(EPOCH_US + 5 * US)
    world.present_us = world.model.now_us
    for k in range(16):
        world.model.arrive(world.model.now_us, f"r{k}", 100, 100_000)

    def served(model: Model) -> bool:
        return model.fleet.desired > config.scaling.min_instances and not model.fleet.updating

    asyncio.run(found.run(served, 900 * US))
    return found
