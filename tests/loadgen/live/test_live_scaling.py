"""What the live page says of scale-outs, held against made-up truths and against the analysis."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.analyse import analyse_run
from loadgen.live.scaling import scaling
from loadgen.live.sightings import Seen, SightingReader
from loadgen.live.units import IN_SERVICE, unit_of
from tests.analysis.run_builder import Case, Unit, after_case, build
from traces.run import RunDir

S = 1_000_000


def seen(anchor, at_s=None, *, lo_s=None, unit=None, scaling_id=None, took_s=None, source="x", **detail):
    return Seen(
        source=source,
        native_id=f"{anchor}{at_s}{unit}{scaling_id}{detail}",
        anchor=anchor,
        scaling_id=scaling_id,
        unit_id=unit,
        lo_us=None if at_s is None else round((at_s if lo_s is None else lo_s) * S),
        hi_us=None if at_s is None else round(at_s * S),
        duration_us=None if took_s is None else round(took_s * S),
        detail=detail,
    )


def read(path):
    run = RunDir.open(path)
    manifest = run.manifest()
    reader = SightingReader(run, manifest.clock, manifest.t0_us)
    assert reader.poll()
    assert not reader.poll(), "nothing new, nothing read"
    return scaling(reader.seen(), reader.units_at_start)


@pytest.mark.parametrize("case", [Case(), Case(time_scale=20.0), after_case(time_scale=20.0), Case(activities=False)])
def test_it_agrees_with_the_analysis(tmp_path, case):
    path = build(tmp_path / "run", case)
    (found,) = read(path).scale_outs
    (full,) = analyse_run(path).scale_outs
    zero = RunDir.open(path).manifest().clock.to_endpoint_us(RunDir.open(path).manifest().t0_us)
    assert abs(found.decision_us - (full.decision.at_us - zero)) <= 6 * S
    assert found.capacity_us is not None
    assert abs(found.capacity_us - (full.in_service.at_us - zero)) <= 6 * S
    assert {unit.unit_id for unit in found.units} == {unit.name for unit in case.units}
    told = {row.phase: row for row in full.phases if row.parent is None}
    marginal = next(unit for unit in found.units if unit.unit_id == full.marginal_unit)
    for phase in marginal.phases:
        if phase.name in told and not phase.inside:
            assert abs((phase.end_us - phase.start_us) - told[phase.name].duration_us) <= 8 * S


def test_capacity_rises_when_the_units_come(tmp_path):
    case = Case()
    found = read(build(tmp_path / "run", case))
    assert [level.units for level in found.levels] == [1, 2, 3]
    truth = sorted(case.times(unit)["in_service"] for unit in case.units)
    for level, at_s in zip(found.levels[1:], truth, strict=True):
        assert level.lo_us <= at_s * S + S
        assert at_s * S - S <= level.at_us <= (at_s + 6) * S


def test_a_scale_out_is_followed_from_alarm_to_capacity():
    story = [
        (seen("alarm", 90), lambda s: (s.alarm_us, len(s.scale_outs)) == (90 * S, 0)),
        (
            seen("decision", 91, scaling_id="a", desired=3),
            lambda s: [(u.unit_id, u.now) for u in s.scale_outs[0].units] == [(None, "provisioning+pull")] * 2,
        ),
        (
            seen("container_started", 500, unit="i-1"),
            lambda s: (
                [(u.unit_id, u.now) for u in s.scale_outs[0].units] == [("i-1", "start"), (None, "provisioning+pull")]
            ),
        ),
        (seen("container_started", 510, unit="i-2"), lambda s: [u.now for u in s.scale_outs[0].units] == ["start"] * 2),
        (seen("ready", 570, unit="i-1"), lambda s: s.scale_outs[0].units[0].now == "registration"),
        (
            seen("in_service", 580, lo_s=575, **{"from": 1, "to": 2}),
            lambda s: [u.now for u in s.scale_outs[0].units] == [IN_SERVICE, "start"],
        ),
        (
            seen("in_service", 600, lo_s=595, **{"from": 2, "to": 3}),
            lambda s: (
                [u.now for u in s.scale_outs[0].units] == [IN_SERVICE] * 2
                and s.scale_outs[0].capacity_us == 600 * S
                and [level.units for level in s.levels] == [1, 2, 3]
            ),
        ),
    ]
    so_far = []
    for sighting, holds in story:
        so_far.append(sighting)
        found = scaling(so_far, 1)
        assert holds(found), (sighting, found)


def test_a_platform_that_tells_all_phases_has_them_apart():
    rows = [
        seen("launched", 40, unit="n"),
        seen("pull_started", 41, unit="n"),
        seen("pull_finished", 90, unit="n"),
        seen("container_started", 91, unit="n"),
        seen("load_started", 95, unit="n"),
        seen("load_finished", 110, unit="n"),
        seen("ready", 120, unit="n"),
        seen("in_service", 125, unit="n"),
    ]
    unit = unit_of("n", 10 * S, rows)
    assert [(p.name, p.start_us // S, p.end_us // S) for p in unit.phases if not p.inside] == [
        ("provisioning", 10, 40),
        ("pull", 40, 90),
        ("start", 90, 120),
        ("registration", 120, 125),
    ]
    assert [(p.name, p.start_us // S, p.end_us // S) for p in unit.phases if p.inside] == [("weights", 95, 110)]
    assert unit.now == IN_SERVICE


@given(
    st.lists(st.sampled_from(["launched", "pull_finished", "container_started", "ready", "in_service"]), unique=True)
)
def test_phases_lie_end_to_end_whatever_is_seen(anchors):
    times = {"launched": 20, "pull_finished": 50, "container_started": 60, "ready": 80, "in_service": 85}
    unit = unit_of("u", 10 * S, [seen(anchor, times[anchor], unit="u") for anchor in anchors])
    tops = [phase for phase in unit.phases if not phase.inside]
    assert tops[0].start_us == 10 * S
    assert all(a.end_us == b.start_us for a, b in pairwise(tops))
    assert (tops[-1].end_us is None) == ("in_service" not in anchors)
    assert unit.now == (IN_SERVICE if "in_service" in anchors else tops[-1].name)


def test_a_refused_step_is_none_and_a_second_step_joins_the_first():
    rows = [
        seen("decision", 10, scaling_id="a", desired=2, status_code="Successful"),
        seen("decision", 20, scaling_id="b", desired=5, status_code="Failed"),
        seen("decision", 30, scaling_id="c", desired=4, status_code="InProgress"),
    ]
    (found,) = scaling(rows, 1).scale_outs
    assert (found.units_before, found.desired, len(found.units), found.capacity_us) == (1, 4, 3, None)
    arrived = [*rows, seen("in_service", 60, lo_s=55, **{"from": 1, "to": 4})]
    again = [*arrived, seen("decision", 200, scaling_id="d", desired=6, **{"from": 4})]
    assert [s.desired for s in scaling(again, 1).scale_outs] == [4, 6]
    fallen = [*arrived, seen(None, 100, lo_s=95, field="CurrentInstanceCount", **{"from": 4, "to": 1})]
    assert [level.units for level in scaling(fallen, 1).levels] == [1, 4, 1]


def test_a_shard_that_was_merged_is_not_counted_twice(tmp_path):
    path = build(tmp_path / "run", Case(units=[Unit("i-0aaa")]))
    run = RunDir.open(path)
    manifest = run.manifest()
    reader = SightingReader(run, manifest.clock, manifest.t0_us)
    reader.poll()
    before = {msgspec.json.encode(row) for row in reader.seen()}
    (shard,) = run.shards("observations")
    (path / "observations" / "other-000001.parquet").write_bytes(shard.read_bytes())
    run.compact("observations")
    reader.poll()
    assert {msgspec.json.encode(row) for row in reader.seen()} == before
