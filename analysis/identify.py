"""What a pair of arms identifies of the image pull, which a single run on SageMaker cannot show.

One run shows only the window W = container start − decision = P + max(I, M) with provisioning P, pull I and the
reported download M. Of two arms, structural = ΔW − ΔM is by how much the pull outlasted the download less than before;
it needs nothing but that P is exchangeable. The pull itself needs units whose image was cached: there P = W − M, and
I = W_before − P wherever that exceeds M_before.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low
from typing import Final

import msgspec

from analysis.arms import Arm, Event
from analysis.cache import SURE, CacheOdds, arm_odds
from analysis.counterfactual import ShapleyRange, Split, shapley_range, telescope
from analysis.flows import SharedFit, fit_shared
from analysis.records import UnitTimes
from traces.units import format_duration

ASSUMPTIONS: Final = (
    (
        "Provisioning is exchangeable between the arms: a machine takes as long to come up with the image cached as "
        "without. How far the units of the two runs differ is in the bounds."
    ),
    (
        "Where a unit's image was cached, the model download was the last to finish (looking the image up took no "
        "longer than it). Which units these are is judged from window and download, as a probability."
    ),
    "Pull and download start together when the machine is up, and the container starts when the last of them ends.",
)


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """The image pull before and after; a value None: only bounded."""

    before_us: int | None
    before_lo_us: int
    before_hi_us: int
    after_us: int | None
    after_lo_us: int
    after_hi_us: int


class Identified(msgspec.Struct, frozen=True, kw_only=True):
    """What could be told; None: could not, and `notes` say why."""

    notes: tuple[str, ...]
    odds: tuple[CacheOdds, ...] = ()
    provisioning_us: int | None = None
    pull: Pull | None = None
    split: Split | None = None
    sensitivity: ShapleyRange | None = None
    shared: SharedFit | None = None


def identify(before: Arm, after: Arm, b: Event, a: Event) -> Identified:
    """Return provisioning, pull, split and sensitivity as far as the arms' windows and downloads identify them."""
    refusal = _refusal(before, after, b, a)
    windows = b.unit.window, a.unit.window
    downloads = b.unit.download, a.unit.download
    units = after.units()
    each = arm_odds(units, before.units())
    odds = tuple(o for o in each if o is not None)
    if refusal or windows[0] is None or windows[1] is None or downloads[0] is None or downloads[1] is None:
        return Identified(notes=(refusal,), odds=odds)
    m_b, m_a = downloads[0].at_us, downloads[1].at_us
    notes: list[str] = []
    told_of_cache = _odds_notes(after, odds)
    cached = [u for u, o in zip(units, each, strict=True) if o is not None and o.probability >= SURE]
    hits = [u for u in cached if u.window is not None and u.download is not None]
    sure = any(u is a.unit for u in cached)
    outlasted = windows[0].at_us - windows[1].at_us + m_a
    split = telescope(
        group_before=outlasted,
        download_before=m_b,
        download_after=m_a,
        rest_before=(b.scale_out.startup_us or 0) - outlasted,
        rest_after=(a.scale_out.startup_us or 0) - m_a,
    )
    waits = [u.window.at_us - u.download.at_us for u in hits if u.window and u.download]
    if not waits:
        notes.append("no unit after shows that its image was cached: the pull is only bounded")
        # Whatever the pull is now, it outlasted the download by so much more before.
        lo = m_b + split.structural if split.structural > windows[1].hi_us - windows[1].lo_us else 0
        pull = Pull(
            before_us=None, before_lo_us=max(lo, 0), before_hi_us=windows[0].hi_us,
            after_us=None, after_lo_us=0, after_hi_us=windows[1].hi_us,
        )  # fmt: skip
        return Identified(notes=(*notes, *told_of_cache), odds=odds, split=split, pull=pull)
    provisioning = windows[1].at_us - m_a if sure else median_low(waits)
    implied = windows[0].at_us - provisioning
    lo, hi = _pull_bounds(before.units(), hits)
    told = implied > m_b and lo > downloads[0].hi_us
    if not told:
        notes.append(_hidden(implied, m_b))
        lo, hi = 0, max(hi, m_b)
    after_pull = _after(a.unit, provisioning, hits, sure=sure)
    pull = Pull(
        before_us=implied if told else None, before_lo_us=lo, before_hi_us=hi,
        after_us=after_pull[0], after_lo_us=after_pull[1], after_hi_us=after_pull[2],
    )  # fmt: skip
    alone = m_a if sure else median_low([u.download.at_us for u in hits if u.download])
    return Identified(
        notes=(*notes, *told_of_cache),
        odds=odds,
        provisioning_us=provisioning,
        pull=pull,
        split=split,
        sensitivity=shapley_range(pull=implied, download_before=m_b, download_after=alone) if told else None,
        shared=fit_shared(pull=implied, download=m_b, download_alone=alone) if told else None,
    )


def _refusal(before: Arm, after: Arm, b: Event, a: Event) -> str:
    """Return why nothing but totals can be compared; empty where more can."""
    missing = [
        f"{what} of {event.run.manifest.run_id}"
        for event in (b, a)
        for what, value in (
            ("the container's start", event.unit.window),
            ("the model download's length", event.unit.download),
        )
        if value is None
    ]
    if missing:
        return f"the pull cannot be told: {' and '.join(missing)} was not seen; only the totals are compared"
    refused = [sum(run.capacity_errors for run in arm.runs()) / len(arm.runs()) for arm in (before, after)]
    if refused[0] != refused[1]:
        return (
            f"the pull cannot be told: per run the platform reported insufficient capacity {refused[0]:g}× before and "
            f"{refused[1]:g}× after, so that provisioning is not exchangeable; only the totals are compared"
        )
    return ""


_NEARLY_ONE: Final = 0.995


def _odds_notes(after: Arm, odds: Sequence[CacheOdds]) -> list[str]:
    """Return a note where not every unit after is as good as surely cached."""
    if not odds or all(o.probability >= SURE for o in odds):
        return []
    pulled = sum(1 for o in odds if o.probability <= 1 - SURE)
    unsure = sum(1 for o in odds if 1 - SURE < o.probability < SURE)
    told = [f"{pulled} of {len(odds)} units of {after.name} look like units that pulled their image"] if pulled else []
    told += [f"{unsure} of {len(odds)} units of {after.name} do not show whether they did"] if unsure else []
    shown = ", ".join(f"{o.unit_id or 'unnamed'} {_percent(o.probability)}" for o in odds[:6])
    return [f"{'; '.join(told)} (probability that it was cached: {shown})"]


def _percent(probability: float) -> str:
    if probability > _NEARLY_ONE:
        return "> 99 %"
    return "< 1 %" if probability < 1 - _NEARLY_ONE else f"{probability:.0%}".replace("%", " %")


def _hidden(implied: int, download: int) -> str:
    if implied <= download:
        return (
            f"the implied pull ({format_duration(max(implied, 0))}) does not exceed the download "
            f"({format_duration(download)}): the download hid it, so it is only bounded"
        )
    return (
        f"the implied pull ({format_duration(implied)}) exceeds the download ({format_duration(download)}) by no more "
        "than the bounds allow: the download may have hidden it, so it is only bounded"
    )


def _after(unit: UnitTimes, provisioning: int, hits: Sequence[UnitTimes], *, sure: bool) -> tuple[int | None, int, int]:
    """Return the pull (value, lo, hi) of the unit after: nothing where it was cached, else what its window implies."""
    assert unit.window is not None
    assert unit.download is not None
    if sure:
        return 0, 0, max(u.download.hi_us for u in hits if u.download)
    lo, hi = _pull_bounds([unit], hits)
    implied = unit.window.at_us - provisioning
    if implied > unit.download.at_us and lo > unit.download.hi_us:
        return implied, lo, hi
    return None, 0, max(hi, unit.download.hi_us)


def _pull_bounds(cold: Sequence[UnitTimes], cached: Sequence[UnitTimes]) -> tuple[int, int]:
    """Return the range of W_cold − W_cached + M_cached over all pairs of units and all their hard bounds."""
    lows, highs = [], []
    for unit in cold:
        for other in cached:
            if unit.window is not None and other.window is not None and other.download is not None:
                lows.append(unit.window.lo_us - other.window.hi_us + other.download.lo_us)
                highs.append(unit.window.hi_us - other.window.lo_us + other.download.hi_us)
    return max(min(lows), 0), max(*highs, 0) if highs else 0
