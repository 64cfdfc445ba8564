"""The endpoint's instances: launched and terminated together, in service together, and what they leave behind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import msgspec

from loadgen.emulator.agenda import Agenda, Rank
from loadgen.emulator.autoscaler import Activity
from loadgen.emulator.config import EmulatorConfig, Faults, to_us
from loadgen.emulator.container_log import LogEvent, container_log, created_us
from loadgen.emulator.placement import Placed, Placement
from loadgen.emulator.startup import Timeline, plan_start
from traces.clock import to_datetime


class VariantStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What DescribeEndpoint says while an update lasts."""

    message: str
    started_us: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the endpoint's state, as events tell it."""

    at_us: int
    status: str
    current: int
    desired: int
    variant_status: VariantStatus | None


class OperationSample(msgspec.Struct, frozen=True, kw_only=True):
    """One event-driven sample of the platform's operation metrics."""

    name: str
    value: float
    at_us: int
    visible_us: int
    labels: dict[str, str]


class TruthRow(msgspec.Struct, frozen=True, kw_only=True):
    """What really happened, and when."""

    scaling_id: str | None
    unit_id: str | None
    anchor: str
    at_us: int

    def as_row(self) -> dict[str, str | datetime | None]:
        """Return the row as `traces.schema.Truth` has it."""
        return {
            "scaling_id": self.scaling_id,
            "unit_id": self.unit_id,
            "anchor": self.anchor,
            "at": to_datetime(self.at_us),
        }


class Instance(msgspec.Struct, kw_only=True):
    """One instance, its start, its log and the scaling activity that asked for it (none for the first ones).

    It takes requests from `joined_us` to `left_us`.
    """

    timeline: Timeline
    log: list[LogEvent]
    scaling_id: str | None = None
    host_id: str = ""
    state: Literal["starting", "in_service", "terminated"] = "starting"
    joined_us: int | None = None
    left_us: int | None = None

    @property
    def unit_id(self) -> str:
        """The instance id."""
        return self.timeline.unit_id


class Fleet:
    """All instances ever.

    `joined` and `leaving` are called as units enter and leave service, `settled` when capacity has changed, `fulfilled`
    when the scaler notices it.
    """

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
        self.instances: list[Instance] = []
        self.operation_samples: list[OperationSample] = []
        self.truth: list[TruthRow] = []
        self.variant_status: VariantStatus | None = None
        self.created_us = self.modified_us = agenda.now_us
        self.current = self.desired = config.scaling.min_instances
        self.placement = None if config.component is None else Placement(config, seed)
        self.changes: list[Change] = []
        sound = msgspec.structs.replace(config, faults=Faults())
        for index in range(self.current):
            placed = self._place(sound, index, 0, from_pool=False)
            earlier = placed._replace(plan=placed.plan.shifted(agenda.now_us - placed.plan.ready_us))
            self._add(earlier, None).state = "in_service"

    @property
    def updating(self) -> bool:
        """Whether the endpoint's status is Updating."""
        return self.variant_status is not None

    def in_service(self) -> list[Instance]:
        """Return the instances in service, oldest first."""
        return [instance for instance in self.instances if instance.state == "in_service"]

    def announce(self) -> None:
        """Let the units that are in service from the start join."""
        for instance in self.in_service():
            instance.joined_us = self._agenda.now_us
            self._joined(instance.unit_id)
        self._settled()

    def change(self, activity: Activity, desired: int) -> None:
        """Begin to launch or terminate instances for a scaling activity that starts now."""
        now_us = self._agenda.now_us
        more = desired - self.current
        accepted_us = now_us + to_us(self._config.startup.accept_s)
        self._agenda.at(accepted_us, Rank.LIFE_CYCLE, self._accepted, desired)
        if more > 0:
            self._note_decision(activity)
            first = len(self.instances)
            warm = self._config.startup.warm_pool
            placed = [self._place(self._config, first + k, now_us, from_pool=k < warm) for k in range(more)]
            plans = [one.plan for one in placed]
            launched = [self._add(one, activity.activity_id) for one in placed]
            done_us = max(plan.ready_us for plan in plans)
            self._agenda.at(done_us, Rank.LIFE_CYCLE, self._scaled_out, activity, launched)
        else:
            done_us = accepted_us + to_us(self._config.scaling.scale_in_s)
            leaving = self.in_service()[more:]
            self._agenda.at(accepted_us, Rank.LIFE_CYCLE, self._drain, leaving)
            self._agenda.at(done_us, Rank.LIFE_CYCLE, self._scaled_in, activity, leaving)

    def first_served(self, unit_id: str) -> None:
        """Note when a unit gave its first token, unless it was there from the start (anchor `first_served`)."""
        instance = next(found for found in self.instances if found.unit_id == unit_id)
        if instance.scaling_id is not None:
            self._note(instance.scaling_id, unit_id, "first_served", self._agenda.now_us)

    def _accepted(self, desired: int) -> None:
        more = desired - self.current
        self._agenda.shows()
        self.desired = desired
        self.modified_us = self._agenda.now_us
        message = f"Launching {more} instance(s)." if more > 0 else f"Terminating {-more} instance(s)."
        self.variant_status = VariantStatus(message=message, started_us=self._agenda.now_us)
        self._note_change("UPDATING")

    def instance_counts(self) -> tuple[int, int]:
        """Return how many instances there are, and how many are wanted; the same as units without a component."""
        if self.placement is None:
            return self.current, self.desired
        return self.placement.counts(self._agenda.now_us)

    def _place(self, config: EmulatorConfig, index: int, now_us: int, *, from_pool: bool) -> Placed:
        if self.placement is not None:
            return self.placement.place(index, now_us, sound=config is not self._config)
        plan = plan_start(config, self._seed, index, now_us, from_pool=from_pool)
        return Placed(plan, plan.unit_id, launched=True)

    def _add(self, placed: Placed, scaling_id: str | None) -> Instance:
        plan = placed.plan
        log = container_log(plan, self._config)
        instance = Instance(timeline=plan, log=log, scaling_id=scaling_id, host_id=placed.host_id)
        self.instances.append(instance)
        for at_us in {created_us(self._config, instance.log), *(event.ingested_us for event in instance.log)}:
            self._agenda.shows(at_us)
        if scaling_id is not None:
            # What is planned is entered when it happens: a run that ends earlier knows nothing of it.
            # A copy on an instance that was there launches and pulls nothing.
            for anchor in _UNIT_ANCHORS if placed.launched else _UNIT_ANCHORS[3:]:
                at_us = getattr(plan, f"{anchor}_us")
                self._agenda.at(at_us, Rank.LIFE_CYCLE, self._note, scaling_id, plan.unit_id, anchor, at_us)
        for name, started_us, ended_us in _durations(plan):
            self._sample(name, (ended_us - started_us) / 1e6, ended_us, instance)
        for at_us in plan.capacity_errors_us:
            self._sample("ice_count", 1.0, at_us, None)
        return instance

    def _scaled_out(self, activity: Activity, launched: list[Instance]) -> None:
        for instance in launched:
            instance.state = "in_service"
            instance.joined_us = self._agenda.now_us
            self._note(activity.activity_id, instance.unit_id, "in_service", self._agenda.now_us)
            self._joined(instance.unit_id)
        self._finish(activity, "ScaleOut")

    def _drain(self, leaving: list[Instance]) -> None:
        for instance in leaving:
            instance.left_us = self._agenda.now_us
            self._leaving(instance.unit_id)
        self._settled()

    def _scaled_in(self, activity: Activity, leaving: list[Instance]) -> None:
        for instance in leaving:
            instance.state = "terminated"
            if self.placement is not None:
                self.placement.leave(instance.unit_id, self._agenda.now_us)
        self._finish(activity, "ScaleIn")

    def _finish(self, activity: Activity, direction: str) -> None:
        now_us = self._agenda.now_us
        self._agenda.shows()
        self.current = len(self.in_service())
        self.variant_status = None
        self.modified_us = now_us
        self._note_change("IN_SERVICE")
        seconds = (now_us - activity.started_us) / 1e6
        labels = {"aws.sagemaker.scaling.direction": direction, "aws.sagemaker.operation.type": "UpdateWCEndpoint"}
        self._sample("e2e_duration", seconds, now_us, None, labels)
        self._settled()
        notice_us = now_us + to_us(self._config.startup.notice_s)
        self._agenda.at(notice_us, Rank.LIFE_CYCLE, self._fulfilled, notice_us, self.current)

    def _note_change(self, status: str) -> None:
        current, desired = self.instance_counts()
        change = Change(
            at_us=self._agenda.now_us,
            status=status,
            current=current,
            desired=desired,
            variant_status=self.variant_status,
        )
        self.changes.append(change)

    def _note_decision(self, activity: Activity) -> None:
        if activity.breach_us is not None:
            self._note(activity.activity_id, None, "breach", activity.breach_us)
        if activity.alarm_us is not None:
            self._note(activity.activity_id, None, "alarm", activity.alarm_us)
        self._note(activity.activity_id, None, "decision", activity.started_us)

    def _note(self, scaling_id: str | None, unit_id: str | None, anchor: str, at_us: int) -> None:
        self.truth.append(TruthRow(scaling_id=scaling_id, unit_id=unit_id, anchor=anchor, at_us=at_us))

    def _sample(
        self, name: str, value: float, at_us: int, unit: Instance | None, more_labels: dict[str, str] | None = None
    ) -> None:
        labels: dict[str, Any] = {
            "aws.sagemaker.endpoint.name": self._config.endpoint_name,
            "aws.sagemaker.variant.name": self._config.variant,
        }
        if self._config.component is not None:
            labels["aws.sagemaker.inference_component.name"] = self._config.component.name
        if unit is not None and self._config.host_id_label:
            labels["@resource.host.id"] = unit.host_id
            if self._config.component is not None:
                labels["aws.sagemaker.container.id"] = unit.unit_id.removeprefix(f"{unit.host_id}-")
        visible_us = at_us + to_us(self._config.operation_metric_lag_s)
        self._agenda.shows(visible_us)
        self.operation_samples.append(
            OperationSample(
                name=name, value=value, at_us=at_us, visible_us=visible_us, labels={**labels, **(more_labels or {})}
            )
        )


_UNIT_ANCHORS = (
    "launched",
    "pull_started",
    "pull_finished",
    "download_started",
    "download_finished",
    "container_started",
    "load_started",
    "load_finished",
    "ready",
)


def _durations(plan: Timeline) -> list[tuple[str, int, int]]:
    """Return the operation metrics that a start makes: name, beginning, end."""
    return [
        ("model_download_time", plan.download_started_us, plan.download_finished_us),
        ("gpu_load_time", plan.load_started_us, plan.load_finished_us),
        ("container_start_time", plan.container_started_us, plan.ready_us),
    ]
