"""Which runs may be compared: what must agree, and what else differs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from analysis.analyse import RunAnalysis
from analysis.facts import alarm_rules
from traces.clock import to_datetime
from traces.errors import BadInputError
from traces.units import US_PER_S


def refuse_incomparable(runs: Sequence[RunAnalysis]) -> None:
    """Raise `BadInputError` that names two runs and what of them must agree and does not."""
    for run in runs:
        if not run.scale_outs:
            raise BadInputError(f"{run.path}: no scale-out was seen; it cannot be compared (see ramptrace analyse)")
    first = runs[0]
    for other in runs[1:]:
        for what, read in _MUST_AGREE.items():
            left, right = read(first), read(other)
            if left is not None and right is not None and left != right:
                raise BadInputError(
                    f"{first.path} and {other.path} are not comparable: {what} differs "
                    f"({_short(left)} and {_short(right)}); compare runs that differ in nothing but what is under test"
                )


def refuse_as_control(runs: Sequence[RunAnalysis], controls: Sequence[RunAnalysis]) -> None:
    """Raise `BadInputError` for controls that are runs of the comparison, differ from each other, or had other load."""
    refuse_incomparable(controls)
    twice = {run.path.resolve() for run in runs} & {run.path.resolve() for run in controls}
    if twice:
        raise BadInputError(f"{min(twice)}: is a run of the comparison and its control; name it once")
    for what in _CONTROLS_MUST_AGREE:
        left, right = _MUST_AGREE[what](runs[0]), _MUST_AGREE[what](controls[0])
        if left is not None and right is not None and left != right:
            raise BadInputError(
                f"{controls[0].path} is no control for {runs[0].path}: {what} differs ({_short(left)} and "
                f"{_short(right)}); run controls with the same load on an endpoint that the change cannot touch"
            )
    known = [run for run in (*runs, *controls) if not run.manifest.emulated and run.manifest.t0_us is not None]
    for control in controls:
        if control in known and not _near(control, [run for run in runs if run in known]):
            raise BadInputError(
                f"{control.path} is no control: none of the runs began within {_HOURS_APART:g} hours of it; a control "
                "shares the hours of the runs"
            )


def _near(control: RunAnalysis, runs: Sequence[RunAnalysis]) -> bool:
    """Tell whether a run of unknown start, or one that began at about the same time, is among the runs."""
    at_us = control.manifest.t0_us or 0
    return not runs or any(abs((run.manifest.t0_us or 0) - at_us) <= _HOURS_APART * 3600 * US_PER_S for run in runs)


def _trace_sha(run: RunAnalysis) -> Any:
    return None if run.manifest.trace is None else run.manifest.trace.sha256


def _window(run: RunAnalysis) -> Any:
    return None if run.manifest.trace is None else run.manifest.trace.window


def instance_type(run: RunAnalysis) -> str | None:
    """Return the instance type in the endpoint's configuration, None where it is not recorded."""
    variants = _dig(run.snapshots, "describe-endpoint-config", "ProductionVariants")
    kind = (
        variants[0].get("InstanceType")
        if isinstance(variants, list) and variants and isinstance(variants[0], dict)
        else None
    )
    return kind if isinstance(kind, str) else None


def image(run: RunAnalysis) -> str | None:
    """Return the container image of the model, None where it is not recorded."""
    found = _dig(run.snapshots, "describe-model", "PrimaryContainer", "Image")
    return found if isinstance(found, str) else None


def image_digest(run: RunAnalysis) -> str | None:
    """Return the digest that the endpoint's image tag stood for, None where it is not recorded: a tag may move."""
    variants = _dig(run.snapshots, "describe-endpoint-first", "ProductionVariants")
    first = variants[0] if isinstance(variants, list) and variants else None
    images = _dig(first, "DeployedImages")
    found = _dig(images[0], "ResolvedImage") if isinstance(images, list) and images else None
    return found if isinstance(found, str) else None


def model_data(run: RunAnalysis) -> str | None:
    """Return where the model comes from, None where it is not recorded."""
    container = _dig(run.snapshots, "describe-model", "PrimaryContainer")
    found = _dig(container, "ModelDataUrl") or _dig(container, "ModelDataSource", "S3DataSource", "S3Uri")
    return found if isinstance(found, str) else None


ERA_BEGAN: Final = datetime(2026, 6, 17, tzinfo=UTC)
"""Endpoint configurations made since differ in two things at once: SageMaker's image cache, and that detailed
observability is on unless switched off."""


def era(run: RunAnalysis) -> str | None:
    """Return which era of SageMaker's defaults the endpoint's configuration is of, None where it is not recorded."""
    made = _dig(run.snapshots, "describe-endpoint-config", "CreationTime")
    try:
        at = datetime.fromisoformat(str(made)) if made is not None else None
    except ValueError:
        return None
    if at is None:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return "before 17 June 2026" if at < ERA_BEGAN else "since 17 June 2026"


def region(run: RunAnalysis) -> str | None:
    """Return the region of the endpoint, None where the scenario does not say."""
    for section in ("collect", "target"):
        found = _dig(run.manifest.scenario, section, "region")
        if isinstance(found, str):
            return found
    return None


_HOURS_APART: Final = 3.0


def _time_of_day(runs: Sequence[RunAnalysis]) -> list[str]:
    """Return a line where runs on a real platform began at different hours: others' load comes and goes by day."""
    known = [run.manifest for run in runs if run.manifest.t0_us is not None and not run.manifest.emulated]
    hours = [(m.t0_us or 0) / US_PER_S / 3600 % 24 for m in known]
    apart = max((min((x - y) % 24, (y - x) % 24) for x in hours for y in hours), default=0.0)
    if apart < _HOURS_APART:
        return []
    listed = ", ".join(f"{to_datetime(m.t0_us or 0):%H:%M}" for m in known)
    return [f"time of day differs (UTC): {listed}"]


def _dig(document: Any, *keys: str) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


_MUST_AGREE: Final = {
    "the platform": lambda run: run.platform,
    "whether the endpoint is emulated": lambda run: run.manifest.emulated,
    "the replayed trace (sha256)": _trace_sha,
    "the trace's window": _window,
    "the instance type": instance_type,
}


_CONTROLS_MUST_AGREE: Final = tuple(what for what in _MUST_AGREE if what != "the instance type")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else text[:12] + "…"


def confounders(runs: Sequence[RunAnalysis]) -> list[str]:
    """Return what else differs between the runs, in words."""
    checks: dict[str, Any] = {
        "container image": image,
        "image digest": image_digest,
        "model": model_data,
        "era of the endpoint configuration": era,
        "region": region,
        "alarm rules": lambda run: alarm_rules(run.snapshots) or None,
        "time scale": lambda run: run.manifest.time_scale,
        "units before": lambda run: run.scale_outs[0].units_before,
        "units asked for": lambda run: run.scale_outs[0].units_desired,
    }
    found = []
    for what, read in checks.items():
        values = [read(run) for run in runs]
        if len({str(v) for v in values}) > 1:
            found.append(f"{what} differs: {', '.join('unknown' if v is None else str(v) for v in values)}")
    found += _time_of_day(runs)
    if any(_trace_sha(run) is None for run in runs):
        found.append("a run does not say which trace it replayed")
    if any(instance_type(run) is None for run in runs):
        found.append("a run does not say which instance type it used")
    found += [
        f"{run.manifest.condition or run.manifest.run_id}: the replay is {run.fidelity['verdict'] or 'not judged'}: "
        + ("; ".join(run.fidelity["reasons"]) or "no reason is recorded")
        for run in runs
        if run.fidelity["verdict"] != "VALID"
    ]
    return found
