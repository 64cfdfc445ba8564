"""A policy as Application Auto Scaling runs it: alarms call it, it sets a desired count; scheduled actions set a floor.

Target tracking wants `ceil(current x metric / target)`, a step policy adds by how far the metric lies beyond the
target; both are kept within the limits. While the endpoint is updating nothing is changed. After a change a cooldown
holds, in which only a larger count than the last one asked for is acted on.
"""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable
from typing import Literal

import msgspec

from loadgen.emulator.agenda import Agenda, Rank
from loadgen.emulator.alarms import Alarm, AlarmRule
from loadgen.emulator.config import EmulatorConfig, to_us
from loadgen.emulator.metrics import Series
from loadgen.emulator.words import words_of

ACCOUNT = "123456789012"
LOW_PERIOD_US = 60_000_000

ChangeCapacity = Callable[["Activity", int], None]
"""Ask the endpoint for a desired count, on behalf of an activity."""


class Activity(msgspec.Struct, kw_only=True):
    """A scaling activity; `capacity` is the count before it, `not_scaled` why nothing was changed."""

    activity_id: str
    description: str
    cause: str
    started_us: int
    capacity: int
    desired: int | None = None
    ended_us: int | None = None
    status: Literal["Pending", "InProgress", "Successful", "Failed"] = "Pending"
    message: str | None = None
    not_scaled: str | None = None
    alarm_us: int | None = None
    breach_us: int | None = None


class Autoscaler:
    """The two alarms of one target-tracking policy, its decisions and its activities (oldest first)."""

    def __init__(
        self,
        config: EmulatorConfig,
        seed: int,
        agenda: Agenda,
        series: Series,
        change_capacity: ChangeCapacity,
        *,
        refused: Series | None = None,
    ) -> None:
        self.words = words_of(config)
        self.resource_id = self.words.resource_id
        self.policy_name = f"{config.endpoint_name}-concurrent-requests"
        self.zero_policy_name = f"{config.endpoint_name}-from-zero"
        self._config = config.scaling
        self._agenda = agenda
        self._series = series
        self._change_capacity = change_capacity
        self._random = random.Random(f"{seed}:autoscaler")
        self._accept_us = to_us(config.startup.accept_s)
        self.created_us = agenda.now_us
        region = config.region
        self.policy_arn = (
            f"arn:aws:autoscaling:{region}:{ACCOUNT}:scalingPolicy:{self._uuid()}:resource/{self.words.namespace}/"
            f"{self.resource_id}:policyName/{self.policy_name}"
        )
        self.high = Alarm(self._rule(region, above=True), agenda.now_us)
        self.low = Alarm(self._rule(region, above=False), agenda.now_us)
        self.activities: list[Activity] = []
        self.desired = self.current = config.scaling.min_instances
        self.min_instances = config.scaling.min_instances
        self._running: Activity | None = None
        self._cooldown_until_us = agenda.now_us
        self._start_ticks(self.high, to_us(config.scaling.evaluation_interval_s))
        self._start_ticks(self.low, LOW_PERIOD_US)
        self.zero: Alarm | None = None
        self._refused = refused
        if refused is not None:
            self.zero = Alarm(self._zero_rule(region), agenda.now_us)
            self._start_ticks(self.zero, LOW_PERIOD_US)

    def states(self) -> dict[str, str]:
        """Return the alarms' states, for a person to look at."""
        return {"high": self.high.state, "low": self.low.state}

    def fulfilled(self, now_us: int, current: int) -> None:
        """Take note that the endpoint reached the desired count."""
        self._agenda.shows()
        self.current = current
        activity, self._running = self._running, None
        if activity is None:
            return
        activity.ended_us = now_us
        activity.status = "Successful"
        activity.message = f"{self._done(activity)} Change successfully fulfilled by {self.words.namespace}."
        scaled_out = (activity.desired or 0) > activity.capacity
        cooldown = self._config.scale_out_cooldown_s if scaled_out else self._config.scale_in_cooldown_s
        self._cooldown_until_us = now_us + to_us(cooldown)
        self._keep_floor()

    def schedule(self, start_us: int) -> None:
        """Enter the scheduled actions, counted from `start_us`."""
        for action in self._config.scheduled:
            self._agenda.at(start_us + to_us(action.at_s), Rank.LIFE_CYCLE, self._raise_floor, action.min_instances)

    def _raise_floor(self, min_instances: int) -> None:
        self.min_instances = min_instances
        self._agenda.shows()
        self._keep_floor()

    def _keep_floor(self) -> None:
        """Ask for the minimum when less is there; an update under way is waited for."""
        if self._running is None and self.desired < self.min_instances:
            self._begin(self.min_instances, f"minimum capacity was set to {self.min_instances} by a scheduled action")

    def _start_ticks(self, alarm: Alarm, interval_us: int) -> None:
        offset = self._config.evaluation_offset_s
        offset_us = self._random.randrange(interval_us) if offset is None else to_us(offset) % interval_us
        first_us = self._agenda.now_us // interval_us * interval_us + offset_us
        self._agenda.at(first_us, Rank.EVALUATION, self._tick, alarm, interval_us, first_us)

    def _tick(self, alarm: Alarm, interval_us: int, due_us: int) -> None:
        now_us = self._agenda.now_us
        series = self._refused if alarm is self.zero and self._refused is not None else self._series
        turned = alarm.evaluate(now_us, series)
        if turned:
            self._agenda.shows()
        if turned and alarm.state == "ALARM":
            self._agenda.at(now_us + to_us(self._config.reaction_s), Rank.LIFE_CYCLE, self._act, alarm, now_us, now_us)
        self._agenda.at(due_us + interval_us, Rank.EVALUATION, self._tick, alarm, interval_us, due_us + interval_us)

    def _act(self, alarm: Alarm, turned_us: int, alarm_us: int | None) -> None:
        """Run the alarm's action, and again every minute for as long as that same alarm lasts."""
        if alarm.state != "ALARM" or alarm.updated_us != turned_us:
            return
        now_us = self._agenda.now_us
        if self._decide(alarm, alarm_us) or alarm_us is not None:
            alarm.record_action(now_us, self.policy_arn)
            self._agenda.shows()
        self._agenda.at(
            now_us + to_us(self._config.repeat_action_s), Rank.LIFE_CYCLE, self._act, alarm, turned_us, None
        )

    def _decide(self, alarm: Alarm, alarm_us: int | None) -> bool:
        """Change the desired count if the policy says so; tell whether it did."""
        if self._config.policy == "none":
            return False
        wanted = self._wanted(alarm)
        if alarm is self.zero:
            if self.desired or self._running is not None:
                return False
            self._start(alarm, 1, alarm_us)
            return True
        if alarm.rule.above:
            if wanted <= self.desired:
                if self._running is None or wanted == self._config.max_instances:
                    at_max = self.desired >= self._config.max_instances
                    self._decline(alarm, "AlreadyAtMaxCapacity" if at_max else "AlreadyAtDesiredCapacity")
                return False
        elif self.high.state == "ALARM" or wanted >= self.desired:
            if self.desired <= self.min_instances and self.high.state != "ALARM":
                self._decline(alarm, "AlreadyAtMinCapacity")
            return False
        if self._running is not None or (not alarm.rule.above and self._agenda.now_us < self._cooldown_until_us):
            return False
        self._start(alarm, wanted, alarm_us)
        return True

    def _wanted(self, alarm: Alarm) -> int:
        metric = alarm.evaluated[0].statistic(alarm.rule.statistic) if alarm.evaluated else 0.0
        if self._config.policy == "target-tracking":
            wanted = math.ceil(self.current * metric / self._config.target - 1e-9)
        elif alarm.rule.above:
            reached = [step for step in self._config.steps if metric - self._config.target >= step.above]
            wanted = self.current + max(reached, key=lambda step: step.above).add if reached else self.current
        else:
            wanted = self.current - 1
        return min(max(wanted, self.min_instances), self._config.max_instances)

    def _start(self, alarm: Alarm, wanted: int, alarm_us: int | None) -> None:
        breaches = [point.exceeded_us for point in alarm.evaluated if point.exceeded_us is not None]
        first_us = min(breaches, default=None) if alarm.rule.above and alarm_us is not None else None
        self._begin(wanted, self._cause(alarm), alarm_us=alarm_us if alarm.rule.above else None, breach_us=first_us)

    def _begin(self, wanted: int, cause: str, *, alarm_us: int | None = None, breach_us: int | None = None) -> None:
        now_us = self._agenda.now_us
        activity = Activity(
            activity_id=self._uuid(),
            description=f"Setting desired {self.words.counted} to {wanted}.",
            cause=cause,
            started_us=now_us,
            capacity=self.desired,
            desired=wanted,
            alarm_us=alarm_us,
            breach_us=breach_us,
        )
        self.activities.append(activity)
        self._agenda.shows()
        self._running, self.desired = activity, wanted
        self._agenda.at(now_us + self._accept_us, Rank.LIFE_CYCLE, self._accepted, activity)
        self._change_capacity(activity, wanted)

    def _accepted(self, activity: Activity) -> None:
        self._agenda.shows()
        activity.status = "InProgress"
        activity.message = f"{self._done(activity)} Waiting for change to be fulfilled by {self.words.namespace}."

    def _decline(self, alarm: Alarm, code: str) -> None:
        """Note that nothing was scaled, unless the newest activity says just that already."""
        if self.activities and self.activities[-1].not_scaled == code:
            return
        activity = Activity(
            activity_id=self._uuid(),
            description="Attempting to scale due to alarm triggered",
            cause=self._cause(alarm),
            started_us=self._agenda.now_us,
            status="Failed",
            not_scaled=code,
            capacity=self.desired,
        )
        self.activities.append(activity)
        self._agenda.shows()

    def _cause(self, alarm: Alarm) -> str:
        policy = self.zero_policy_name if alarm is self.zero else self.policy_name
        return f"monitor alarm {alarm.rule.name} in state ALARM triggered policy {policy}"

    def _zero_rule(self, region: str) -> AlarmRule:
        name = f"{self.zero_policy_name}-alarm"
        return AlarmRule(
            name=name,
            arn=f"arn:aws:cloudwatch:{region}:{ACCOUNT}:alarm:{name}",
            above=True,
            threshold=0.0,
            period_us=LOW_PERIOD_US,
            datapoints=1,
            statistic="Sum",
        )

    def _rule(self, region: str, *, above: bool) -> AlarmRule:
        config = self._config
        kind = "TargetTracking" if config.policy == "target-tracking" else "StepScaling"
        name = f"{kind}-{self.resource_id}-Alarm{'High' if above else 'Low'}-{self._uuid()}"
        return AlarmRule(
            name=name,
            arn=f"arn:aws:cloudwatch:{region}:{ACCOUNT}:alarm:{name}",
            above=above,
            threshold=config.target if above else config.target * config.low_threshold_share,
            period_us=to_us(config.metric_period_s) if above else LOW_PERIOD_US,
            datapoints=config.high_datapoints if above else config.low_datapoints,
            statistic=config.statistic,
        )

    def _done(self, activity: Activity) -> str:
        return f"Successfully set desired {self.words.counted} to {activity.desired}."

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))
