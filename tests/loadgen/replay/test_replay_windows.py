"""Windows in which the client was late itself: found, joined, explained, and bounded in number."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from loadgen.summary import NO_STALLS
from loadgen.windows import find_untrusted
from traces.clock import to_datetime
from traces.schema import Request

S = 1_000_000
BEGIN = 1_790_000_000 * S


def requests(lags_ms, spacing_ms=100, not_sent=()):
    due = [to_datetime(BEGIN + round(i * spacing_ms * 1000)) for i in range(len(lags_ms))]
    sent = [None if i in not_sent else at + timedelta(milliseconds=lags_ms[i]) for i, at in enumerate(due)]
    data = {name: [None] * len(due) for name in pl.Schema(Request)}
    data |= {"row_id": list(range(len(due))), "shard": [0] * len(due), "due": due, "sent": sent}
    data |= {"outcome": ["not_sent" if i in not_sent else "ok" for i in range(len(due))], "endpoint": ["x"] * len(due)}
    data["error_kind"] = [dict(not_sent).get(i) for i in range(len(due))]
    return pl.LazyFrame(data, schema=pl.Schema(Request))


def stalls(*rows):
    names = ("begin_us", "end_us", "stall_us")
    return pl.LazyFrame([dict(zip(names, row, strict=True)) for row in rows], schema=NO_STALLS.collect_schema())


def find(frame, stalled=NO_STALLS):
    found = find_untrusted(frame, stalled, window_us=S, limit_us=50_000)
    return [((w["start_us"] - BEGIN) // S, (w["end_us"] - BEGIN) // S, w["why"]) for w in found.intervals], found.share


def test_a_punctual_run_is_trusted():
    assert find(requests([1.0] * 100)) == ([], 0.0)
    assert find(requests([])) == ([], 0.0)


def test_late_windows_that_touch_are_one_interval_with_its_worst_lag():
    lags = [1.0] * 100
    lags[23], lags[35], lags[70] = 60, 312, 51
    assert find(requests(lags)) == (
        [(2, 4, "requests went out up to 312 ms late"), (7, 8, "requests went out up to 51 ms late")],
        0.3,
    )


def test_whether_the_loop_itself_stood_still_is_told_apart():
    lags = [1.0] * 100
    lags[23], lags[70] = 60, 51
    late = find_untrusted(requests(lags), NO_STALLS, window_us=S, limit_us=50_000)
    both = find_untrusted(
        requests(lags), stalls((BEGIN + 2 * S, BEGIN + 2 * S + 1, 61_000)), window_us=S, limit_us=50_000
    )
    assert (late.stalled, both.stalled) == (False, True)


def test_one_late_request_in_a_hundred_is_within_p99():
    lags = [1.0] * 1000
    lags[5] = 500.0
    assert find(requests(lags, spacing_ms=10)) == ([], 0.0)
    lags[6] = 500.0
    assert find(requests(lags, spacing_ms=10))[0] == [(0, 1, "requests went out up to 500 ms late")]


def test_a_loop_that_stood_still_spoils_the_windows_that_it_touches():
    stalled = stalls((BEGIN + 4 * S + 900_000, BEGIN + 5 * S + 900_000, 80_000), (BEGIN, BEGIN + S - 1, 50_000))
    assert find(requests([1.0] * 100), stalled)[0] == [(4, 6, "the client's loop stood still for 80 ms")]


def test_stalls_outside_the_load_do_not_count():
    stalled = stalls((BEGIN - 9 * S, BEGIN - 8 * S, 900_000), (BEGIN + 60 * S, BEGIN + 61 * S, 900_000))
    assert find(requests([1.0] * 100), stalled) == ([], 0.0)


def test_what_was_not_sent_for_want_of_a_slot_spoils_its_window_and_a_stop_does_not():
    frame = requests([1.0] * 30, not_sent={12: "max_in_flight", 25: "interrupted", 26: "aborted", 27: "run_time"})
    assert find(frame)[0] == [(1, 2, "1 not sent")]


@given(st.lists(st.booleans(), min_size=1, max_size=1200))
def test_the_intervals_cover_exactly_the_bad_windows_and_are_at_most_200(bad):
    frame = requests([100.0 if late else 0.0 for late in bad], spacing_ms=1000)
    found = find_untrusted(frame, NO_STALLS, window_us=S, limit_us=50_000)
    covered = {t for w in found.intervals for t in range((w["start_us"] - BEGIN) // S, (w["end_us"] - BEGIN) // S)}
    wanted = {i for i, late in enumerate(bad) if late}
    assert wanted <= covered
    assert len(found.intervals) <= 200
    assert found.share == round(len(wanted) / len(bad), 6)
    runs = sum(1 for i in wanted if i - 1 not in wanted)
    if runs <= 200:
        assert covered == wanted


def test_a_long_run_has_wider_windows():
    frame = requests([100.0, 0.0, 0.0], spacing_ms=200_000 * 1000)
    found = find_untrusted(frame, NO_STALLS, window_us=S, limit_us=50_000)
    (window,) = found.intervals
    assert window["end_us"] - window["start_us"] == 400_000 * S // 50_000 + 1
