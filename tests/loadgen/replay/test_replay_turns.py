"""Turns of a conversation, pure and in whole replays, and clients that leave before the answer is complete."""

from __future__ import annotations

import subprocess

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.plan import PlannedRequest, plan_rows, traits
from loadgen.scenario import ReplaySection
from loadgen.turns import Start, Turns
from traces.schema import Trace


def planned(row_id: int, due_us: int = 0, **more) -> PlannedRequest:
    return PlannedRequest(row_id=row_id, due_us=due_us, input_tokens=1, output_tokens=1, **more)


def test_a_turn_is_due_at_its_arrival_or_after_the_end_before_it_and_the_think_time():
    turns = Turns(longest_think_us=1000)
    assert turns.arrive(planned(0), "a") == Start(0, None)
    assert turns.arrive(planned(1, 10, parent_row=0, think_us=5), "b") is None
    assert turns.arrive(planned(2, 10, parent_row=0), "c") is None
    assert turns.waiting() == ["b", "c"]
    assert turns.ended(0, 100) == [("b", Start(105, 95)), ("c", Start(100, 90))]
    assert not turns.is_waiting
    assert turns.arrive(planned(3, 104, parent_row=0, think_us=1000), "d") == Start(1100, 996)
    assert turns.arrive(planned(4, 2000, parent_row=0, think_us=1000), "e") == Start(2000, 0)


def test_orphans_go_at_their_arrival():
    turns = Turns(0)
    assert turns.arrive(planned(5, 7, parent_row=3), "x") == Start(7, None)
    assert turns.arrive(planned(6, 7, parent_row=6), "its own parent") == Start(7, None)
    assert turns.arrive(planned(7, 8, parent_row=9), "a parent that arrives later") == Start(8, None)


def test_without_a_parent_the_session_tells_the_turn_before():
    turns = Turns(0)
    assert turns.arrive(planned(0, session_id="s"), "a") == Start(0, None)
    assert turns.arrive(planned(1, session_id="t"), "b") == Start(0, None)
    assert turns.arrive(planned(2, session_id="s"), "c") is None
    assert turns.arrive(planned(3, session_id="s"), "d") is None
    assert turns.ended(0, 50) == [("c", Start(50, 50))]
    assert turns.ended(2, 90) == [("d", Start(90, 90))]


def test_rows_of_one_turn_branch_off_the_same_answer():
    turns = Turns(0)
    assert turns.arrive(planned(0, session_id="s", turn=2), "a") == Start(0, None)
    assert turns.arrive(planned(1, session_id="s", turn=2), "b") == Start(0, None)
    assert turns.arrive(planned(2, session_id="s", turn=3), "c") is None


def test_a_row_whose_turn_before_ended_long_ago_is_not_an_orphan():
    turns = Turns(10)
    turns.arrive(planned(0), "a")
    turns.ended(0, 100)
    turns.arrive(planned(1, 100), "b")
    turns.ended(1, 100_000)  # by now the end of row 0 is forgotten
    assert turns.arrive(planned(2, 200_000, parent_row=0), "c") == Start(200_000, 0)


def test_memory_does_not_grow_with_the_trace():
    turns = Turns(longest_think_us=500)
    held = []
    for row in range(20_000):
        now = row * 100
        start = turns.arrive(planned(row, now, session_id=f"s{row // 3}", think_us=row % 500), row)
        if start is not None:
            turns.ended(row, now + 150)
        held.append(turns.held)
    assert max(held[10_000:]) <= max(held[:10_000]) <= 40


@st.composite
def conversations(draw):
    """Rows with arrivals, parents among earlier rows, think times, and how long each takes to answer."""
    count = draw(st.integers(1, 25))
    arrivals = sorted(draw(st.lists(st.integers(0, 200), min_size=count, max_size=count)))
    parents = [draw(st.none() | st.integers(0, i - 1)) if i else None for i in range(count)]
    thinks = draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
    answers = draw(st.lists(st.integers(0, 100), min_size=count, max_size=count))
    return arrivals, parents, thinks, answers


@given(conversations())
def test_any_conversation_runs_as_defined(given_):
    """Against the definition, by recursion over the whole trace; ends are fed in time order."""
    arrivals, parents, thinks, answers = given_
    turns = Turns(max(thinks))
    starts: dict[int, Start] = {}
    ends: list[tuple[int, int]] = []  # (instant, row), not yet told

    def begin(row: int, start: Start) -> None:
        starts[row] = start
        ends.append((start.due_us + answers[row], row))

    def until(now: int) -> None:
        while ends and min(ends)[0] < now:
            instant, row = min(ends)
            ends.remove((instant, row))
            for follower, start in turns.ended(row, instant):
                begin(follower, start)

    for row, arrival in enumerate(arrivals):
        until(arrival)
        start = turns.arrive(planned(row, arrival, parent_row=parents[row], think_us=thinks[row]), row)
        if start is not None:
            begin(row, start)
    until(10**9)

    due: list[int] = []
    for row, parent in enumerate(parents):
        after = 0 if parent is None else due[parent] + answers[parent] + thinks[row]
        due.append(max(arrivals[row], after))
    assert {row: start.due_us for row, start in starts.items()} == dict(enumerate(due))
    late = {row: None if parents[row] is None else due[row] - arrivals[row] for row in range(len(due))}
    assert {row: start.late_us for row, start in starts.items()} == late
    assert not turns.is_waiting


def test_the_plan_scales_think_times_and_cancellations_and_knows_the_trace():
    data = {name: [None, None] for name in pl.Schema(Trace)}
    data |= {"row_id": [0, 1], "arrival_us": [0, 40], "session_id": [None, "s"], "think_us": [None, 4000]}
    data |= {"parent_row": [None, 0], "cancel_after_us": [None, 2_000_000], "cancel_after_tokens": [3, None]}
    frame = pl.DataFrame(data, schema=pl.Schema(Trace))
    first, second = plan_rows(frame, ReplaySection(), 20.0)
    assert (first.think_us, first.parent_row, first.cancel_after_tokens, first.cancel_after_us) == (0, None, 3, None)
    assert (second.think_us, second.parent_row, second.session_id, second.cancel_after_us) == (200, 0, "s", 100_000)
    assert traits(frame.lazy()).has_turns
    assert traits(frame.lazy()).longest_think_us == 4000
    assert not traits(
        frame.lazy()
        .drop("session_id", "parent_row")
        .with_columns(session_id=pl.lit(None, pl.String), parent_row=pl.lit(None, pl.Int64))
    ).has_turns


def spans(rows: pl.DataFrame, later: str, earlier: str) -> list[int]:
    return ((rows[later] - rows[earlier]).dt.total_microseconds()).to_list()


@pytest.mark.e2e
def test_a_conversation_keeps_its_order_and_its_think_times(server, trace, replay, rows):
    """Each answer takes half a second; turns recorded 100 ms apart follow one another, other rows do not wait."""
    made = trace(
        [0, 100, 200, 210, 220],
        session_id=["s", "s", "s", None, "t"],
        turn=[1, 2, 3, None, 2],
        parent_row=[None, 0, 1, None, 77],
        think_us=[None, None, 120_000, None, None],
    )
    code, summary, _ = replay(made, server.url("slow"))
    assert code in {0, 5}, "a loaded machine may be late; the order holds all the same"
    found = rows()
    assert summary["requests"]["ok"] == 5
    assert found["predecessor_late_us"].is_null().to_list() == [True, False, False, True, True]
    due, done = found["due"], found["done"]
    assert due[1] >= done[0]
    assert (due[2] - done[1]).total_seconds() >= 0.12
    t0 = due[0]
    late = found["predecessor_late_us"].to_list()
    assert late[1] == round((due[1] - t0).total_seconds() * 1e6) - 100_000, (
        "due is the arrival plus the inherited delay"
    )
    assert late[2] > 800_000
    assert (due[3] - t0).total_seconds() == pytest.approx(0.21, abs=1e-6)
    assert min(spans(found, "sent", "due")) >= 0
    assert found["sent"][4] < found["done"][0], "an orphan goes at its arrival"


@pytest.mark.e2e
@pytest.mark.parametrize("behaviour", ["503", "truncated"])
def test_a_failed_turn_does_not_hold_up_the_next(server, trace, replay, rows, behaviour):
    made = trace([0, 10, 20], session_id=["s"] * 3, turn=[1, 2, 3], parent_row=[None, 0, 1])
    replay(made, server.url(behaviour))
    found = rows()
    assert found["sent"].null_count() == 0
    assert (found["sent"][1:] >= found["done"][:2]).all()


@pytest.mark.e2e
def test_turns_that_wait_at_the_end_are_accounted_for(server, trace, command, rows, tmp_path):
    made = trace([0, 10, 20], session_id=["s"] * 3, turn=[1, 2, 3], parent_row=[None, 0, 1])
    line = command(made, server.url("hang"))
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(scenario.read_text() + 'drain = "300ms"\n')
    subprocess.run(line, cwd=tmp_path, capture_output=True, timeout=30, check=False)
    found = rows()
    assert found["outcome"].to_list() == ["cancelled", "not_sent", "not_sent"]
    assert found["error_kind"].to_list() == ["drain_timeout", "predecessor_unfinished", "predecessor_unfinished"]


@pytest.mark.e2e
def test_clients_leave_as_recorded(server, trace, replay, rows):
    made = trace(
        [0, 10, 20, 30],
        output_tokens=60,
        cancel_after_tokens=[3, None, None, 60],
        cancel_after_us=[None, 60_000, None, None],
    )
    _, summary, _ = replay(made, server.url("ok"))
    found = rows()
    assert found["outcome"].to_list() == ["cancelled", "cancelled", "ok", "ok"] or found["outcome"].to_list() == [
        "cancelled",
        "cancelled",
        "ok",
        "cancelled",
    ]  # whoever leaves after the last token may or may not see the end
    assert found["error_kind"].to_list()[:3] == ["as_recorded", "as_recorded", None]
    assert 3 <= found["chunks"][0] < 60
    assert spans(found, "done", "sent")[1] + 2000 >= 60_000
    assert found["chunks"][1] is None or found["chunks"][1] < 60
    assert summary["requests"]["cancelled"] == 4 - summary["requests"]["ok"]
    assert summary["requests"]["failed"] == {}
    leaving = [row for row in server.lines() if row.get("left")]
    assert len(leaving) >= 2, "the server sees the connection go"
