"""Was the container image cached? A label only where physics decides, else a probability; never a claim.

No platform field says so (SageMaker's cache is automatic, silent, and falls back to an ordinary pull).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal

import msgspec

from analysis.records import UnitTimes
from traces.units import US_PER_S

Label = Literal["hit", "miss", "ineligible", "unknown"]

START_OVERHEAD_US = 5 * US_PER_S
"""A pull that took longer than this at the least fetched something: looking a cached image up takes less."""
SURE = 0.9
"""Probability from which on a unit is taken to have (or not to have) had its image cached."""
_WINDOW_SPREAD, _DOWNLOAD_SPREAD = 0.05, 0.03
"""Least relative spread between launches that is assumed, where few units show less."""


def least_cold_pull_us(image_bytes: float, peak_bytes_per_s: float) -> int:
    """Return how long a pull takes at the very least when nothing is cached: the image at the line's peak rate.

    >>> round(least_cold_pull_us(17.7e9, 1250e6) / 1e6, 2)
    14.16
    """
    return round(image_bytes / peak_bytes_per_s * US_PER_S)


def label(lo_us: int, hi_us: int, least_cold_us: int | None, *, eligible: bool = True) -> Label:
    """Return what the bounds on a pull prove: it was too quick for a cold one, too long for none, or neither."""
    if not eligible:
        return "ineligible"
    if least_cold_us is not None and hi_us < least_cold_us:
        return "hit"
    return "miss" if lo_us > START_OVERHEAD_US else "unknown"


def signature(*, new_unit: bool, pulled: bool | None, fetched: bool | None, image_cache_on: bool = False) -> str:
    """Return which cache a unit's start-up bears the mark of. None: not known whether it pulled, or fetched the model.

    An image cache acts on new units; a data cache on units that served before, and holds artefacts and image.
    """
    if pulled is None or fetched is None:
        return "unknown"
    if not new_unit:
        if not fetched and not pulled:
            return "data_cache"
        return "reuse_cold_model" if fetched else "unknown"
    if pulled:
        return "image_cache_miss" if image_cache_on else "cold"
    return "image_cache" if fetched else "unknown"


class CacheOdds(msgspec.Struct, frozen=True, kw_only=True):
    """How probable it is that one unit had its image cached, and how the cold units it was held against look."""

    unit_id: str | None
    probability: float
    window_us: int
    cold_window_us: int


HIDDEN = 0.5
"""Chance that a cached image shows in no length at all (the download hid the pull), where no unit shows it."""


def arm_odds(units: Sequence[UnitTimes], cold: Sequence[UnitTimes]) -> list[CacheOdds | None]:
    """Return the odds of each unit of an arm, in order. Where none of them shows a cached image, all might hide it."""
    found = [cache_odds(unit, cold) for unit in units]
    if any(odds is not None and odds.probability >= SURE for odds in found):
        return found
    return [cache_odds(unit, cold, HIDDEN) for unit in units]


def cache_odds(unit: UnitTimes, cold: Sequence[UnitTimes], hidden: float = 0.0) -> CacheOdds | None:
    """Return the probability that a unit did not pull its image, against units that did; None without evidence.

    Before looking both are as probable. If it pulled, its window (decision → container) and its download come from
    where the cold units' do: normal around their mean, with their spread, their measurement error, and at least 5 % and
    3 % of the mean. If it did not, either may be anything shorter, all lengths alike. Longer than the cold ones' mean
    is no evidence for a cache. P = 1 / (1 + Λ), Λ = product of the likelihood ratios. With a chance `hidden` that a
    cached image shows in neither length, Λ becomes Λ / (1 − hidden + hidden Λ).
    """
    windows = [u.window for u in cold if u.window is not None]
    if unit.window is None or not windows:
        return None
    middle = fmean(w.at_us for w in windows)
    ratio = _ratio(unit.window.at_us, [w.at_us for w in windows], _WINDOW_SPREAD, unit.window.hi_us - unit.window.lo_us)
    downloads = [u.download for u in cold if u.download is not None]
    if unit.download is not None and downloads:
        width = unit.download.hi_us - unit.download.lo_us
        ratio *= _ratio(unit.download.at_us, [d.at_us for d in downloads], _DOWNLOAD_SPREAD, width)
    ratio = ratio / (1 - hidden + hidden * ratio)
    return CacheOdds(
        unit_id=unit.unit_id, probability=1 / (1 + ratio), window_us=unit.window.at_us, cold_window_us=round(middle)
    )


def _ratio(value: float, cold: Sequence[float], least_spread: float, width: float) -> float:
    """Return the likelihood of a length under "as the cold ones" over that under "anything shorter"."""
    middle = fmean(cold)
    if middle <= 0:
        return 1.0
    spread = max(stdev(cold) if len(cold) > 1 else 0.0, least_spread * middle, 1.0)
    spread = math.hypot(spread, width / math.sqrt(12))
    z = min((value - middle) / spread, 0.0)
    density = math.exp(-z * z / 2) / (spread * math.sqrt(2 * math.pi))
    return density * middle
