"""Two or more runs: how the start-up changed, and what of the pull the pair identifies.

On SageMaker neither provisioning nor the image pull is observable: one run shows only the window
W = container start − decision = P + max(I, M) with provisioning P, pull I and the reported download M. A pair of runs,
one without and one with the image cached, identifies the pull under two stated assumptions (`ASSUMPTIONS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from analysis.analyse import RunAnalysis
from analysis.counterfactual import ShapleyRange, Split, shapley_range, telescope
from analysis.entry import SCHEMA, run_entry, seconds
from analysis.records import Length, ScaleOutResult, UnitTimes
from traces.errors import BadInputError
from traces.units import format_duration

ASSUMPTIONS: Final = (
    (
        "Provisioning is exchangeable between the arms: a machine takes as long to come up with the image cached as "
        "without. How far the units of the two runs differ is in the bounds."
    ),
    "With the image cached, the model download was the last to finish (the pull took no longer than it).",
    "Pull and download start together when the machine is up, and the container starts when the last of them ends.",
)


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """The image pull before and after; `at` None: only bounded."""

    before_us: int | None
    before_lo_us: int
    before_hi_us: int
    after_us: int
    after_lo_us: int
    after_hi_us: int


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """The baseline arm against one other arm. Lengths in µs, endpoint time; None: not identified."""

    before: str
    after: str
    runs_before: tuple[RunAnalysis, ...]
    runs_after: tuple[RunAnalysis, ...]
    startup_before_us: int
    startup_after_us: int
    capacity_before_us: int | None
    capacity_after_us: int | None
    window_before: Length | None
    window_after: Length | None
    download_before: Length | None
    download_after: Length | None
    provisioning_us: int | None
    pull: Pull | None
    split: Split | None
    sensitivity: ShapleyRange | None
    notes: tuple[str, ...]

    @property
    def delta_us(self) -> int:
        """By how much the start-up (decision → in service) became shorter."""
        return self.startup_before_us - self.startup_after_us


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The first arm against every other; `confounders` are differences besides the one under test."""

    runs: tuple[RunAnalysis, ...]
    pairs: tuple[Pair, ...]
    confounders: tuple[str, ...]
    assumptions: tuple[str, ...]


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    run: RunAnalysis
    scale_out: ScaleOutResult
    unit: UnitTimes


class _Arm(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    events: tuple[_Event, ...]

    def representative(self) -> _Event:
        """The event with the (lower) median start-up: a real one, so that its parts sum to its whole."""
        ranked = sorted(self.events, key=lambda e: (e.scale_out.startup_us or 0, e.run.manifest.run_id))
        return ranked[(len(ranked) - 1) // 2]

    def runs(self) -> list[RunAnalysis]:
        """The arm's runs, each once."""
        return list({event.run.path: event.run for event in self.events}.values())

    def units(self) -> list[UnitTimes]:
        return [unit for event in self.events for unit in event.scale_out.units]


def compare_runs(runs: Sequence[RunAnalysis]) -> Comparison:
    """Return the comparison of runs, the first (or the first's condition) being "before".

    Runs of equal condition form one arm. What cannot be compared is a BadInputError that says why.
    """
    if len(runs) < 2:
        raise BadInputError("compare needs two runs or more: ramptrace compare BEFORE AFTER")
    _refuse_incomparable(runs)
    arms = _arms(runs)
    if len(arms) < 2:
        raise BadInputError(
            f'all runs have the condition "{runs[0].manifest.condition}": nothing to compare; '
            "name the arms with [run] condition in the scenario"
        )
    pairs = tuple(_pair(arms[0], other) for other in arms[1:])
    return Comparison(runs=tuple(runs), pairs=pairs, confounders=tuple(_confounders(runs)), assumptions=ASSUMPTIONS)


def _arms(runs: Sequence[RunAnalysis]) -> list[_Arm]:
    groups: dict[str, list[_Event]] = {}
    for run in runs:
        name = run.manifest.condition or run.manifest.run_id
        for found in run.scale_outs:
            if found.startup_us is not None:
                unit = next((u for u in found.units if u.unit_id == found.marginal_unit), found.units[0])
                groups.setdefault(name, []).append(_Event(run=run, scale_out=found, unit=unit))
    return [_Arm(name=name, events=tuple(events)) for name, events in groups.items()]


def _refuse_incomparable(runs: Sequence[RunAnalysis]) -> None:
    for run in runs:
        if not any(s.startup_us is not None for s in run.scale_outs):
            raise BadInputError(
                f"{run.path}: no scale-out that reached capacity; it cannot be compared (see ramptrace analyse)"
            )
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


def _confounders(runs: Sequence[RunAnalysis]) -> list[str]:
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


def _pair(before: _Arm, after: _Arm) -> Pair:
    b, a = before.representative(), after.representative()
    assert b.scale_out.startup_us is not None
    assert a.scale_out.startup_us is not None
    notes: list[str] = []
    identified = _identify(before, after, b, a, notes)
    return Pair(
        before=before.name,
        after=after.name,
        runs_before=tuple(before.runs()),
        runs_after=tuple(after.runs()),
        startup_before_us=b.scale_out.startup_us,
        startup_after_us=a.scale_out.startup_us,
        capacity_before_us=b.scale_out.time_to_capacity_us,
        capacity_after_us=a.scale_out.time_to_capacity_us,
        window_before=b.unit.window,
        window_after=a.unit.window,
        download_before=b.unit.download,
        download_after=a.unit.download,
        notes=tuple(notes),
        **identified,
    )


def _identify(before: _Arm, after: _Arm, b: _Event, a: _Event, notes: list[str]) -> dict[str, Any]:
    """Return provisioning, pull, split and sensitivity as far as the pair's windows and downloads identify them.

    P = W_a − M_a, max(I_b, M_b) = W_b − P; where that exceeds M_b it is the pull.
    """
    nothing: dict[str, Any] = {"provisioning_us": None, "pull": None, "split": None, "sensitivity": None}
    missing = [
        f"{what} of {event.run.manifest.run_id}"
        for event in (b, a)
        for what, value in (
            ("the container's start", event.unit.window),
            ("the model download's length", event.unit.download),
        )
        if value is None
    ]
    if missing or b.unit.window is None or a.unit.window is None or b.unit.download is None or a.unit.download is None:
        notes.append(f"the pull cannot be told: {' and '.join(missing)} was not seen; only the totals are compared")
        return nothing
    refused = [sum(run.capacity_errors for run in arm.runs()) / len(arm.runs()) for arm in (before, after)]
    if refused[0] != refused[1]:
        notes.append(
            f"the pull cannot be told: per run the platform reported insufficient capacity {refused[0]:g}× before and "
            f"{refused[1]:g}× after, so that provisioning is not exchangeable; only the totals are compared"
        )
        return nothing
    m_b, m_a = b.unit.download.at_us, a.unit.download.at_us
    provisioning = a.unit.window.at_us - m_a
    implied = b.unit.window.at_us - provisioning
    lo, hi = _pull_bounds(before.units(), after.units())
    told = implied > m_b and lo > b.unit.download.hi_us
    if implied <= m_b:
        notes.append(
            f"the implied pull ({format_duration(max(implied, 0))}) does not exceed the download "
            f"({format_duration(m_b)}): the download hid it, so it is only bounded"
        )
    elif not told:
        notes.append(
            f"the implied pull ({format_duration(implied)}) exceeds the download ({format_duration(m_b)}) by no more "
            "than the bounds allow: the download may have hidden it, so it is only bounded"
        )
    if not told:
        lo, hi = 0, max(hi, m_b)
    group = max(implied, m_b)
    split = telescope(
        group_before=group,
        download_before=m_b,
        download_after=m_a,
        rest_before=(b.scale_out.startup_us or 0) - group,
        rest_after=(a.scale_out.startup_us or 0) - m_a,
    )
    pull = Pull(
        before_us=implied if told else None,
        before_lo_us=lo,
        before_hi_us=hi,
        after_us=0,
        after_lo_us=0,
        after_hi_us=max((u.download.hi_us for u in after.units() if u.download), default=0),
    )
    sensitivity = shapley_range(pull=implied, download_before=m_b, download_after=m_a) if told else None
    return {"provisioning_us": provisioning, "pull": pull, "split": split, "sensitivity": sensitivity}


def _pull_bounds(before: Sequence[UnitTimes], after: Sequence[UnitTimes]) -> tuple[int, int]:
    """Return the range of W_b − W_a + M_a over all pairs of units and all their hard bounds."""
    lows, highs = [], []
    for unit in before:
        for other in after:
            if unit.window is not None and other.window is not None and other.download is not None:
                lows.append(unit.window.lo_us - other.window.hi_us + other.download.lo_us)
                highs.append(unit.window.hi_us - other.window.lo_us + other.download.hi_us)
    return max(min(lows), 0), max(*highs, 0) if highs else 0


def pair_entry(pair: Pair, assumptions: Sequence[str]) -> dict[str, Any]:
    """Return the JSON object of one pair; `lo_s` and `hi_s` bound the pull before."""
    pull, split, range_ = pair.pull, pair.split, pair.sensitivity
    return {
        "before": pair.before,
        "after": pair.after,
        "startup": {"before_s": seconds(pair.startup_before_us), "after_s": seconds(pair.startup_after_us)},
        "time_to_capacity": {"before_s": seconds(pair.capacity_before_us), "after_s": seconds(pair.capacity_after_us)},
        "delta_s": seconds(pair.delta_us),
        "structural_s": None if split is None else seconds(split.structural),
        "relief_s": None if split is None else seconds(split.relief),
        "rest_s": None if split is None else seconds(split.rest),
        "provisioning_s": seconds(pair.provisioning_us),
        "pull": {
            "before_s": None if pull is None else seconds(pull.before_us),
            "after_s": None if pull is None else seconds(pull.after_us),
            "lo_s": None if pull is None else seconds(pull.before_lo_us),
            "hi_s": None if pull is None else seconds(pull.before_hi_us),
            "after_lo_s": None if pull is None else seconds(pull.after_lo_us),
            "after_hi_s": None if pull is None else seconds(pull.after_hi_us),
            "method": "derived",
        },
        "download": {
            "before_s": None if pair.download_before is None else seconds(pair.download_before.at_us),
            "after_s": None if pair.download_after is None else seconds(pair.download_after.at_us),
        },
        "assumptions": list(assumptions),
        "sensitivity": {}
        if range_ is None
        else {
            "pull_alone_s": [v / 1e6 for v in range_.pull_alone],
            "elimination_s": [v / 1e6 for v in range_.elimination],
            "relief_s": [v / 1e6 for v in range_.relief],
        },
        "notes": list(pair.notes),
    }


def comparison_entry(comparison: Comparison, report: str | None = None) -> dict[str, Any]:
    """Return the JSON object that `ramptrace compare --json` prints; with more than two arms, `others` has the rest."""
    pairs = [pair_entry(pair, comparison.assumptions) for pair in comparison.pairs]
    return {
        "schema": SCHEMA,
        "runs": [run_entry(run) for run in comparison.runs],
        "compare": pairs[0],
        "others": pairs[1:],
        "confounders": list(comparison.confounders),
        "report": report,
    }
