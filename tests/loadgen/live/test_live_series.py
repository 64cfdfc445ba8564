"""Bins of a run: bounded, and nothing that was counted gets lost or counted twice."""

from hypothesis import given
from hypothesis import strategies as st

from loadgen.live.meter import LateWindows, Meter
from loadgen.live.series import Series
from loadgen.recorder import RequestRow

S = 1_000_000


def total(series, name):
    return sum(series.columns(0, latency_scale=1.0)[name])


@given(st.lists(st.integers(0, 500_000 * S), max_size=200))
def test_a_whole_series_keeps_every_count_in_at_most_so_many_bins(instants):
    series = Series(S, 16, rolling=False)
    for at in instants:
        series.at(at).due += 1
    columns = series.columns(0, latency_scale=1.0)
    assert total(series, "due") == len(instants)
    assert len(columns["i"]) <= 16
    width = series.width_us
    for i, due in zip(columns["i"], columns["due"], strict=True):
        assert due == sum(i * width <= at < (i + 1) * width for at in instants)


@given(st.lists(st.integers(0, 200 * S), max_size=200))
def test_a_rolling_series_keeps_its_end(instants):
    series = Series(S, 10, rolling=True)
    for at in instants:
        found = series.at(at)
        if found is not None:
            found.due += 1
    newest = max((at // S for at in instants), default=0)
    columns = series.columns(0, latency_scale=1.0)
    assert all(newest - 10 < i <= newest for i in columns["i"])
    ordered = sorted(instants)
    if instants == ordered:
        assert total(series, "due") == sum(at // S > newest - 10 for at in instants)


@given(
    st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=100),
)
def test_what_changed_since_a_version_rebuilds_the_series(changes):
    """A reader that starts anew when the generation changes, and lays changes over what it has, misses nothing."""
    series, known, version, generation = Series(S, 8, rolling=False), {}, 0, 0
    for at_s, look in changes:
        series.at(at_s * S).ok += 1
        if look:
            if series.generation != generation:
                known, version, generation = {}, 0, series.generation
            told = series.columns(version, latency_scale=1.0)
            known |= dict(zip(told["i"], told["ok"], strict=True))
            version = series.version
            whole = series.columns(0, latency_scale=1.0)
            assert known == dict(zip(whole["i"], whole["ok"], strict=True))


def test_merged_bins_keep_quantiles_and_the_worst_lag():
    series = Series(S, 2, rolling=False)
    for second, latency_us, lag_us in ((0, 100_000, 2000), (1, 900_000, 7000), (2, 500_000, None)):
        found = series.at(second * S)
        found.latency.add(latency_us)
        found.lag_us = lag_us
    columns = series.columns(0, latency_scale=2.0)
    assert series.width_us == 2 * S
    assert columns["lag"] == [7.0, None]
    assert columns["p50"][0] == 0.2035 or 0.2 <= columns["p50"][0] <= 0.204
    assert 1.8 <= columns["p95"][0] <= 1.8 * 1.02
    assert 1.0 <= columns["p50"][1] <= 1.02


def test_the_meter_counts_on_the_endpoints_axis():
    meter = Meter(t0_us=50 * S, time_scale=20.0, limit_us=50_000, measured_from_us=51 * S)
    meter.due(50 * S)
    meter.sent(50 * S, 50 * S + 1_000)
    meter.due(52 * S)
    meter.sent(52 * S, 52 * S + 80_000)
    meter.ended(RequestRow(row_id=0, due=50 * S, outcome="ok", endpoint="e", first_token=51 * S, done=53 * S))
    meter.ended(RequestRow(row_id=1, due=52 * S, outcome="timeout", endpoint="e", done=54 * S))
    meter.ended(RequestRow(row_id=2, due=52 * S, outcome="not_sent", endpoint="e"))
    rows = {}
    columns = meter.whole.columns(0, latency_scale=20.0)
    for n, i in enumerate(columns["i"]):
        rows[i * meter.whole.width_us // S] = {name: columns[name][n] for name in columns}
    assert rows[0]["due"] == rows[0]["sent"] == 1
    assert 20.0 <= rows[0]["p50"] <= 20.4, "one client second is twenty of the endpoint's"
    assert rows[40]["sent"] == 1
    assert rows[40]["lag"] == 80.0
    assert rows[60]["ok"] == 1
    assert rows[80]["failed"] == 1
    assert len(meter.lag) == 1, "the first was warm-up"
    assert meter.late.share == 1.0


def test_seconds_with_late_requests_are_counted_in_bounded_memory():
    late = LateWindows(50_000)
    for second in range(2000):
        for n in range(10):
            late.sent(second * S + n, 60_000 if second % 4 == 0 and n == 0 else 100)
    assert late.share == 0.25
    assert len(late._open) <= 300
