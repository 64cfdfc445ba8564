"""The dispatcher over a made-up look-ahead, in virtual order: what waits, what is prepared again, what is left."""

from __future__ import annotations

from collections import deque

import gevent
import pytest

from loadgen import dispatcher as module
from loadgen import waiting
from loadgen.dispatcher import Dispatcher
from loadgen.lookahead import Prepared
from loadgen.plan import PlannedRequest
from loadgen.turns import Turns
from traces.clock import ClientClock


class LookAhead:
    """Has everything ready from the start."""

    def __init__(self, *items: Prepared) -> None:
        self.queue = deque(items)
        self.renewed: list[int] = []
        self.error: Exception | None = None

    def start(self) -> None:
        pass

    stop = start

    def peek(self):
        return self.queue[0] if self.queue else None

    def take(self):
        return self.queue.popleft()

    @property
    def finished(self):
        return not self.queue

    def due_before(self, offset_us, limit):
        return 0

    def again(self, item):
        if self.error is not None:
            raise self.error
        self.renewed.append(item.request.row_id)
        return item._replace(wire=b"again", prepared_us=10**12)


def item(row_id: int, due_us: int = 0, *, prepared_us: int = 0, **more) -> Prepared:
    request = PlannedRequest(row_id=row_id, due_us=due_us, input_tokens=1, output_tokens=1, **more)
    return Prepared(request, b"wire", prepared_us, due_us)


@pytest.fixture
def run():
    """Run a dispatcher whose requests take as long as told (s); returns it with (row, wire, lateness) as sent."""

    def go(lookahead: LookAhead, takes_s: float = 0.02, **more):
        clock, sent = ClientClock(), []
        t0 = clock.now_us()

        def send(prepared: Prepared) -> None:
            sent.append((prepared.request.row_id, prepared.wire, prepared.predecessor_late_us))
            gevent.sleep(takes_s)

        made = Dispatcher(
            lookahead,
            elapsed_us=lambda: clock.now_us() - t0,
            send=send,
            ensure=lambda _: None,
            turns=Turns(0),
            **more,
        )
        try:
            made.run()
        finally:
            made.drain(5, gevent.event.Event())
        return made, sent

    return go


def test_a_turn_goes_when_the_one_before_it_has_ended_and_others_do_not_wait(run):
    lookahead = LookAhead(item(0), item(1, 1000, parent_row=0), item(2, 2000), item(3, 3000, parent_row=1))
    made, sent = run(lookahead)
    assert [row for row, *_ in sent] == [0, 2, 1, 3]
    assert [late is None for *_, late in sent] == [True, True, False, False]
    assert sent[3][2] > sent[2][2] > 0
    assert (made.left, made.started, lookahead.renewed) == ([], 4, [])


def test_bytes_beyond_the_limit_are_given_up_and_made_again(run, monkeypatch):
    monkeypatch.setattr(waiting, "_WAITING_BYTES", 6)
    lookahead = LookAhead(item(0), item(1, 10, parent_row=0), item(2, 20, parent_row=0))
    _, sent = run(lookahead)
    assert [(row, wire) for row, wire, _ in sent] == [(0, b"wire"), (1, b"wire"), (2, b"again")]
    assert lookahead.renewed == [2]


def test_an_old_signature_is_made_again(run, monkeypatch):
    monkeypatch.setattr(module, "_FRESH_US", 1_000_000)
    lookahead = LookAhead(item(0, prepared_us=0), item(1, 10, prepared_us=-2_000_000, parent_row=0))
    run(lookahead)
    assert lookahead.renewed == [1]


def test_a_turn_that_cannot_be_made_again_ends_the_run_and_is_left(run, monkeypatch):
    monkeypatch.setattr(module, "_FRESH_US", 1_000_000)
    lookahead = LookAhead(item(0), item(1, 10, prepared_us=-2_000_000, parent_row=0), item(2, 20, parent_row=1))
    lookahead.error = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        run(lookahead)


def test_turns_still_waiting_at_the_end_are_left(run):
    lookahead = LookAhead(item(0), item(1, 10, parent_row=0), item(2, 20, parent_row=1))
    made, sent = run(lookahead, takes_s=0.5, give_up_us=100_000)
    assert [row for row, *_ in sent] == [0]
    assert sorted(left.request.row_id for left in made.left) == [1, 2]
    assert made.stop_reason == "predecessor_unfinished"


def test_a_turn_that_is_due_after_the_end_of_the_run_is_left(run):
    lookahead = LookAhead(item(0), item(1, 10, parent_row=0, think_us=60_000_000))
    made, sent = run(lookahead, give_up_us=100_000)
    assert [row for row, *_ in sent] == [0]
    assert [left.request.row_id for left in made.left] == [1]
