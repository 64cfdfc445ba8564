"""A scenario: one TOML file that says what to replay, against what, and what to watch meanwhile.

Strict: an unknown key is an error that names the nearest known one. Every default lives here. Instants and lengths
are written as `180s`, `3m`, `250ms`; the structs keep that text and offer it in microseconds as `*_us` properties.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from loadgen.emulator.config import EmulatorConfig
from traces.units import parse_duration_us, parse_window_us


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the scenario file."""


class TraceSection(_Section, frozen=True, kw_only=True):
    """What to replay. `path` is a file, or `corpus:NAME` for a bundled trace; relative to the scenario file."""

    path: str
    format: str | None = None
    window: str = "0s.."

    @property
    def window_us(self) -> tuple[int, int | None]:
        """The window cut from the trace, in µs from its start; an open end is `None`."""
        return parse_window_us(self.window)


class TargetSection(_Section, frozen=True, kw_only=True):
    """Where to send it, and in which protocol.

    `kind`: `openai` (chat completions), `completions`, `tgi`, `triton`, `http` (a template), `sagemaker`, or one that
    another distribution installs. `url` is the server's base address; the operation is appended, except for `http`.
    `sagemaker` needs `endpoint_name` and `region`, `url` replaces AWS's own address, and `dialect` is what its
    container speaks.

    Credentials come from the environment or from files, never from this file: `api_key_env` and `api_key_file` name
    the place of a bearer token, `header_env` and `header_file` those of other headers' values; `sigv4_service` signs.

    `max_tokens_field`, `min_tokens`, `ignore_eos` and `extra_body` hold a server to the output length where it allows.
    """

    kind: str = "openai"
    url: str | None = None
    model: str | None = None
    stream: bool = True
    stream_usage: bool = True
    dialect: Literal["chat", "completions", "tgi", "template"] = "chat"
    endpoint_name: str | None = None
    inference_component: str | None = None
    region: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    header_env: dict[str, str] = {}
    header_file: dict[str, str] = {}
    sigv4_service: str | None = None
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    min_tokens: bool = False
    ignore_eos: bool = False
    extra_body: dict[str, Any] = {}
    body: dict[str, Any] | None = None
    answer: Literal["whole", "sse", "lines"] = "whole"
    options: dict[str, Any] = {}
    connect_timeout: str = "10s"
    request_timeout: str = "10m"
    verify_tls: bool = True

    @property
    def connect_timeout_us(self) -> int:
        """How long a connection may take."""
        return parse_duration_us(self.connect_timeout)

    @property
    def request_timeout_us(self) -> int:
        """How long a whole request may take, in endpoint time."""
        return parse_duration_us(self.request_timeout)


class PromptsSection(_Section, frozen=True, kw_only=True):
    """What the requests say.

    `tokenizer` is the served model's `tokenizer.json`, for exact prompt lengths; `overhead_tokens` are those that the
    server adds to each prompt (a chat template). `payloads` is the folder that `payload_ref` refers to: recorded
    prompts are sent only where it is given. `image_size` (`512x512`) sends as many images as the row has.
    """

    tokenizer: str | None = None
    overhead_tokens: int = 0
    payloads: str | None = None
    image_size: str | None = None


class ReplaySection(_Section, frozen=True, kw_only=True):
    """How to send it. `max_in_flight` 0 is no cap (open loop); waiting for a cap counts as lag.

    `loop` repeats the trace until `duration` (endpoint time), or until it is stopped. What is due within `warm_up`
    of the start is sent and recorded, and counts for no latency and no verdict. `record_chunks` keeps the instant of
    every chunk (column `chunk_us`), some bytes each.
    """

    seed: int = 0
    lead: str = "2s"
    drain: str = "10m"
    flush: str = "1s"
    max_in_flight: int = 0
    loop: bool = False
    duration: str | None = None
    warm_up: str = "0"
    stop_grace: str = "10s"
    record_chunks: bool = False
    default_input_tokens: int = 256
    default_output_tokens: int = 128

    @property
    def lead_us(self) -> int:
        """Pause between start-up and the first arrival, in client time."""
        return parse_duration_us(self.lead)

    @property
    def drain_us(self) -> int:
        """How long to wait, after the last arrival, for answers still under way, in endpoint time."""
        return parse_duration_us(self.drain)

    @property
    def flush_us(self) -> int:
        """How long a finished request may stay unwritten, in client time."""
        return parse_duration_us(self.flush)

    @property
    def duration_us(self) -> int | None:
        """Arrivals from here on are not sent, in endpoint time; `None` is all of them."""
        return None if self.duration is None else parse_duration_us(self.duration)

    @property
    def warm_up_us(self) -> int:
        """How long the warm-up lasts, in endpoint time."""
        return parse_duration_us(self.warm_up)

    @property
    def stop_grace_us(self) -> int:
        """How long answers under way may take after a stop, in client time."""
        return parse_duration_us(self.stop_grace)


class GuardSection(_Section, frozen=True, kw_only=True):
    """What may be sent at most, when to ask first, and when to give up.

    The limits are held against the whole plan before the first byte: `max_rate` is requests in its busiest second
    (endpoint time). Above the `confirm_above_` figures a target on another machine needs a yes. `abort_on` has rules
    such as `errors>5%`, `lag>100ms`, `p99>30s`: one that holds for `abort_grace`, over what ended in the last
    `abort_window` (both client time), ends the run.
    """

    max_requests: int | None = None
    max_rate: float | None = None
    max_cost: float | None = None
    confirm_above_requests: int = 1000
    confirm_above_cost: float = 10.0
    abort_on: tuple[str, ...] = ()
    abort_grace: str = "30s"
    abort_window: str = "10s"

    @property
    def abort_grace_us(self) -> int:
        """How long a rule has to hold."""
        return parse_duration_us(self.abort_grace)

    @property
    def abort_window_us(self) -> int:
        """What a rule looks back over."""
        return parse_duration_us(self.abort_window)


class PricesSection(_Section, frozen=True, kw_only=True):
    """What the target costs, for the estimate before the first byte; `per_hour` is the whole endpoint's."""

    per_million_input_tokens: float | None = None
    per_million_output_tokens: float | None = None
    per_thousand_requests: float | None = None
    per_hour: float | None = None
    currency: str = "USD"


class GateSection(_Section, frozen=True, kw_only=True):
    """What the run has to hold: `ramptrace gate` and `ramptrace soak` judge it, see docs/gate.md.

    `thresholds` such as `p95(ttft) < 2s`. A limit within a value's bounds is inconclusive and counts as `inconclusive`.
    `baseline` is the run that `regression(…)` compares with. With `abort`, thresholds that can be judged while the load
    runs (`failed(requests)`, `p99(lag)`, `p99(e2e)` below a limit) also end it, as [guard] abort_on rules do.
    """

    thresholds: tuple[str, ...] = ()
    inconclusive: Literal["fail", "pass", "skip"] = "fail"
    baseline: str | None = None
    abort: bool = False


class VerdictSection(_Section, frozen=True, kw_only=True):
    """When a run stops being trustworthy: limits on the client's own lag (client time) and on what was not sent.

    The lag of a request is the time between its due instant and its first byte on the wire. A `window` is untrusted
    when it alone would make a run INVALID by its lag, when the client's loop stood still for longer than that limit,
    or when requests due in it were not sent; the shares are those of untrusted windows. See docs/fidelity.md.
    """

    degraded_lag_p99_ms: float = 5.0
    invalid_lag_p99_ms: float = 50.0
    degraded_not_sent_share: float = 0.0
    invalid_not_sent_share: float = 0.01
    window: str = "1s"
    degraded_untrusted_share: float = 0.01
    invalid_untrusted_share: float = 0.5
    degraded_cpu_share: float = 0.9

    @property
    def window_us(self) -> int:
        """Width of the windows that are trusted or not, in client time."""
        return parse_duration_us(self.window)


Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
ConfigMapName = Annotated[str, msgspec.Meta(pattern=r"^([a-z0-9.-]+/[a-z0-9.-]+)?$")]


class EcsSection(_Section, frozen=True, kw_only=True):
    """An ECS service. `probe_port` also asks each task's own address for its health, as `[collect.probe]` says."""

    cluster: str = "default"
    service: str
    probe_port: Port | None = None


class Ec2Section(_Section, frozen=True, kw_only=True):
    """An EC2 Auto Scaling group. `probe_port` also asks each instance's private address for its health."""

    group: str
    probe_port: Port | None = None


class KubernetesSection(_Section, frozen=True, kw_only=True):
    """A Deployment. Needs the extra `k8s`.

    `container` is the serving one, else the pod's first. With `service`, a pod is in service once that Service's
    EndpointSlices say so, else once it is ready. The cluster is that of `kubeconfig` and its `context`, of KUBECONFIG,
    or the one ramptrace runs in; `url` replaces it (an emulator, `kubectl proxy`). `probe_port` also asks each pod.
    `autoscaler_status` is the namespace and name of cluster-autoscaler's status ConfigMap, empty to leave it out.
    """

    namespace: str = "default"
    deployment: str
    container: str | None = None
    service: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    url: str | None = None
    probe_port: Port | None = None
    autoscaler_status: ConfigMapName = "kube-system/cluster-autoscaler-status"


class ProbeSection(_Section, frozen=True, kw_only=True):
    """Asks the units themselves. `units` names addresses; those of a platform come from its `probe_port`.

    `health` answers 2xx once a unit is ready; `metrics` holds the engine's counters, empty to leave them out.
    """

    units: dict[str, str] = {}
    health: str = "/health"
    metrics: str = "/metrics"
    period: str = "1s"

    @property
    def period_us(self) -> int:
        """How often each unit is asked, in endpoint time."""
        return parse_duration_us(self.period)


class CollectSection(_Section, frozen=True, kw_only=True):
    """What to watch while it runs. Periods are in endpoint time. `endpoint_url` replaces AWS's own addresses.

    `endpoint_name` watches a variant of a SageMaker endpoint, or with `inference_component` a component on it.
    `event_queue` is the address of an SQS queue that an EventBridge rule fills; `cloudtrail` and `image_size` add
    reads of CloudTrail and of the image's registry. The tables `ecs`, `ec2`, `kubernetes` and `probe` watch those
    platforms (docs/platforms.md). A table `[collect.other.NAME]` watches a platform that
    another distribution installs; the table is that platform's own. See docs/collector.md.
    """

    endpoint_name: str | None = None
    variant: str = "AllTraffic"
    inference_component: str | None = None
    event_queue: str | None = None
    cloudtrail: bool = False
    image_size: bool = False
    region: str | None = None
    endpoint_url: str | None = None
    poll: str = "5s"
    metrics_poll: str = "10s"
    tail: str = "60s"
    flush: str = "1s"
    verify_tls: bool = True
    ecs: EcsSection | None = None
    ec2: Ec2Section | None = None
    kubernetes: KubernetesSection | None = None
    probe: ProbeSection | None = None
    other: dict[str, dict[str, Any]] = {}

    @property
    def label(self) -> str:
        """What is watched, in a word or two, for a run's name; empty when nothing is."""
        named: list[str | None] = [
            self.endpoint_name,
            self.ecs.service if self.ecs else None,
            self.ec2.group if self.ec2 else None,
            self.kubernetes.deployment if self.kubernetes else None,
            "probe" if self.probe and self.probe.units else None,
        ]
        return "-".join([*(name for name in named if name), *self.other])

    @property
    def poll_us(self) -> int:
        """Period of the state, activity, alarm and log readings, in endpoint time."""
        return parse_duration_us(self.poll)

    @property
    def metrics_poll_us(self) -> int:
        """Period of the metric readings, in endpoint time."""
        return parse_duration_us(self.metrics_poll)

    @property
    def tail_us(self) -> int:
        """How long to go on after the load ended, in endpoint time."""
        return parse_duration_us(self.tail)

    @property
    def flush_us(self) -> int:
        """How long an observation may stay unwritten, in client time."""
        return parse_duration_us(self.flush)


class EmulatorSection(_Section, frozen=True, kw_only=True):
    """The emulator that stands in for the platform: where its clock can be read. Absent on a real platform."""

    url: str


class RunSection(_Section, frozen=True, kw_only=True):
    """How to file the run: `runs/<time>-<name>` under `directory`, which may be `s3://BUCKET/PREFIX`.

    `condition` names the arm of a comparison.
    """

    directory: str = "runs"
    condition: str | None = None


class Scenario(_Section, frozen=True, kw_only=True):
    """A whole scenario. `emulator_model` describes the endpoint that `ramptrace emulate --scenario` serves."""

    name: str = "run"
    trace: TraceSection
    target: TargetSection = msgspec.field(default_factory=TargetSection)
    prompts: PromptsSection = msgspec.field(default_factory=PromptsSection)
    replay: ReplaySection = msgspec.field(default_factory=ReplaySection)
    verdict: VerdictSection = msgspec.field(default_factory=VerdictSection)
    gate: GateSection = msgspec.field(default_factory=GateSection)
    guard: GuardSection = msgspec.field(default_factory=GuardSection)
    prices: PricesSection = msgspec.field(default_factory=PricesSection)
    collect: CollectSection | None = None
    emulator: EmulatorSection | None = None
    emulator_model: EmulatorConfig | None = None
    run: RunSection = msgspec.field(default_factory=RunSection)
