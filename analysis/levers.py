"""What may shorten a scale-out: each lever with its evidence in the run, its precondition and its alternative. Pure.

A lever is a change on one axis of the simulation. Whether its precondition holds is read from the run's configuration
snapshots, and is unknown where they do not tell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from analysis.analyse import RunAnalysis
from analysis.comparable import image, instance_type
from analysis.records import PhaseRow, ScaleOutResult
from traces.units import US_PER_S

Holds = Literal["holds", "fails", "unknown"]

_ACCELERATED: Final = re.compile(r"ml\.(g\d|p\d|inf\d|trn\d)")
_ECR: Final = re.compile(r"\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com")
_STREAMS_WEIGHTS: Final = re.compile(r"lmi|vllm|sglang|tgi|djl-inference")


class Precondition(msgspec.Struct, frozen=True, kw_only=True):
    """What must be so for a lever to work, and whether it is."""

    holds: Holds
    text: str


class Lever(msgspec.Struct, frozen=True, kw_only=True):
    """One lever, as the run has it. `axis` and `value` are the simulation's."""

    name: str
    change: str
    axis: str
    value: str
    evidence: str
    precondition: Precondition
    alternative: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What levers are judged by: the run, one scale-out of it, the fitted endpoint, and the demand there."""

    run: RunAnalysis
    scale_out: ScaleOutResult
    endpoint: dict[str, Any]
    needed: int
    onset_s: float
    """From the start of the part that is simulated."""


def levers_of(facts: Facts) -> list[Lever]:
    """Return every lever that would change something about the endpoint as it is."""
    found = (make(facts) for make in _MAKERS)
    return [lever for lever in found if lever is not None]


def _image_cache(facts: Facts) -> Lever | None:
    if facts.endpoint["startup"]["image_cache"]:
        return None
    kind, uri = instance_type(facts.run), image(facts.run)
    eligible = None if kind is None else bool(_ACCELERATED.match(kind))
    in_ecr = None if uri is None else bool(_ECR.search(uri))
    if eligible is False or in_ecr is False:
        why = f"{kind} has no accelerator" if eligible is False else "the image is not in ECR"
        condition = Precondition(holds="fails", text=f"{why}: such images are not cached")
    elif eligible and in_ecr:
        text = (
            f"{kind} is an accelerator type and the image is in ECR; caching is automatic there, so that a pull means "
            "a miss: a region without it, an image changed since the last scale-out, or the endpoint's first one"
        )
        condition = Precondition(holds="holds", text=text)
    else:
        condition = Precondition(holds="unknown", text="instance type or image are not recorded")
    return Lever(
        name="image cache",
        change="let new instances find the container image cached",
        axis="image-cache",
        value="on",
        evidence=_phase_evidence(facts.scale_out, "pull", "provisioning+pull"),
        precondition=condition,
        alternative="a smaller image, an eligible accelerator type, or more minimum capacity",
    )


def _metrics_resolution(facts: Facts) -> Lever | None:
    period_s = facts.endpoint["scaling"].get("metric_period_s")
    if period_s == 10:
        return None
    on_sagemaker = facts.run.platform == "sagemaker"
    known = f"its metric has periods of {period_s} s" if period_s else "the alarm's period is not recorded"
    return Lever(
        name="metrics resolution",
        change="track the high-resolution concurrency metric, every 10 s",
        axis="metrics-resolution",
        value="10s",
        evidence=f"{_phase_evidence(facts.scale_out, 'detection')}; {known}",
        precondition=Precondition(
            holds="holds" if on_sagemaker else "unknown",
            text="SageMaker has predefined 10 s metrics (…ConcurrentRequestsPerModelHighResolution, …PerCopy…)"
            if on_sagemaker
            else "the platform must have a metric that fine",
        ),
        alternative="a step policy on a metric of your own, or a lower target value",
    )


def _data_cache(facts: Facts) -> Lever | None:
    if facts.endpoint["startup"].get("data_cache"):
        return None
    variants = (facts.run.snapshots.get("describe-endpoint-config") or {}).get("ProductionVariants") or []
    named = [variant.get("ModelName") for variant in variants if isinstance(variant, dict)]
    if not variants:
        condition = Precondition(holds="unknown", text="whether the endpoint has inference components is not recorded")
    elif any(named):
        condition = Precondition(holds="fails", text="a single-model endpoint: only inference components cache data")
    else:
        condition = Precondition(
            holds="holds", text="an endpoint of inference components; it acts on machines used again, not on new ones"
        )
    return Lever(
        name="data cache",
        change="keep image and model on instances that are used again (DataCacheConfig)",
        axis="data-cache",
        value="on",
        evidence=_phase_evidence(facts.scale_out, "download", "pull", "provisioning+pull"),
        precondition=condition,
        alternative="the image cache for new instances, or components on instances kept for them",
    )


def _faster_loading(facts: Facts) -> Lever | None:
    uri = image(facts.run)
    streams = None if uri is None else bool(_STREAMS_WEIGHTS.search(uri))
    return Lever(
        name="faster loading",
        change="load the weights three times as fast (a streaming loader)",
        axis="faster-loading",
        value="3x",
        evidence=_phase_evidence(facts.scale_out, "weights", "start"),
        precondition=Precondition(
            holds="unknown" if streams is None else "holds" if streams else "fails",
            text="the container's engine must have a streaming loader; "
            + (
                "the image is not recorded"
                if uri is None
                else "this image's engine has one"
                if streams
                else "no engine known to have one in the image's name"
            ),
        ),
        alternative="a smaller or quantised model, or an engine with a streaming loader",
    )


def _warm_pool(facts: Facts) -> Lever:
    before, needed = _units(facts)
    more = max(max(needed, facts.scale_out.units_desired or 0) - before, 1)
    on_sagemaker = facts.run.platform == "sagemaker"
    return Lever(
        name="warm pool",
        change=f"keep {more} provisioned instance(s) waiting",
        axis="warm-pool",
        value=str(more),
        evidence=_phase_evidence(facts.scale_out, "provisioning", "provisioning+pull"),
        precondition=Precondition(
            holds="fails" if on_sagemaker else "unknown",
            text="SageMaker endpoints have no warm pool"
            if on_sagemaker
            else "the platform must have warm pools (EC2 Auto Scaling has)",
        ),
        alternative="minimum capacity, which costs the same and serves too",
    )


def _minimum(facts: Facts) -> Lever | None:
    before, needed = _units(facts)
    if needed <= before:
        return None
    return Lever(
        name="minimum capacity",
        change=f"keep {needed} instances instead of {before}",
        axis="min-instances",
        value=str(needed),
        evidence=f"the burst needed {needed} instances, {before} were there",
        precondition=Precondition(holds="holds", text="costs instances that idle between bursts"),
        alternative="scheduled scaling, where bursts come at known times",
    )


def _schedule(facts: Facts) -> Lever | None:
    before, needed = _units(facts)
    startup_us = facts.scale_out.startup_us
    if needed <= before or startup_us is None:
        return None
    ahead_s = math.ceil(startup_us / US_PER_S * 1.1)
    at_s = max(0, math.floor(facts.onset_s) - ahead_s)
    return Lever(
        name="scheduled scaling",
        change=f"ask for {needed} instances {ahead_s} s before the burst",
        axis="schedule",
        value=f"{at_s}s:{needed}",
        evidence=f"the start-up takes {startup_us / US_PER_S:.0f} s, whatever calls for it",
        precondition=Precondition(holds="unknown", text="bursts must come at known times; one run cannot tell"),
        alternative="minimum capacity, where they do not",
    )


def _target(facts: Facts) -> Lever | None:
    target = facts.endpoint["scaling"].get("target")
    if not target:
        return None
    return Lever(
        name="target value",
        change=f"halve the target, from {target:g} to {target / 2:g} requests per instance",
        axis="target",
        value=f"{target / 2:g}",
        evidence=_phase_evidence(facts.scale_out, "emission", "detection"),
        precondition=Precondition(holds="holds", text="keeps more instances at every load, up to the maximum"),
        alternative="high-resolution metrics, which detect sooner at the same load",
    )


def _steps(facts: Facts) -> Lever | None:
    before, needed = _units(facts)
    if needed <= before or facts.endpoint["scaling"].get("policy") == "step":
        return None
    staged = [row for row in facts.scale_out.phases if row.phase == "staging"]
    told = (
        _phase_evidence(facts.scale_out, "staging")
        if staged
        else f"the policy asked for {facts.scale_out.units_desired} instances at once, {needed} were needed"
    )
    return Lever(
        name="step size",
        change=f"a step policy that adds {needed - before} at the first alarm",
        axis="steps",
        value=f"0:+{needed - before}",
        evidence=told,
        precondition=Precondition(holds="holds", text="adds so many for a small rise too"),
        alternative="target tracking with a lower target",
    )


_MAKERS: Final[tuple[Callable[[Facts], Lever | None], ...]] = (
    _image_cache,
    _metrics_resolution,
    _data_cache,
    _faster_loading,
    _warm_pool,
    _minimum,
    _schedule,
    _target,
    _steps,
)


def _units(facts: Facts) -> tuple[int, int]:
    return facts.scale_out.units_before or 1, facts.needed


def _phase_evidence(found: ScaleOutResult, *names: str) -> str:
    """Return how long the first of these phases that the run tells took, with its bounds."""
    for name in names:
        row = next((row for row in found.phases if row.phase == name), None)
        if row is not None:
            return f"{name} {_length(row)}"
    return f"{names[0]} was not told apart in this run"


def _length(row: PhaseRow) -> str:
    shown = row.duration_us if row.duration_us is not None else row.critical_us
    text = f"took {shown / US_PER_S:.0f} s"
    if row.lo_us is not None and row.hi_us is not None and row.hi_us - row.lo_us >= US_PER_S:
        text += f" [{row.lo_us / US_PER_S:.0f} … {row.hi_us / US_PER_S:.0f}]"
    if row.parent is None and row.critical_us < shown:
        text += f", {row.critical_us / US_PER_S:.0f} s of it on the critical path"
    return text
