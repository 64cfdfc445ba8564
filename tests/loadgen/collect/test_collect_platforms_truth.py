"""200 drawn scale-outs per platform in virtual time: nothing that the collector files lies beside what happened."""

from datetime import timedelta

import msgspec
import pytest

from analysis.reconcile import evidence_of
from analysis.records import Sighting
from analysis.scaleouts import _one_line_each
from tests.loadgen.collect.virtual_platforms import Collected, collect
from traces.clock import EndpointClock, to_us

SEEDS = 200
ALWAYS = {
    "ecs": {"decision", "pull_started", "pull_finished", "container_started", "in_service", "ready", "alarm", "breach"},
    "ec2": {"decision", "launched", "in_service", "alarm", "breach"},
    "kubernetes": {"decision", "launched", "pull_started", "pull_finished", "container_started", "ready", "in_service"},
}
"""What each platform shows of every scale-out."""


def told(found: Collected) -> list[Sighting]:
    fields = Sighting.__struct_fields__
    seen = []
    for row in found.rows.values():
        known = {k: row[k] for k in fields if k in row and k != "detail"}
        bounds = {f"{side}_us": None if row[side] is None else to_us(row[side]) for side in ("lo", "hi")}
        detail = {} if row["detail"] is None else msgspec.json.decode(row["detail"])
        seen.append(msgspec.convert({**known, **bounds, "detail": detail}, Sighting))
    return seen


def outside(found: Collected) -> list[tuple]:
    """Return the evidence that the truth contradicts."""
    truth: dict[tuple[str | None, str], list[int]] = {}
    for row in found.world.model.truth():
        truth.setdefault((row.unit_id, row.anchor), []).append(row.at_us)
        truth.setdefault((None, row.anchor), []).append(row.at_us)
    seen = told(found)
    units = {s.unit_id for s in seen}
    seen = [s for s in seen if not lowers(s, seen)]
    picked = [s for unit in units for s in _one_line_each([s for s in seen if s.unit_id == unit and s.anchor])]
    wrong = []
    for s in picked:
        for e in evidence_of(s, EndpointClock()):
            at = truth.get((s.unit_id, e.anchor))
            if at is None:
                # Of the units that were there from the start no truth is kept; "the period closed" is no anchor.
                continue
            values = at
            if e.since is not None:
                values = [end - begin for end, begin in zip(at, truth[s.unit_id, e.since], strict=True)]
            if not any((e.lo_us is None or e.lo_us <= v) and (e.hi_us is None or v <= e.hi_us) for v in values):
                wrong.append((s.source, s.native_id, e.anchor, e.since, e.lo_us, values, e.hi_us))
    return wrong


def lowers(s: Sighting, seen: list[Sighting]) -> bool:
    """Tell whether a decision asks for fewer units than one before it: of those the truth says nothing."""

    def asked(d: Sighting) -> int:
        return d.detail.get("desired") or d.detail.get("to") or 0

    earlier = [d for d in seen if d.anchor == "decision" and (d.hi_us or 0) < (s.lo_us or 0)]
    return s.anchor == "decision" and any(asked(d) > asked(s) for d in earlier)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("platform", ALWAYS)
def test_every_interval_holds_the_truth(platform: str) -> None:
    scaled, wrong, missing = 0, [], []
    for seed in range(SEEDS):
        found = collect(platform, seed)
        new = {row.unit_id for row in found.world.model.truth() if row.anchor == "in_service"}
        if not new:
            continue
        scaled += 1
        wrong += [(seed, *item) for item in outside(found)]
        for unit in new:
            anchors = {row["anchor"] for row in found.rows.values() if row["unit_id"] in {None, unit}}
            missing += [(seed, unit, anchor) for anchor in ALWAYS[platform] - anchors]
    assert scaled > 0.9 * SEEDS
    assert wrong == []
    assert missing == []


def test_the_check_can_fail() -> None:
    """A row that is moved by a second lies outside."""
    found = collect("ecs", 1)
    new = {row.unit_id for row in found.world.model.truth() if row.anchor == "pull_finished"}
    key = next(k for k, row in found.rows.items() if row["anchor"] == "pull_finished" and row["unit_id"] in new)
    row = found.rows[key]
    assert outside(found) == []
    found.rows[key] = row | {side: row[side] + timedelta(seconds=1) for side in ("lo", "hi")}
    assert len(outside(found)) == 1
