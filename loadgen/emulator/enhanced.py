"""Enhanced metrics: what each unit does, by its own dimensions, as often as the configuration publishes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from loadgen.emulator.agenda import Agenda, Rank
from loadgen.emulator.config import EmulatorConfig, to_us
from loadgen.emulator.fleet import Fleet, Instance
from loadgen.emulator.metrics import Datapoint, Series, Tally

if TYPE_CHECKING:
    from loadgen.emulator.model import EndpointModel

ARRIVED, ANSWERED, ALIVE = "Invocations", "ModelLatency", "CPUUtilization"
_NAMESPACES = {ARRIVED: "AWS/SageMaker", ANSWERED: "AWS/SageMaker", ALIVE: "/aws/sagemaker/Endpoints"}
_BUSY, _IDLE = 40.0, 5.0


class EnhancedMetrics:
    """The series of every unit, by (unit, metric)."""

    def __init__(self, config: EmulatorConfig, agenda: Agenda, fleet: Callable[[], Fleet]) -> None:
        self._config, self._agenda, self._fleet = config, agenda, fleet
        self._period_us = to_us(config.metric_publish_s)
        self._tallies: dict[tuple[str, str], Tally] = {}
        self.series: dict[tuple[str, str], Series] = {}
        next_us = agenda.now_us // self._period_us * self._period_us + self._period_us
        agenda.at(next_us, Rank.EMISSION, self._close)

    def count(self, unit_id: str, metric: str, value: float) -> None:
        """Count one occurrence on a unit."""
        self._tallies.setdefault((unit_id, metric), Tally()).add(value)

    def _close(self) -> None:
        now_us, lag_us = self._agenda.now_us, to_us(self._config.scaling.publish_lag_s)
        start_us = now_us - self._period_us
        for key, tally in self._tallies.items():
            point = tally.close(start_us, now_us, lag_us)
            if point is not None:
                self._add(key, point)
        for instance in self._fleet().instances:
            # The agent on an instance publishes for the periods that it was up for as a whole.
            if instance.state != "terminated" and instance.timeline.launched_us <= start_us:
                load = _BUSY if instance.state == "in_service" else _IDLE
                point = Datapoint(
                    start_us=start_us,
                    period_us=self._period_us,
                    minimum=load,
                    maximum=load,
                    total=load,
                    samples=1.0,
                    visible_us=now_us + lag_us,
                )
                self._add((instance.unit_id, ALIVE), point)
        self._agenda.at(now_us + self._period_us, Rank.EMISSION, self._close)

    def _add(self, key: tuple[str, str], point: Datapoint) -> None:
        self.series.setdefault(key, Series(self._period_us)).add(point)


def by_unit(model: EndpointModel, namespace: str, metric: str, named: Collection[tuple[str, str]]) -> Series | None:
    """Return the series that dimensions of a single unit name, or `None`."""
    enhanced = model.enhanced
    if enhanced is None or _NAMESPACES.get(metric) != namespace:
        return None
    for instance in model.fleet.instances:
        if set(named) == _dimensions(model.config, instance):
            return enhanced.series.get((instance.unit_id, metric))
    return None


def _dimensions(config: EmulatorConfig, instance: Instance) -> set[tuple[str, str]]:
    if config.component is None:
        unit = {("EndpointName", config.endpoint_name), ("VariantName", config.variant)}
        return {*unit, ("InstanceId", instance.unit_id)}
    container = instance.unit_id.removeprefix(f"{instance.host_id}-")
    unit = {("InferenceComponentName", config.component.name), ("InstanceId", instance.host_id)}
    return {*unit, ("ContainerId", container)}
