"""Measured runs → the parameters of the endpoint that would behave like them, each with an interval and a method.

What is identified depends on the runs. W is the window from decision to container start, M the reported download:

- image cached, download last to end: provisioning P = W_a − M_a and the stand-alone rate C = model / M_a;
- not cached, with P from a cached run: pull I = W_b − P, the download's share of the rate M_a / M_b and, since pull and
  download keep one resource busy, the pull's work per byte κ = (C I − model) / image (`attribution` 3.5);
- one run alone leaves P and I, or C and κ, joint: the missing ones are priors, marked so, with their whole range.

Sizes (GB) are not in any reading of the platform; they are given.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final, Literal

import msgspec

from analysis.analyse import RunAnalysis
from analysis.records import Length, ScaleOutResult, UnitTimes
from traces.errors import BadInputError
from traces.units import US_PER_S

PRIORS: Final = {
    "provisioning_s": (120.0, 30.0, 240.0),
    "pull_work_per_byte": (3.0, 2.0, 4.0),
    "download_share": (0.46, 0.3, 0.6),
    "cold_page_cache_s": (5.0, 0.0, 15.0),
    "transfer_mb_per_s": (200.0, 60.0, 600.0),
}
"""Value, least and most, where a run does not tell: the published reference case, and what published pulls allow."""

_LONGEST_PROVISIONING_S: Final = 240.0


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A fitted value between its bounds. `method`: `fitted` from intervals of the runs, `read` as set, or `prior`."""

    value: float
    lo: float
    hi: float
    method: Literal["fitted", "read", "prior"]


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """What is fetched, in GB of 1e9 bytes: the image as compressed, the model."""

    image_gb: float
    model_gb: float


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The start-up's parameters, whether the image was cached, and what was assumed."""

    parameters: dict[str, Parameter]
    image_cache: bool
    assumptions: tuple[str, ...]


Pick = Callable[[Parameter], Parameter]
"""What is taken of an interval: the interval itself, or one point of it."""


def whole(parameter: Parameter) -> Parameter:
    """Return an interval as it is."""
    return parameter


def drawn(chance: random.Random) -> Pick:
    """Return what takes a point of each interval by chance, nearer to its value more likely.

    What is observed is drawn, and the rest follows from it: a draw fits the runs like the value itself.
    """

    def pick(parameter: Parameter) -> Parameter:
        at = chance.triangular(parameter.lo, parameter.hi, parameter.value)
        return msgspec.structs.replace(parameter, value=at, lo=at, hi=at)

    return pick


def fit_startup(
    runs: Sequence[RunAnalysis], sizes: Sizes, *, image_cache: bool | None = None, pick: Pick = whole
) -> Fit:
    """Return the start-up parameters that runs on one machine type tell, the last of them being the present state.

    `image_cache` says of a single run whether its image was cached; it is guessed, and said, when left out.
    """
    measured = [(run, found) for run in runs for found in run.scale_outs if found.startup_us is not None]
    if not measured:
        raise BadInputError(f"{runs[0].path}: no scale-out that reached capacity; there is nothing to fit")
    units = [(run, unit) for run, found in measured for unit in found.units]
    known = [(run, unit) for run, unit in units if unit.window is not None]
    if not known:
        raise BadInputError(f"{runs[0].path}: no container start was seen (log streams); the start-up cannot be fitted")
    cold, warm, told = _arms(known, image_cache)
    parameters, assumptions = _transfers(cold, warm, sizes, pick)
    arm = warm or cold
    start = {found.scaling_id: found for run, found in measured if any(run is owner for owner, _ in arm)}
    parameters |= _container(list(start.values()), sizes, pick)
    if cold and warm:
        parameters["cold_page_cache_s"] = _difference(measured, cold, warm, pick)
    return Fit(parameters=parameters, image_cache=_is_cached(runs[-1], warm), assumptions=(*told, *assumptions))


_Arm = list[tuple[RunAnalysis, UnitTimes]]


def _arms(known: _Arm, image_cache: bool | None) -> tuple[_Arm, _Arm, tuple[str, ...]]:
    """Return the units without and with the image cached, and how that was told."""
    by_run: dict[str, _Arm] = {}
    for run, unit in known:
        by_run.setdefault(str(run.path), []).append((run, unit))
    residual = {name: median(_residual_s(unit) for _, unit in arm) for name, arm in by_run.items()}
    longest, shortest = max(residual.values()), min(residual.values())
    if image_cache is None and longest - shortest > 30:
        limit = (longest + shortest) / 2
        cold = [pair for name, arm in by_run.items() if residual[name] > limit for pair in arm]
        warm = [pair for name, arm in by_run.items() if residual[name] <= limit for pair in arm]
        return cold, warm, ("the runs with the shorter wait for the container had the image cached",)
    if image_cache is None:
        cached = median(residual.values()) <= _LONGEST_PROVISIONING_S
        how = "no longer" if cached else "longer"
        text = (
            f"the image is taken as {'cached' if cached else 'not cached'}: the window without the download is {how} "
            f"than {_LONGEST_PROVISIONING_S:.0f} s; say which with --image-cache"
        )
        return ([], known, (text,)) if cached else (known, [], (text,))
    return ([], known, ()) if image_cache else (known, [], ())


def _is_cached(last: RunAnalysis, warm: _Arm) -> bool:
    return any(run is last for run, _ in warm)


def _residual_s(unit: UnitTimes) -> float:
    window = 0 if unit.window is None else unit.window.at_us
    return (window - (0 if unit.download is None else unit.download.at_us)) / US_PER_S


def _transfers(cold: _Arm, warm: _Arm, sizes: Sizes, pick: Pick) -> tuple[dict[str, Parameter], tuple[str, ...]]:
    model_mb, image_mb = sizes.model_gb * 1000, sizes.image_gb * 1000
    m_warm, m_cold, w_warm, w_cold = (
        None if found is None else pick(found)
        for found in (_downloads(warm), _downloads(cold), _windows(warm), _windows(cold))
    )
    notes: list[str] = []
    share = pick(prior("download_share"))
    if m_warm and m_cold and model_mb:
        share = _combine(lambda a, b: min(max(a / b, 0.05), 0.95), m_warm, m_cold)
    elif model_mb:
        notes.append("how much the pull slows the download is a prior: it takes a run with and one without the cache")
    alone = m_warm or (None if m_cold is None else _combine(lambda m, w: m * w, m_cold, share))
    if model_mb and alone:
        rate = _combine(lambda m: model_mb / m, alone)
        if not m_warm:
            rate = msgspec.structs.replace(rate, method="prior")
    else:
        rate = pick(prior("transfer_mb_per_s"))
    provisioning = pick(prior("provisioning_s"))
    if w_warm:
        provisioning = _combine(lambda w, m: max(w - m, 0.0), w_warm, m_warm or _certain(0.0))
        notes.append("with the image cached, the download was the last to end")
    elif w_cold:
        most = max(w_cold.value - (m_cold.value if m_cold else 0.0), 0.0)
        value, lo, hi = (min(v, most) for v in PRIORS["provisioning_s"])
        provisioning = pick(Parameter(value=value, lo=min(lo, value), hi=hi, method="prior"))
        notes.append("provisioning is a prior: pull and provisioning are joint in a run without the cache")
    work = pick(prior("pull_work_per_byte"))
    if w_cold and image_mb:
        pull = _combine(lambda w, p: max(w - p, 0.0), w_cold, provisioning)
        # The pull's end: the image's work and the model's bytes, at the whole rate.
        work = _combine(lambda i, c: max((i * c - model_mb) / image_mb, 0.1), pull, rate)
        if not w_warm:
            work = msgspec.structs.replace(work, method="prior")
    elif image_mb:
        notes.append("the pull's cost is a prior: no run without the image cached")
    return {
        "provisioning_s": provisioning,
        "transfer_mb_per_s": rate,
        "pull_work_per_byte": work,
        "download_share": share,
        "cold_page_cache_s": pick(prior("cold_page_cache_s")),
        "image_gb": _certain(sizes.image_gb),
        "model_gb": _certain(sizes.model_gb),
    }, tuple(notes)


def _container(found: Sequence[ScaleOutResult], sizes: Sizes, pick: Pick) -> dict[str, Parameter]:
    """Return what a container's start is made of; a part that no log dates is folded into the process's start."""
    begins = _picked(pick, _lengths(found, "container_started", "load_started"))
    weights = _picked(pick, _lengths(found, "load_started", "load_finished"))
    warm_up = _picked(pick, _lengths(found, "load_finished", "ready"))
    start = _lengths(found, "container_started", "ready") or _lengths(found, "container_started", "in_service")
    notice = _picked(pick, _lengths(found, "ready", "in_service"))
    fitted = {}
    if begins and weights and warm_up:
        fitted = {"process_start_s": begins, "warm_up_s": _combine(lambda v: max(v, 1e-6), warm_up)}
        scale = sizes.model_gb
        zero = _certain(0.0)
        fitted |= (
            {"weights_s_per_gb": _combine(lambda v: v / scale, weights), "weights_s": zero}
            if scale
            else {"weights_s": weights, "weights_s_per_gb": zero}
        )
    elif start:
        fitted = {
            "process_start_s": _combine(lambda v: max(v, 1e-6), pick(start)),
            "weights_s": _certain(0.0),
            "warm_up_s": _certain(1e-6),
        }
    if notice:
        fitted["notice_s"] = _combine(lambda v: max(v, 0.0), notice)
    return fitted


def _picked(pick: Pick, parameter: Parameter | None) -> Parameter | None:
    return None if parameter is None else pick(parameter)


def _difference(
    measured: Sequence[tuple[RunAnalysis, ScaleOutResult]], cold: _Arm, warm: _Arm, pick: Pick
) -> Parameter:
    """Return by how much longer a container takes to start after a pull."""
    slow, fast = (
        _lengths([f for run, f in measured if any(run is r for r, _ in arm)], "container_started", "ready")
        for arm in (cold, warm)
    )
    if slow is None or fast is None:
        return pick(prior("cold_page_cache_s"))
    return _combine(lambda a, b: max(a - b, 0.0), pick(slow), pick(fast))


def _lengths(found: Iterable[ScaleOutResult], opens: str, closes: str) -> Parameter | None:
    """Return the time (s) between two anchors over all units that have both."""
    lengths = []
    for scale_out in found:
        at = {(a.unit_id, a.anchor): a for a in scale_out.anchors}
        for (unit, anchor), begin in at.items():
            end = at.get((unit, closes)) or at.get((None, closes))
            if anchor == opens and end is not None:
                lo = (end.lo_us or end.at_us) - (begin.hi_us or begin.at_us)
                hi = (end.hi_us or end.at_us) - (begin.lo_us or begin.at_us)
                lengths.append(Length(lo_us=max(lo, 0), at_us=max(end.at_us - begin.at_us, 0), hi_us=max(hi, 0)))
    return over(lengths)


def over(lengths: Sequence[Length]) -> Parameter | None:
    """Return the median of lengths in seconds, and the range of all their bounds; None of none."""
    if not lengths:
        return None
    return Parameter(
        value=median(length.at_us for length in lengths) / US_PER_S,
        lo=min(length.lo_us for length in lengths) / US_PER_S,
        hi=max(length.hi_us for length in lengths) / US_PER_S,
        method="fitted",
    )


def _windows(arm: _Arm) -> Parameter | None:
    return over([unit.window for _, unit in arm if unit.window is not None])


def _downloads(arm: _Arm) -> Parameter | None:
    found = over([unit.download for _, unit in arm if unit.download is not None])
    return None if found is None or found.value <= 0 else msgspec.structs.replace(found, lo=max(found.lo, 1e-3))


def prior(name: str) -> Parameter:
    """Return what is taken for a start-up parameter that no run tells."""
    value, lo, hi = PRIORS[name]
    return Parameter(value=value, lo=lo, hi=hi, method="prior")


def _certain(value: float) -> Parameter:
    return Parameter(value=value, lo=value, hi=value, method="read")


def _combine(of: Callable[..., float], *parts: Parameter) -> Parameter:
    """Return a function of parameters, monotone in each, with the range over all corners of their intervals."""
    corners: list[tuple[float, ...]] = [()]
    for part in parts:
        corners = [(*corner, bound) for corner in corners for bound in (part.lo, part.hi)]
    values = [of(*corner) for corner in corners]
    value = of(*(part.value for part in parts))
    method: Literal["fitted", "prior"] = "prior" if any(part.method == "prior" for part in parts) else "fitted"
    return Parameter(value=value, lo=min(*values, value), hi=max(*values, value), method=method)
