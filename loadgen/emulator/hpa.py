"""A HorizontalPodAutoscaler: each sync period it wants `ceil(load / target)` pods; a fall has to last."""

from __future__ import annotations

import math
import random
import uuid
from typing import Any

from loadgen.emulator.agenda import Agenda, Rank
from loadgen.emulator.autoscaler import Activity, ChangeCapacity
from loadgen.emulator.config import EmulatorConfig, to_us
from loadgen.emulator.metrics import Series

_STABILISATION_S = 300
_MOST_ADDED = 4


class Hpa:
    """One autoscaler and its decisions (oldest first), each an activity of its own."""

    def __init__(
        self, config: EmulatorConfig, seed: int, agenda: Agenda, series: Series, change_capacity: ChangeCapacity
    ) -> None:
        self.name = config.endpoint_name
        self._config, self._agenda, self._series = config, agenda, series
        self._change_capacity = change_capacity
        self._random = random.Random(f"{seed}:autoscaler")
        self.created_us = agenda.now_us
        self.activities: list[Activity] = []
        self.desired = config.scaling.min_instances
        self._in_service = self.desired
        self._wanted: list[tuple[int, int]] = []
        first_us = agenda.now_us + self._random.randrange(to_us(config.cluster.hpa_sync_s))
        agenda.at(first_us, Rank.EVALUATION, self._sync, first_us)

    def count(self, in_service: int) -> None:
        """Take note of how many pods serve: the metric is theirs."""
        self._in_service = in_service

    def fulfilled(self, now_us: int, current: int) -> None:  # noqa: ARG002 - the face of every scaler
        """Take note that the pods of the last decision are there; a HorizontalPodAutoscaler does not wait for them."""
        for activity in self.activities:
            activity.ended_us = activity.ended_us or now_us
            activity.status = "Successful"

    def states(self) -> dict[str, Any]:
        """Return the present state, for a person to look at."""
        return {"desired": self.desired}

    def _sync(self, due_us: int) -> None:
        period_us = to_us(self._config.cluster.hpa_sync_s)
        self._agenda.at(due_us + period_us, Rank.EVALUATION, self._sync, due_us + period_us)
        scaling, now_us = self._config.scaling, self._agenda.now_us
        if scaling.policy == "none":
            return
        newest_us = now_us // self._series.period_us * self._series.period_us
        points = [
            self._series.over(newest_us - k * self._series.period_us, self._series.period_us, now_us)
            for k in range(1, 4)
        ]
        point = next((p for p in points if p is not None), None)
        if point is None:
            return
        load = point.statistic(scaling.statistic) * max(1, self._in_service)
        wanted = self.desired
        if abs(load / (self.desired * scaling.target) - 1) > self._config.cluster.hpa_tolerance:
            wanted = math.ceil(load / scaling.target - 1e-9)
        wanted = min(max(wanted, scaling.min_instances), scaling.max_instances)
        self._wanted = [w for w in self._wanted if w[0] > now_us - to_us(_STABILISATION_S)] + [(now_us, wanted)]
        if wanted > self.desired:
            self._decide(min(wanted, max(2 * self.desired, self.desired + _MOST_ADDED)))
        elif (lasting := max(w for _, w in self._wanted)) < self.desired:
            self._decide(lasting)

    def _decide(self, wanted: int) -> None:
        now_us = self._agenda.now_us
        above = wanted > self.desired
        activity = Activity(
            activity_id=str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
            description=f"New size: {wanted}",
            cause=f"pods metric concurrent_requests {'above' if above else 'below'} target",
            started_us=now_us,
            capacity=self.desired,
            desired=wanted,
            status="InProgress",
        )
        self.activities.append(activity)
        self.desired = wanted
        self._change_capacity(activity, wanted)
