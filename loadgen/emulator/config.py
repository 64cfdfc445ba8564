"""What the emulated endpoint is: the `[emulator_model]` table of a scenario file. Every default lives here.

The defaults are the reference case: Qwen3-8B on ml.g6.2xlarge, an image of 17.7 GB and a model of 16 GB, which takes
525 s from decision to service when the image is pulled and 258 s when it comes from the image cache. All lengths
are endpoint time in seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from loadgen.strict_toml import convert_strictly, read_toml
from traces.errors import BadInputError
from traces.units import US_PER_S

TABLE = "emulator_model"

NonNegative = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
PlatformName = Literal["sagemaker", "ecs", "ec2", "kubernetes"]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9])*$", max_length=63)]


def to_us(seconds: float) -> int:
    """Return seconds as whole microseconds.

    >>> to_us(0.3)
    300000
    """
    return round(seconds * US_PER_S)


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration."""


class Serving(_Table, frozen=True, kw_only=True):
    """How an instance serves: batch slots, and a time per token that grows with the batch.

    A request's first token comes `prefill_base_s + prefill_per_1000_tokens_s x input / 1000 + first_token_extra_s`
    after it got a slot. Tokens then follow every `token_s` at batch 1, rising linearly to `token_full_batch_s` when all
    slots are taken. A request that found no slot within `queue_timeout_s` fails.
    """

    slots_per_instance: AtLeastOne = 4
    routing: Literal["LEAST_OUTSTANDING_REQUESTS", "RANDOM"] = "LEAST_OUTSTANDING_REQUESTS"
    prefill_base_s: NonNegative = 0.1
    prefill_per_1000_tokens_s: NonNegative = 0.25
    first_token_extra_s: NonNegative = 0.0
    token_s: Positive = 0.040
    token_full_batch_s: Positive = 0.050
    queue_timeout_s: Positive = 60.0


class StepAdjustment(_Table, frozen=True, kw_only=True):
    """One step of a step policy: `add` instances when the metric is at least `above` beyond the target."""

    above: NonNegative = 0.0
    add: AtLeastOne = 1


class ScheduledAction(_Table, frozen=True, kw_only=True):
    """From `at_s` after the start of the load on, at least `min_instances` are wanted."""

    at_s: NonNegative
    min_instances: AtLeastOne


class Scaling(_Table, frozen=True, kw_only=True):
    """The policy on concurrent requests per instance, and its two alarms.

    `policy` is target tracking, which asks for `ceil(current x metric / target)`, or `step`: `steps` then say how many
    instances are added by how far the metric lies beyond `target`; the low alarm removes one. With `none` nothing
    scales by itself. `scheduled` raises the minimum at set times (after the start of the load when simulated, after its
    own start when served live).

    A datapoint of a period can be seen `publish_lag_s` after the period ended. Alarms are evaluated every
    `evaluation_interval_s` (the low one every period), at an offset drawn from the seed unless `evaluation_offset_s`
    fixes it. The decision follows the alarm by `reaction_s`.
    """

    min_instances: Count = 1
    max_instances: AtLeastOne = 3
    target: Positive = 4.0
    metric_period_s: Literal[10, 60] = 10
    statistic: Literal["Maximum", "Average"] = "Maximum"
    publish_lag_s: NonNegative = 4.0
    high_datapoints: AtLeastOne = 3
    low_datapoints: AtLeastOne = 15
    low_threshold_share: Share = 0.9
    evaluation_interval_s: Literal[10, 60] = 10
    evaluation_offset_s: NonNegative | None = None
    reaction_s: NonNegative = 1.2
    repeat_action_s: Positive = 60.0
    scale_out_cooldown_s: NonNegative = 300.0
    scale_in_cooldown_s: NonNegative = 300.0
    scale_in_s: Positive = 60.0
    emit_when_idle: bool = True
    policy: Literal["target-tracking", "step", "none"] = "target-tracking"
    steps: tuple[StepAdjustment, ...] = (StepAdjustment(),)
    scheduled: tuple[ScheduledAction, ...] = ()


class Startup(_Table, frozen=True, kw_only=True):
    """How a new instance comes up.

    Pull and model download run side by side from the launch on and share one resource of `transfer_mb_per_s`: a byte of
    the image costs `pull_work_per_byte` on it (it is fetched, written and unpacked), a byte of the model costs 1, and
    `download_share` of it goes to the download while both run. A pulled image leaves a cold page cache, which delays
    the container by `cold_page_cache_s`; weights load `process_start_s` (plus that delay) after the container's start,
    for `weights_s` and `weights_s_per_gb` for each gigabyte of the model.

    `transfer_spread` is how much machines differ in that resource (standard deviation of its logarithm). Of each
    scale-out, `warm_pool` instances are already there and need `warm_pool_start_s` instead of a provisioning. A start
    lands with probability `reuse_share` on a machine that the endpoint has already: nothing is provisioned then, and
    with `data_cache` neither image nor model are fetched.
    """

    provisioning_s: Positive = 120.0
    provisioning_jitter_s: NonNegative = 1.0
    accept_s: NonNegative = 0.3
    image_gb: NonNegative = 17.7
    model_gb: NonNegative = 16.0
    transfer_mb_per_s: Positive = 207.79
    pull_work_per_byte: Positive = 3.0054
    download_share: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.4583
    process_start_s: Positive = 11.0
    weights_s: NonNegative = 30.0
    weights_s_per_gb: NonNegative = 0.0
    warm_up_s: Positive = 20.0
    cold_page_cache_s: NonNegative = 11.0
    notice_s: NonNegative = 0.5
    image_cache: bool = True
    image_cache_miss_share: Share = 0.0
    transfer_spread: Share = 0.0
    warm_pool: Count = 0
    warm_pool_start_s: NonNegative = 5.0
    reuse_share: Share = 0.0
    data_cache: bool = False

    @property
    def load_s(self) -> float:
        """How long loading the weights takes."""
        return self.weights_s + self.weights_s_per_gb * self.model_gb


class Cluster(_Table, frozen=True, kw_only=True):
    """How units come up on `ecs`, `ec2` and `kubernetes`; SageMaker has no use for it.

    A unit exists `schedule_s` after the decision. While `spare_machines` have room it is placed at once, else a machine
    is asked for (`ask_s` later) and takes `startup.provisioning_s`; on Kubernetes its accelerators can be asked for
    `accelerator_s` after it is ready. It is placed within `place_s`, its sandbox takes `sandbox_s`; then comes the
    pull, which waits `pull_queue_s` for each unit placed before it at the same time, and `create_s` for the container.
    The model is fetched inside the `container`, by an `init-container`, or not at all (`image`).

    A health check notices readiness within `health_interval_s`; traffic is sent `register_s` later. On `ec2`
    `startup.warm_pool` holds, and an activity ends `instance_warmup_s` after the instance is in service.
    `load_balancer` puts a target group (a Service) before the units. On Kubernetes machines come from `node_scaler`;
    `autoscaler_status` is the form of cluster-autoscaler's status, `text` up to its release 1.29.
    """

    launch_type: Literal["EC2", "FARGATE"] = "EC2"
    spare_machines: Count = 0
    schedule_s: NonNegative = 0.8
    ask_s: NonNegative = 2.0
    accelerator_s: NonNegative = 12.0
    place_s: NonNegative = 0.5
    sandbox_s: NonNegative = 1.5
    pull_queue_s: NonNegative = 0.0
    create_s: NonNegative = 0.8
    download: Literal["container", "init-container", "image"] = "container"
    health_interval_s: NonNegative = 10.0
    register_s: NonNegative = 1.0
    instance_warmup_s: NonNegative = 0.0
    load_balancer: bool = True
    hpa_sync_s: Positive = 15.0
    hpa_tolerance: Share = 0.1
    node_scaler: Literal["karpenter", "cluster-autoscaler"] = "karpenter"
    autoscaler_status: Literal["yaml", "text"] = "yaml"


class Component(_Table, frozen=True, kw_only=True):
    """An inference component: `scaling` then counts its copies, and instances are launched and released beneath them.

    With `scaling.min_instances` 0 every request fails until the first copy is there; an alarm on these failures, on a
    step policy of its own, asks for it. `data_cache` keeps the model on an instance for further copies.
    """

    name: Name = "demo-component"
    copies_per_instance: AtLeastOne = 1
    data_cache: bool = False


class Faults(_Table, frozen=True, kw_only=True):
    """What goes wrong. `capacity_errors` and `failed_pulls` count per new instance, shares are probabilities.

    The control planes: `throttled_share` and `error_share` (status 500) of all calls; `slow_share` of them are answered
    `slow_s` later; `unreachable` names services that answer 503 from `unreachable_from_s` for `unreachable_s`, and
    credentials have expired from `expired_from_s` for `expired_s`, both after the start. `clock_skew_s` is how far the
    platform's clock is ahead of what the emulator says of it, as a client's own clock may be wrong. Messages of the
    event queue come twice with `duplicate_event_share`, and up to `late_event_s` late. `denied` names reads that are
    refused: `ecs:DescribeTasks`, `kubernetes:nodes`.
    Of Kubernetes' watches: each is cut off after `watch_lasts_s`, `gone_share` of those that are opened find their
    history gone, `duplicate_share` of their events come twice, and each comes up to `late_s` late.
    """

    capacity_errors: Count = 0
    capacity_retry_s: Positive = 45.0
    failed_pulls: Count = 0
    failed_pull_at_share: Share = 0.5
    pull_retry_s: NonNegative = 15.0
    throttled_share: Share = 0.0
    error_share: Share = 0.0
    slow_share: Share = 0.0
    slow_s: NonNegative = 5.0
    unreachable: tuple[str, ...] = ()
    unreachable_from_s: NonNegative = 60.0
    unreachable_s: NonNegative = 30.0
    expired_from_s: NonNegative = 60.0
    expired_s: NonNegative = 0.0
    clock_skew_s: float = 0.0
    duplicate_event_share: Share = 0.0
    late_event_s: NonNegative = 0.0
    broken_stream_share: Share = 0.0
    denied: tuple[str, ...] = ()
    watch_lasts_s: NonNegative = 0.0
    gone_share: Share = 0.0
    duplicate_share: Share = 0.0
    late_s: NonNegative = 0.0


class EmulatorConfig(_Table, frozen=True, kw_only=True):
    """A whole emulated endpoint on a `platform`. `history_s` is how long it has been idle when the emulator starts.

    `endpoint_name` also names the service (in a cluster of that name), the group, or the deployment.

    `host_id_label`: whether the platform's operation metrics name the instance (unverified on the real platform).
    `enhanced_metrics` publishes metrics by instance, every `metric_publish_s`. `event_queue` is the name of an SQS
    queue that an EventBridge rule fills; `trail_lag_s` is how late CloudTrail tells.
    """

    platform: PlatformName = "sagemaker"
    endpoint_name: Name = "demo"
    variant: Name = "AllTraffic"
    region: str = "us-east-1"
    model_name: str = "qwen3-8b"
    instance_type: str = "ml.g6.2xlarge"
    history_s: NonNegative = 1200.0
    host_id_label: bool = True
    operation_metric_lag_s: NonNegative = 5.0
    enhanced_metrics: bool = False
    metric_publish_s: Literal[10, 30, 60] = 60
    event_queue: Name | None = None
    trail_lag_s: NonNegative = 120.0
    log_ingestion_lag_s: NonNegative = 1.0
    serving: Serving = msgspec.field(default_factory=Serving)
    scaling: Scaling = msgspec.field(default_factory=Scaling)
    startup: Startup = msgspec.field(default_factory=Startup)
    cluster: Cluster = msgspec.field(default_factory=Cluster)
    faults: Faults = msgspec.field(default_factory=Faults)
    component: Component | None = None

    @property
    def resource_id(self) -> str:
        """What is scaled, in Application Auto Scaling's words."""
        if self.component is not None:
            return f"inference-component/{self.component.name}"
        return f"endpoint/{self.endpoint_name}/variant/{self.variant}"

    def __post_init__(self) -> None:
        if self.scaling.max_instances < self.scaling.min_instances:
            raise ValueError("scaling.max_instances must not be below scaling.min_instances")
        if self.scaling.min_instances == 0 and self.component is None:
            raise ValueError("scaling.min_instances 0 needs a component: an endpoint's variant keeps one instance")
        if self.serving.token_full_batch_s < self.serving.token_s:
            raise ValueError("serving.token_full_batch_s must not be below serving.token_s")
        if self.scaling.policy == "step" and all(step.above > 0 for step in self.scaling.steps):
            raise ValueError("scaling.steps needs one with above = 0: what to add as soon as the alarm is raised")
        if any(action.min_instances > self.scaling.max_instances for action in self.scaling.scheduled):
            raise ValueError("scaling.scheduled must not ask for more than scaling.max_instances")


def load_config(path: str | Path) -> EmulatorConfig:
    """Read the `[emulator_model]` table of a scenario file; the file's other tables are not looked at."""
    file = Path(path)
    document = read_toml(file, f"write one with a [{TABLE}] table, or leave --scenario out for the reference case")
    table = document.get(TABLE)
    if not isinstance(table, dict):
        raise BadInputError(f"{file}: no [{TABLE}] table; add one, or leave --scenario out for the reference case")
    return convert_strictly(table, EmulatorConfig, origin=str(file), table=TABLE)
