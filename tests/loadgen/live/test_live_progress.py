"""The line that a terminal shows while a replay goes on."""

from loadgen.headless import progress_line
from loadgen.session import Progress

S = 1_000_000


def test_it_says_rate_lag_verdict_and_what_is_left():
    now = Progress(
        planned=1_326_000, started=45_678, in_flight=148, lag_p99_us=900, elapsed_us=120 * S, length_us=720 * S
    )
    line = progress_line(now, 1000, {"status": "DEGRADED", "reasons": [], "lag_p99_ms": 0.9})
    assert line == "45678/1326000 sent  1000/s  148 in flight  lag p99 900 µs  DEGRADED so far  10 min 0 s left"
    assert len(line) < 100


def test_before_the_start_after_the_load_and_without_an_end():
    blank = {"planned": None, "started": 0, "in_flight": 0, "lag_p99_us": None}
    assert progress_line(Progress(**blank, elapsed_us=-2 * S, length_us=None), 0, None) == "starts in 2 s"
    assert progress_line(Progress(**blank, elapsed_us=S, length_us=None), 0, None) == "0/∞ sent  0/s  0 in flight"
    assert progress_line(Progress(**blank, elapsed_us=S, length_us=S), 0, None).endswith("last answers")
