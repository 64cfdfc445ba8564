"""When capacity was there: several definitions side by side. One is declared the headline, the others are for readers
who mean another instant by it.
"""  # noqa: D205

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import polars as pl

from analysis import capacity as cap
from analysis.deficit import Fluid
from analysis.latency import measure_us, within
from analysis.records import AnchorValue, Length, Onset, ScaleOutResult
from traces.units import US_PER_S

HEADLINE: Final = "in_service"
DEFINITIONS: Final = {
    "in_service": "the unit that completed the needed capacity counts as in service",
    "all_in_service": "every unit that was asked for counts as in service",
    "capacity_covers_demand": "ready units cover the offered load",
    "first_served": "the unit that completed the needed capacity gave its first answer",
    "backlog_drained": "the backlog that the deficit left is worked off (a fluid model of load and ready capacity)",
    "slo_recovered": "requests meet the objective again, and keep meeting it for two windows",
}
_WINDOW_US: Final = 10 * US_PER_S
_HELD: Final = 2


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What a request should get: its first token within `ttft_us` of its due instant, for a `share` of requests."""

    ttft_us: int = 2 * US_PER_S
    share: float = 0.95


def first_tokens(requests: pl.LazyFrame) -> dict[str, int]:
    """Return when each unit that answers name gave its first token (or ended its first answer), endpoint µs."""
    at = pl.coalesce("first_token", "done").dt.epoch("us")
    named = requests.filter(pl.col("unit_id").is_not_null() & (pl.col("outcome") == "ok"))
    return dict(named.group_by("unit_id").agg(at.min()).collect(engine="streaming").iter_rows())


def definitions(
    found: ScaleOutResult,
    timings: pl.DataFrame,
    objective: Objective,
    *,
    until_us: int | None,
    capacity: Sequence[cap.Step],
    queue: Fluid | None,
    first_token_us: int | None,
) -> dict[str, Length | None]:
    """Return time since the onset by each of `DEFINITIONS`, None where it was not seen or cannot be told.

    `until_us`: where the next burst begins. `first_token_us`: the marginal unit's first token, where answers name their
    unit; where they do not, the platform's word for it holds, which is less exact. Bounds hold those of the onset and
    of the instant itself.
    """
    onset = found.onset
    if onset is None:
        return dict.fromkeys(DEFINITIONS)
    ready = [a for a in found.anchors if a.anchor == "in_service"]
    last = max(ready, key=lambda a: a.at_us, default=None)
    asked = (found.units_desired or 0) - (found.units_before or 0)
    every = last if len(ready) >= asked else found.in_service
    slo = slo_recovered(timings, onset.at_us, until_us, objective)
    window = None if found.in_service is None else _ends(found.in_service)
    served = next(
        (_ends(a) for a in found.anchors if (a.anchor, a.unit_id) == ("first_served", found.marginal_unit)), None
    )
    # Others than this replay may have asked it before.
    if first_token_us is not None and (served is None or served[2] is None or served[2] >= first_token_us):
        served = (first_token_us, first_token_us, first_token_us)
    return {
        "in_service": None if found.time_to_capacity_us is None or window is None else _since(onset, *window),
        "all_in_service": None if every is None or found.censored else _since(onset, *_ends(every)),
        "capacity_covers_demand": _covers(onset, found.units_wanted, capacity),
        "first_served": None if served is None else _since(onset, *served),
        "backlog_drained": None
        if queue is None or queue.drained_us is None
        else _since(onset, *[queue.drained_us] * 3),
        "slo_recovered": None if slo is None else _since(onset, *slo),
    }  # fmt: skip


def _ends(anchor: AnchorValue) -> tuple[int | None, int, int | None]:
    return anchor.lo_us, anchor.at_us, anchor.hi_us


def _since(onset: Onset, lo_us: int | None, at_us: int, hi_us: int | None) -> Length:
    lo = at_us if lo_us is None else lo_us
    hi = at_us if hi_us is None else hi_us
    at = max(at_us - onset.at_us, 0)
    return Length(lo_us=min(max(lo - onset.hi_us, 0), at), at_us=at, hi_us=max(hi - onset.lo_us, at))


def _covers(onset: Onset, wanted: int | None, capacity: Sequence[cap.Step]) -> Length | None:
    """Return when so many units were ready as the demand needed; None: never, or the need is unknown."""
    if wanted is None:
        return None
    step = next((s for s in capacity if s.at_us >= onset.at_us and s.units >= wanted), None)
    if cap.units_at(capacity, onset.at_us) >= wanted:
        return Length(lo_us=0, at_us=0, hi_us=max(onset.hi_us - onset.lo_us, 0))
    return None if step is None else _since(onset, step.lo_us, step.at_us, step.hi_us)


def attainment(timings: pl.DataFrame, objective: Objective) -> pl.Series:
    """Return which requests got what they should, as a mask; one without a good end did not."""
    first = measure_us(timings, "ttft_from_due").fill_null(objective.ttft_us + 1)
    return (timings["outcome"] == "ok") & (first <= objective.ttft_us)


def slo_recovered(
    timings: pl.DataFrame, onset_us: int, until_us: int | None, objective: Objective
) -> tuple[int, int, int] | None:
    """Return (lo, at, hi) of the instant from which requests met the objective again; None: they never did.

    Requests are judged by when they were due, in windows of ten seconds from the onset on; the first of two good
    windows after the last bad one counts, so that a lull amid the damage is no recovery. Without a bad window users
    never noticed, and the instant is the onset itself.
    """
    inside = within(timings["due_us"], onset_us, until_us)
    window = ((timings["due_us"].filter(inside) - onset_us) // _WINDOW_US).alias("window")
    good = attainment(timings, objective).filter(inside).alias("good")
    judged = pl.DataFrame([window, good]).group_by("window").agg(pl.col("good").mean()).sort("window")
    bad = judged.filter(pl.col("good") < objective.share)["window"].to_list()
    if judged.is_empty():
        return None
    if not bad:
        return onset_us, onset_us, onset_us
    after = judged.filter(pl.col("window") > bad[-1])["window"].to_list()
    if len(after) < _HELD:
        return None
    at = onset_us + after[0] * _WINDOW_US
    return at - _WINDOW_US, at, at


def reached_entry(found: ScaleOutResult) -> dict[str, Any]:
    """Return the JSON object of a scale-out's definitions: seconds since onset, or null, per name."""
    return {
        name: None
        if length is None
        else {"s": length.at_us / US_PER_S, "lo_s": length.lo_us / US_PER_S, "hi_s": length.hi_us / US_PER_S}
        for name, length in found.reached.items()
    }
