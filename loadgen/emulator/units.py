"""The units of ECS, EC2 Auto Scaling and Kubernetes: each comes into service by itself, as its own start says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from loadgen.emulator.agenda import Agenda, Rank
from loadgen.emulator.autoscaler import Activity
from loadgen.emulator.config import EmulatorConfig, Faults, to_us
from loadgen.emulator.container_log import LogEvent, container_log
from loadgen.emulator.fleet import OperationSample, TruthRow, VariantStatus
from loadgen.emulator.unit_start import Start, moved, plan_unit


class Watcher(Protocol):
    """Told of each decision, and of each moment of each unit, as it happens."""

    def decided(self, activity: Activity, before: int, after: int, at_us: int) -> None:
        """Take note that the scaler set another count."""
        ...

    def happened(self, start: Start, moment: str, at_us: int) -> None:
        """Take note of one of a unit's `moments`, or of its `terminating` and being `terminated`."""
        ...


_ANCHORS = (
    "launched",
    "pull_started",
    "pull_finished",
    "download_started",
    "download_finished",
    "container_started",
    "load_started",
    "load_finished",
    "ready",
    "in_service",
)


class Unit(msgspec.Struct, kw_only=True):
    """One task, pod or instance, and the scaling activity that asked for it (none for the first ones)."""

    timeline: Start
    log: list[LogEvent]
    scaling_id: str | None = None
    activity: Activity | None = None
    state: Literal["starting", "in_service", "terminated"] = "starting"
    ended_us: int | None = None

    @property
    def unit_id(self) -> str:
        """The unit's name."""
        return self.timeline.unit_id


class Units:
    """All units ever, with the same face as a SageMaker endpoint's fleet."""

    def __init__(
        self,
        config: EmulatorConfig,
        seed: int,
        agenda: Agenda,
        *,
        joined: Callable[[str], None],
        leaving: Callable[[str], None],
        settled: Callable[[], None],
        fulfilled: Callable[[int, int], None],
    ) -> None:
        self._config, self._seed, self._agenda = config, seed, agenda
        self._joined, self._leaving, self._settled, self._fulfilled = joined, leaving, settled, fulfilled
        self.instances: list[Unit] = []
        self.operation_samples: list[OperationSample] = []
        self.truth: list[TruthRow] = []
        self.variant_status: VariantStatus | None = None
        self.watcher: Watcher | None = None
        self.created_us = self.modified_us = agenda.now_us
        self.current = self.desired = config.scaling.min_instances
        sound = msgspec.structs.replace(config, faults=Faults())
        for index in range(self.current):
            plan = plan_unit(sound, seed, index, 0, place=index)
            start = moved(plan, agenda.now_us - plan.settled_us)
            unit = Unit(timeline=start, log=container_log(start, config), state="in_service")
            self.instances.append(unit)

    @property
    def updating(self) -> bool:
        """Whether units are on their way."""
        return any(unit.state == "starting" for unit in self.instances)

    def in_service(self) -> list[Unit]:
        """Return the units in service, oldest first."""
        return [unit for unit in self.instances if unit.state == "in_service"]

    def living(self) -> list[Unit]:
        """Return the units in service or on their way, oldest first."""
        return [unit for unit in self.instances if unit.state != "terminated"]

    def announce(self) -> None:
        """Let the units that are in service from the start join."""
        for unit in self.in_service():
            for moment, at_us in moments(unit.timeline):
                self._tell(unit, moment, at_us)
            self._joined(unit.unit_id)
        self._settled()

    def change(self, activity: Activity, desired: int) -> None:
        """Begin to start or stop units for a decision that is made now."""
        now_us = self._agenda.now_us
        more = desired - self.desired
        if self.watcher is not None:
            self.watcher.decided(activity, self.desired, desired, now_us)
        self.desired = desired
        self.modified_us = now_us
        if more > 0:
            for anchor, at_us in (("breach", activity.breach_us), ("alarm", activity.alarm_us), ("decision", now_us)):
                if at_us is not None:
                    self._note(activity.activity_id, None, anchor, at_us)
            started = [self._start(activity, place) for place in range(more)]
            done_us = max(self._counts_from(unit.timeline) for unit in started)
        else:
            done_us = now_us + to_us(self._config.scaling.scale_in_s)
            for unit in self.living()[more:]:
                self._end(unit, done_us)
        noticed_us = done_us + to_us(self._config.startup.notice_s)
        self._agenda.at(noticed_us, Rank.LIFE_CYCLE, self._notice, noticed_us)

    def first_served(self, unit_id: str) -> None:
        """Note when a unit gave its first token, unless it was there from the start."""
        unit = next(found for found in self.instances if found.unit_id == unit_id)
        if unit.scaling_id is not None:
            self._note(unit.scaling_id, unit_id, "first_served", self._agenda.now_us)

    def _counts_from(self, start: Start) -> int:
        """The scaler of ECS counts a task once it runs, the others count what is in service."""
        return start.container_started_us if self._config.platform == "ecs" else start.in_service_us

    def _start(self, activity: Activity, place: int) -> Unit:
        start = plan_unit(self._config, self._seed, len(self.instances), self._agenda.now_us, place=place)
        unit = Unit(
            timeline=start,
            log=container_log(start, self._config),
            scaling_id=activity.activity_id,
            activity=activity,
        )
        self.instances.append(unit)
        for moment, at_us in moments(start):
            self._agenda.at(at_us, Rank.LIFE_CYCLE, self._happens, unit, moment, at_us)
        return unit

    def _happens(self, unit: Unit, moment: str, at_us: int) -> None:
        if unit.state == "terminated" or unit.ended_us is not None:
            return
        if moment in _ANCHORS:
            self._note(unit.scaling_id, unit.unit_id, moment, at_us)
        if moment == "in_service":
            unit.state = "in_service"
            self.current = len(self.in_service())
            self._joined(unit.unit_id)
            self._settled()
        self._tell(unit, moment, at_us)

    def _end(self, unit: Unit, at_us: int) -> None:
        if unit.state == "in_service":
            self._leaving(unit.unit_id)
        unit.ended_us = at_us
        self._tell(unit, "terminating", self._agenda.now_us)
        self._agenda.at(at_us, Rank.LIFE_CYCLE, self._ended, unit)

    def _ended(self, unit: Unit) -> None:
        unit.state = "terminated"
        self.current = len(self.in_service())
        self._tell(unit, "terminated", self._agenda.now_us)
        self._settled()

    def _tell(self, unit: Unit, moment: str, at_us: int) -> None:
        if self.watcher is not None:
            self.watcher.happened(unit.timeline, moment, at_us)

    def _notice(self, at_us: int) -> None:
        self._fulfilled(at_us, len(self.living()))

    def _note(self, scaling_id: str | None, unit_id: str | None, anchor: str, at_us: int) -> None:
        self.truth.append(TruthRow(scaling_id=scaling_id, unit_id=unit_id, anchor=anchor, at_us=at_us))


def moments(start: Start) -> list[tuple[str, int]]:
    """Return everything that happens to a unit, in order; a download of nothing does not."""
    machine = start.machine
    found = [("created", start.created_us)]
    found += [("refused", at_us) for at_us in start.capacity_errors_us]
    if machine is not None:
        found += [
            ("machine_asked", machine.requested_us),
            ("machine_running", machine.running_us),
            ("machine_joined", machine.joined_us),
            ("machine_usable", machine.usable_us),
        ]
    found.append(("pulling", start.pulling_us))
    found += [("pull_failed", end_us) for _, end_us in start.failed_pulls_us]
    begins = [*(begin_us for begin_us, _ in start.failed_pulls_us), start.last_pull_us]
    found += [("pull_retried", begin_us) for begin_us in begins[1:]]
    found += [(anchor, getattr(start, f"{anchor}_us")) for anchor in _ANCHORS if not anchor.startswith("download_")]
    if start.download_finished_us > start.download_started_us:
        found += [(anchor, getattr(start, f"{anchor}_us")) for anchor in _ANCHORS if anchor.startswith("download_")]
    found.append(("healthy", start.healthy_us))
    return sorted(found, key=lambda moment: moment[1])
