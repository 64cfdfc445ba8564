"""Politeness: no window of time sees more calls than the bucket allows, and nobody starves."""

from hypothesis import given
from hypothesis import strategies as st

from loadgen.collect.pacing import Cadence, TokenBucket


@given(rate=st.floats(0.5, 200), asks=st.lists(st.floats(0, 2), min_size=1, max_size=80))
def test_never_more_than_rate_and_burst(rate: float, asks: list[float]) -> None:
    now = [0.0]
    bucket = TokenBucket(rate, lambda: now[0])
    calls = []
    for pause in asks:
        now[0] += pause
        calls.append(now[0] + bucket.take())
    assert calls == sorted(calls)
    burst = max(1.0, rate)
    for first, start in enumerate(calls):
        for last in range(first, len(calls)):
            assert last - first + 1 <= burst + rate * (calls[last] - start) + 1 + 1e-6


@given(outcomes=st.lists(st.booleans(), max_size=60))
def test_the_period_stays_within_bounds_and_recovers(outcomes: list[bool]) -> None:
    cadence = Cadence(0.25)
    for good in outcomes:
        before = cadence.period_s
        after = cadence.succeeded() if good else cadence.failed()
        assert 0.25 <= after <= 4.0
        assert after <= before if good else after >= before
    for _ in range(4):
        cadence.succeeded()
    assert cadence.period_s == 0.25
