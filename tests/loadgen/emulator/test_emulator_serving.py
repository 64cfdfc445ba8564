import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.emulator.agenda import Agenda
from loadgen.emulator.config import Serving
from loadgen.emulator.serving import Admitted, Finished, ServingModel, TimedOut

MS = 1000
S = 1_000_000


class Bench:
    """A serving model on an agenda of its own, with what it emitted."""

    def __init__(self, units=1, seed=0, **config):
        self.agenda = Agenda(0)
        self.effects = []
        self.first = []
        self.serving = ServingModel(
            Serving(prefill_per_1000_tokens_s=0, **config),
            seed,
            self.agenda,
            emit=self.effects.append,
            changed=lambda: None,
            first_served=lambda unit: self.first.append((unit, self.agenda.now_us)),
        )
        for k in range(units):
            self.serving.join(f"u{k}")

    def arrive(self, at_us, name, tokens, input_tokens=100):
        self.agenda.advance(at_us)
        self.serving.arrive(name, input_tokens, tokens)

    def of(self, kind):
        return {effect.request_id: effect.at_us for effect in self.effects if isinstance(effect, kind)}


def test_one_request_alone_takes_prefill_and_the_time_of_its_tokens():
    bench = Bench()
    bench.arrive(0, "a", 11)
    bench.agenda.advance(S)
    assert bench.of(Finished) == {"a": 100 * MS + 10 * 40 * MS}
    assert bench.first == [("u0", 100 * MS)]


def test_prefill_grows_with_the_prompt():
    bench = Bench()
    bench.serving = ServingModel(
        Serving(), 0, bench.agenda, emit=bench.effects.append, changed=lambda: None, first_served=lambda _: None
    )
    bench.serving.join("u0")
    bench.serving.arrive("a", 4000, 1)
    bench.agenda.advance(10 * S)
    assert bench.of(Finished) == {"a": 1100 * MS}


def test_a_full_batch_is_slower():
    bench = Bench()
    for name in "abcd":
        bench.arrive(0, name, 11)
    bench.agenda.advance(S)
    assert set(bench.of(Finished).values()) == {100 * MS + 10 * 50 * MS}


def test_a_change_of_batch_changes_the_pace_of_what_is_left():
    bench = Bench(slots_per_instance=2, prefill_base_s=0, token_s=0.1, token_full_batch_s=0.2)
    bench.arrive(0, "a", 11)
    bench.arrive(500 * MS, "b", 3)
    # a gave 5 tokens' time alone, then shares: b's two further tokens take 0.4 s, in which a advances by two.
    bench.agenda.advance(10 * S)
    assert bench.of(Finished) == {"b": 900 * MS, "a": 900 * MS + 300 * MS}


def test_the_queue_is_first_come_first_served_and_gives_up_after_its_time():
    bench = Bench(slots_per_instance=1, queue_timeout_s=2)
    bench.arrive(0, "a", 23)  # 0.1 + 22 x 0.04 = 0.98 s
    bench.arrive(0, "b", 23)
    bench.arrive(0, "c", 23)
    bench.arrive(0, "d", 23)
    bench.agenda.advance(10 * S)
    assert bench.of(Admitted) == {"a": 0, "b": 980 * MS, "c": 1960 * MS}
    assert bench.of(TimedOut) == {"d": 2 * S}


def test_a_cancelled_request_frees_its_slot_and_a_queued_one_its_place():
    bench = Bench(slots_per_instance=1)
    bench.arrive(0, "a", 1000)
    bench.arrive(0, "b", 1)
    bench.arrive(0, "c", 1)
    bench.serving.cancel("b")
    bench.agenda.advance(50 * MS)
    bench.serving.cancel("a")
    bench.agenda.advance(S)
    assert bench.of(Finished) == {"c": 150 * MS}
    assert bench.serving.outstanding == 0


def test_the_least_busy_unit_is_taken():
    bench = Bench(units=3)
    for name in "abcdef":
        bench.arrive(0, name, 100)
    taken = [effect.unit_id for effect in bench.effects if isinstance(effect, Admitted)]
    assert sorted(taken) == ["u0", "u0", "u1", "u1", "u2", "u2"]


def test_random_routing_is_seeded_and_uses_every_unit():
    def units(seed):
        bench = Bench(units=3, seed=seed, routing="RANDOM")
        for k in range(9):
            bench.arrive(0, str(k), 100)
        return [effect.unit_id for effect in bench.effects if isinstance(effect, Admitted)]

    assert units(1) == units(1) != units(2)
    assert set(units(1)) == {"u0", "u1", "u2"}


def test_a_leaving_unit_finishes_what_it_has_and_takes_no_more():
    bench = Bench(units=2, slots_per_instance=1)
    bench.arrive(0, "a", 3)
    bench.arrive(0, "b", 3)
    bench.serving.leave("u1")
    bench.arrive(0, "c", 3)
    bench.agenda.advance(S)
    units = {effect.request_id: effect.unit_id for effect in bench.effects if isinstance(effect, Admitted)}
    assert units == {"a": "u0", "b": "u1", "c": "u0"}
    assert [unit.unit_id for unit in bench.serving.units] == ["u0"]


def test_tokens_come_when_it_says_they_are_due():
    bench = Bench()
    bench.arrive(0, "a", 10)
    assert bench.serving.tokens_by("a", 99 * MS) == 0
    assert bench.serving.token_due_us("a", 1) == 100 * MS
    bench.agenda.advance(100 * MS)
    for number in range(1, 10):
        due = bench.serving.token_due_us("a", number)
        assert due == 100 * MS + (number - 1) * 40 * MS
        assert bench.serving.tokens_by("a", due) == number
        assert bench.serving.tokens_by("a", due - 1) == number - 1 or number == 1
    assert bench.serving.tokens_by("nobody", 0) is None


arrivals = st.lists(st.tuples(st.integers(0, 3 * S), st.integers(1, 60), st.booleans()), min_size=1, max_size=25)


@given(arrivals, st.integers(1, 3), st.integers(1, 4), st.lists(st.integers(0, 200 * S), max_size=20))
def test_everyone_is_answered_once_and_how_time_is_cut_changes_nothing(requests, units, slots, cuts):
    def play(stops):
        bench = Bench(units=units, slots_per_instance=slots, queue_timeout_s=5)
        entries = [(at, f"r{k}", tokens, drop) for k, (at, tokens, drop) in enumerate(requests)]
        for at, name, tokens, drop in sorted(entries):
            for stop in stops:
                bench.agenda.advance(min(stop, at))
            bench.arrive(at, name, tokens)
            if drop:
                bench.serving.cancel(name)
        for stop in sorted(stops):
            bench.agenda.advance(stop)
        bench.agenda.advance(10_000 * S)
        return bench

    bench = play([])
    kept = {f"r{k}" for k, (_, _, drop) in enumerate(requests) if not drop}
    assert bench.of(Finished).keys() | bench.of(TimedOut).keys() == kept
    assert not bench.of(Finished).keys() & bench.of(TimedOut).keys()
    assert bench.serving.outstanding == 0
    assert not any(unit.jobs for unit in bench.serving.units)
    assert play(cuts).effects == bench.effects


@given(arrivals)
def test_no_request_beats_the_fastest_pace_or_the_slots(requests):
    bench = Bench(slots_per_instance=3, queue_timeout_s=10_000)
    at_of = {}
    for k, (at, tokens, _) in enumerate(sorted(requests)):
        bench.arrive(at, f"r{k}", tokens)
        at_of[f"r{k}"] = (at, tokens)
        assert len(bench.serving.units[0].jobs) <= 3
    bench.agenda.advance(10_000 * S)
    admitted, finished = bench.of(Admitted), bench.of(Finished)
    for name, (at, tokens) in at_of.items():
        assert admitted[name] >= at
        took = finished[name] - admitted[name] - 100 * MS
        assert (tokens - 1) * 40 * MS - 1 <= took <= (tokens - 1) * 50 * MS + 1


def test_an_answer_has_at_least_one_token():
    bench = Bench()
    bench.arrive(0, "a", 0)
    bench.agenda.advance(S)
    assert bench.of(Finished) == {"a": 100 * MS}
    assert bench.effects[0] == Admitted(request_id="a", at_us=0, unit_id="u0")
    assert pytest.approx(40_000) == bench.serving.units[0].token_us()
