"""Evidence on one unit's scale-out → bounds and best values of its anchors.

Bounds come from a simple temporal network of intervals, reported lengths and causal order. Evidence enters best first
(`RANKS`), so that what contradicts better evidence is dropped and reported, never clipped in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from analysis.network import ContradictionError, Network
from analysis.records import AnchorValue, Finding, Length, Sighting
from traces.clock import EndpointClock
from traces.schema import REPORTED_SPANS
from traces.units import US_PER_MS, US_PER_S, format_duration

PERIOD_CLOSED: Final = "period_closed"
"""End of the first breaching metric period: no anchor of the tables, but where emission ends."""
FIRST_DECISION: Final = "first_decision"
"""Decision of the first of several scaling activities of one scale-out."""

NODES: Final = (
    "onset", "breach", PERIOD_CLOSED, "alarm", FIRST_DECISION, "decision", "launched", "pull_started",
    "pull_finished", "download_started", "download_finished", "container_started", "load_started", "load_finished",
    "ready", "in_service", "first_served",
)  # fmt: skip

CAUSAL: Final = (
    ("onset", "breach"), ("breach", PERIOD_CLOSED), (PERIOD_CLOSED, "alarm"), ("alarm", FIRST_DECISION),
    (FIRST_DECISION, "decision"), ("decision", "launched"), ("launched", "pull_started"),
    ("pull_started", "pull_finished"), ("launched", "download_started"), ("download_started", "download_finished"),
    ("pull_finished", "container_started"), ("container_started", "load_started"),
    ("load_started", "load_finished"), ("load_finished", "ready"), ("container_started", "ready"),
    ("ready", "in_service"), ("ready", "first_served"),
)  # fmt: skip
"""What holds on every platform."""

TEMPLATES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "sagemaker": (("download_finished", "container_started"),),
}
"""What holds on one platform by its own description; weaker than an event that says otherwise."""

SKEW_US: Final = {
    "service": (100 * US_PER_MS, 100 * US_PER_MS),
    "instance": (500 * US_PER_MS, 500 * US_PER_MS),
    "node": (500 * US_PER_MS, 500 * US_PER_MS),
    "client": (US_PER_MS, US_PER_MS),
}
"""How far (before, after; endpoint µs) the truth may lie outside of a stamp of each clock. Assumptions: service
clocks agree within 100 ms; instances and nodes are disciplined within 500 ms. Stamps of whole seconds are intervals.
`client` adds the error of the map between the clocks, times `time_scale`."""

FIRST_LINE_LAG_US: Final = 2 * US_PER_S
"""Assumed longest time between the start of a container's process and the first line in its log."""

FOLLOWS_US: Final = 5 * US_PER_S
"""Assumed longest time by which the scaled thing's own status and desired count follow the scaler's decision."""
FOLLOWERS: Final = (
    "sagemaker:describe-endpoint", "eventbridge", "ecs:describe-services", "autoscaling:groups",
    "kubernetes:deployment-events",
)  # fmt: skip
"""Sources that tell the decision by what followed from it."""
STATED_SLACK_US: Final = 100 * US_PER_MS
"""Assumed rounding of a stated length that comes without a resolution."""

RANKS: Final = {"instant": 1, "bracket": 2, "reported": 3, "template": 4, "polled": 5, "derived": 6, "prior": 7}


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One constraint, already widened by its clock's allowance. With `since` it is about a length, else an instant.

    `at_us` is the single value this evidence would give for the anchor (or the length).
    """

    rank: int
    anchor: str
    source: str
    native_id: str
    method: str
    lo_us: int | None
    hi_us: int | None
    at_us: int | None = None
    since: str | None = None

    def sort_key(self) -> tuple[int, str, str, str, int, int]:
        """Best first; the rest only makes the order total."""
        return (self.rank, self.anchor, self.source, self.native_id, self.lo_us or 0, self.hi_us or 0)


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A unit's reconciled anchors. `network` is closed and holds the bounds of every instant and difference."""

    unit_id: str | None
    anchors: dict[str, AnchorValue]
    lengths: dict[str, Length]
    network: Network
    findings: tuple[Finding, ...]

    def at(self, anchor: str) -> int | None:
        """The best value of an anchor, None when nothing dates it."""
        found = self.anchors.get(anchor)
        return None if found is None else found.at_us

    def length(self, earlier: str, later: str) -> Length | None:
        """The length between two dated anchors with its hard bounds, never below zero."""
        start, end = self.at(earlier), self.at(later)
        if start is None or end is None:
            return None
        lo, hi = self.network.difference(earlier, later)
        at = max(end - start, 0)
        return Length(
            lo_us=max(min(lo, at), 0) if lo is not None else 0, at_us=at, hi_us=max(hi, at) if hi is not None else at
        )


def skew_us(clock_name: str, clock: EndpointClock, offset_us: int = 0) -> tuple[int, int]:
    """Return how far before and after a stamp the truth may lie, in endpoint µs.

    A client-clock stamp of a compressed run is `time_scale` times less precise in endpoint time. `offset_us` is a
    measured disagreement of client and service clocks beyond what the Date header's whole seconds explain.
    """
    before, after = SKEW_US[clock_name]
    if clock_name == "client":
        error = round(max(clock.error_us, US_PER_MS) * clock.time_scale)
        before, after = error + max(offset_us, 0), error + max(-offset_us, 0)
    return before, after


def evidence_of(sighting: Sighting, clock: EndpointClock, offset_us: int = 0) -> list[Evidence]:
    """Return the constraints that one observation states: on its anchor, and on a reported length."""
    if sighting.anchor is None:
        return []
    found = []
    before, after = skew_us(sighting.clock, clock, offset_us)
    lo, hi = sighting.lo_us, sighting.hi_us
    if sighting.source == "logs:first-event":
        before += FIRST_LINE_LAG_US
    if sighting.anchor == "decision" and sighting.source in FOLLOWERS:
        before += FOLLOWS_US
    instant = lo is not None and lo == hi
    named = {"source": sighting.source, "native_id": sighting.native_id, "method": sighting.method}
    if sighting.duration_us is not None and sighting.anchor in REPORTED_SPANS:
        found.append(_reported(sighting, named))
    rank = RANKS["instant"] if instant else RANKS.get(sighting.method, RANKS["bracket"])
    if lo is not None or hi is not None:
        at = None
        if sighting.method == "polled" and lo is not None and hi is not None:
            at = (lo + hi) // 2
        elif sighting.method != "reported":
            at = hi
        found.append(
            Evidence(
                rank=rank,
                anchor=sighting.anchor,
                lo_us=None if lo is None else lo - before,
                hi_us=None if hi is None else hi + after,
                at_us=at,
                **named,
            )
        )
    if sighting.anchor == "breach" and hi is not None:
        found.append(
            Evidence(
                rank=RANKS["instant"], anchor=PERIOD_CLOSED, lo_us=hi - before, hi_us=hi + after, at_us=hi, **named
            )
        )
    return found


def _reported(sighting: Sighting, named: dict[str, str]) -> Evidence:
    assert sighting.duration_us is not None
    assert sighting.anchor is not None
    slack = sighting.resolution_us if sighting.resolution_us is not None else STATED_SLACK_US
    return Evidence(
        rank=RANKS["reported"],
        anchor=sighting.anchor,
        since=REPORTED_SPANS[sighting.anchor],
        lo_us=max(sighting.duration_us - slack, 0),
        hi_us=sighting.duration_us + slack,
        at_us=sighting.duration_us,
        **named,
    )


def pooled(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Return reported lengths that name no unit as one per (source, anchor): from the least to the most reported.

    Its value is the median; it holds for whichever of the units it was about.
    """
    groups: dict[tuple[str, str], list[Evidence]] = {}
    for item in evidence:
        if item.since is not None:
            groups.setdefault((item.source, item.anchor), []).append(item)
    result = []
    for key in sorted(groups):
        members = sorted(groups[key], key=lambda item: (item.at_us or 0, item.native_id))
        middle = members[(len(members) - 1) // 2]
        lows = [m.lo_us for m in members if m.lo_us is not None]
        highs = [m.hi_us for m in members if m.hi_us is not None]
        result.append(msgspec.structs.replace(middle, lo_us=min(lows), hi_us=max(highs)))
    return result


def reconcile(unit_id: str | None, evidence: Iterable[Evidence], platform: str) -> Timeline:
    """Return a unit's timeline from all evidence on it; the order of `evidence` does not matter."""
    network = Network(NODES)
    for earlier, later in CAUSAL:
        network.in_order(earlier, later)
    template = [
        Evidence(
            rank=RANKS["template"], anchor=later, since=earlier, lo_us=0, hi_us=None,
            source=f"the usual order on {platform}", native_id=f"{earlier}<={later}", method="prior",
        )
        for earlier, later in TEMPLATES.get(platform, ())
    ]  # fmt: skip
    kept, findings = [], []
    # What comes after capacity (recovery) has no place in the network.
    usable = {item for item in (*evidence, *template) if item.anchor in NODES}
    for item in sorted(usable, key=Evidence.sort_key):
        try:
            if item.since is None:
                network.within(item.anchor, item.lo_us, item.hi_us, item.source)
            else:
                network.apart(item.since, item.anchor, item.lo_us, item.hi_us, item.source)
            kept.append(item)
        except ContradictionError as error:
            findings.append(_contradiction(item, error, unit_id))
    anchors = _points(network, kept, unit_id)
    lengths = {
        item.anchor: Length(lo_us=item.lo_us, at_us=item.at_us, hi_us=item.hi_us)
        for item in reversed(kept)
        if item.since is not None and item.at_us is not None and item.lo_us is not None and item.hi_us is not None
    }
    return Timeline(unit_id=unit_id, anchors=anchors, lengths=lengths, network=network, findings=tuple(findings))


def _contradiction(item: Evidence, error: ContradictionError, unit_id: str | None) -> Finding:
    others = sorted(error.sources - {item.source, "causal order"}) or ["causal order"]
    about = f" of {unit_id}" if unit_id else ""
    text = (
        f"{item.source} on {item.anchor}{about} contradicts {', '.join(others)} by "
        f"{format_duration(error.excess_us)}; {item.source} is left out for it"
    )
    return Finding(code="contradiction", severity="warning", text=text)


def _points(network: Network, kept: list[Evidence], unit_id: str | None) -> dict[str, AnchorValue]:
    """Return each dated anchor's value: its best evidence's, moved into what better values leave possible."""
    fixed = network.copy()
    values: dict[str, AnchorValue] = {}
    waiting = [item for item in kept if item.at_us is not None]
    progress = True
    while progress:
        progress = False
        for item in waiting:
            assert item.at_us is not None
            if item.anchor in values:
                continue
            if item.since is None:
                wish = item.at_us
            elif item.since in values:
                wish = values[item.since].at_us + item.at_us
            else:
                continue
            lo, hi = fixed.bounds(item.anchor)
            at = wish if lo is None else max(wish, lo)
            at = at if hi is None else min(at, hi)
            fixed.within(item.anchor, at, at, item.source)
            hard_lo, hard_hi = network.bounds(item.anchor)
            values[item.anchor] = AnchorValue(
                anchor=item.anchor, unit_id=unit_id, lo_us=hard_lo, at_us=at, hi_us=hard_hi, method=item.method,
                sources=tuple(sorted(network.sources(item.anchor) - {"causal order"})),
            )  # fmt: skip
            progress = True
            break
    return values
