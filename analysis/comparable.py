"""Which runs may be compared: what must agree, and what else differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from analysis.analyse import RunAnalysis
from traces.errors import BadInputError


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


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else text[:12] + "…"


def confounders(runs: Sequence[RunAnalysis]) -> list[str]:
    """Return what else differs between the runs, in words."""
    checks: dict[str, Any] = {
        "container image": image,
        "time scale": lambda run: run.manifest.time_scale,
        "units before": lambda run: run.scale_outs[0].units_before,
        "units asked for": lambda run: run.scale_outs[0].units_desired,
    }
    found = []
    for what, read in checks.items():
        values = [read(run) for run in runs]
        if len({str(v) for v in values}) > 1:
            found.append(f"{what} differs: {', '.join(str(v) for v in values)}")
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
