"""Plan, prompts, histogram, verdict, summary and options: values in, values out."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.histogram import Histogram
from loadgen.options import resolve_scenario
from loadgen.plan import plan_rows
from loadgen.scenario import ReplaySection, VerdictSection
from loadgen.summary import counts, fidelity, latencies_ms, tokens, without_warm_up
from loadgen.verdict import Fidelity, verdict
from loadgen.windows import Untrusted
from traces.clock import to_us
from traces.errors import BadInputError
from traces.schema import Request, Trace


def trace_frame(**columns) -> pl.DataFrame:
    rows = len(columns["row_id"])
    return pl.DataFrame({name: [None] * rows for name in pl.Schema(Trace)} | columns, schema=pl.Schema(Trace))


def test_plan_scales_arrivals_and_fills_what_the_trace_does_not_state():
    frame = trace_frame(
        row_id=[4, 9],
        arrival_us=[0, 60_000_001],
        input_tokens=[0, None],
        output_tokens=[None, 0],
        prefix_blocks=[[1, 2], None],
    )
    first, second = plan_rows(frame, ReplaySection(default_input_tokens=11, default_output_tokens=22), 20.0)
    assert (first.row_id, first.due_us, first.input_tokens, first.output_tokens) == (4, 0, 1, 22)
    assert (second.row_id, second.due_us, second.input_tokens, second.output_tokens) == (9, 3_000_000, 11, 1)
    assert (first.prefix_blocks, second.prefix_blocks) == ((1, 2), ())


@given(st.lists(st.integers(0, 10**8), min_size=1), st.sampled_from([0.01, 0.5, 0.99, 1.0]))
def test_a_histogram_quantile_is_right_within_two_percent(values, q):
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[max(0, math.ceil(q * len(values)) - 1)]
    found = histogram.quantile_us(q)
    assert exact <= found <= max(1, math.ceil(exact * 1.02) + 1)


LAGS = ("lag_p50_ms", "lag_p99_ms", "lag_p999_ms", "lag_max_ms")


def made(lags, **more) -> Fidelity:
    values = {
        "rows_planned": len(lags),
        "rows_sent": len(lags),
        "not_sent": {},
        "lag_ms": dict.fromkeys(LAGS, max(lags, default=None)),
        "offered_vs_delivered": {},
        "untrusted": Untrusted(intervals=[], share=0.0),
        "hub_latency_p99_ms": 1.0,
        "connect_p99_ms": None,
        "time_scale": 1.0,
    }
    return Fidelity(**values | more)


@pytest.mark.parametrize(
    ("fidelity_", "status", "word"),
    [
        (made([1.0] * 100), "VALID", None),
        (made([5.0] * 100), "VALID", None),
        (made([5.1] * 100), "DEGRADED", "late"),
        (made([60.0] * 100), "INVALID", "late"),
        (made([60.0] * 100, cpu_wait_share=0.2), "INVALID", "20% of the time"),
        (made([60.0] * 100, cpu_share=0.9), "INVALID", "add workers with a core each (--workers N)"),
        (made([1.0] * 100, cpu_share=0.95), "DEGRADED", "saturated"),
        (made([1.0] * 100, cpu_share=0.95), "DEGRADED", "--workers N"),
        (made([1.0] * 100, untrusted=Untrusted(intervals=[], share=0.01)), "VALID", None),
        (made([1.0] * 100, untrusted=Untrusted(intervals=[], share=0.02)), "DEGRADED", "2.0% of the run"),
        (made([1.0] * 100, untrusted=Untrusted(intervals=[], share=0.6)), "INVALID", "60.0% of the run"),
        (made([1.0] * 100, untrusted=Untrusted(intervals=[], share=0.1, stalled=True)), "DEGRADED", "core of its own"),
        (made([1.0] * 100, not_sent={"run_time": 90}), "VALID", None),
        (made([1.0] * 100, not_sent={"aborted": 90}), "DEGRADED", "--resume"),
        (made([60.0] * 100, hub_latency_p99_ms=40.0), "INVALID", "core of its own"),
        (made([60.0] * 100, connect_p99_ms=55.0), "INVALID", "opening connections"),
        (made([1.0] * 100, not_sent={"max_in_flight": 1}), "DEGRADED", "max_in_flight"),
        (made([1.0] * 100, not_sent={"max_in_flight": 2}), "INVALID", "max_in_flight"),
        (made([1.0] * 100, not_sent={"interrupted": 90}), "DEGRADED", "stopped"),
        (made([1.0] * 3, rows_planned=300), "DEGRADED", "297 of 300 requests never reached the target"),
        (made([1.0] * 3, rows_planned=300, rows_killed=297), "VALID", None),
        (made([], rows_planned=5, rows_sent=0), "INVALID", "nothing"),
    ],
)
def test_verdict(fidelity_, status, word):
    found = verdict(fidelity_, VerdictSection())
    assert found["status"] == status
    assert (word is None and not found["reasons"]) or any(word in reason for reason in found["reasons"])


T0 = datetime(2026, 1, 1, tzinfo=UTC)
T0_US = to_us(T0)


def requests(*rows) -> pl.LazyFrame:
    listed = [{"row_id": i, "shard": 0, "endpoint": "openai", **row} for i, row in enumerate(rows)]
    data = {name: [row.get(name) for row in listed] for name in pl.Schema(Request)}
    return pl.LazyFrame(data, schema=pl.Schema(Request))


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def test_counts_add_up_and_name_what_failed():
    frame = requests(
        {"due": at(0), "sent": at(0), "outcome": "ok"},
        {"due": at(0), "sent": at(0), "outcome": "http_error", "error_kind": "http_503"},
        {"due": at(0), "outcome": "connect_error", "error_kind": "refused"},
        {"due": at(0), "outcome": "not_sent", "error_kind": "interrupted"},
        {"due": at(0), "sent": at(0), "outcome": "cancelled", "error_kind": "as_recorded"},
        {"due": at(0), "sent": at(0), "outcome": "cancelled", "error_kind": "drain_timeout"},
    )
    assert counts(frame) == {
        "planned": 6,
        "sent": 4,
        "ok": 1,
        "cancelled": 1,
        "failed": {"drain_timeout": 1, "http_503": 1, "refused": 1},
        "not_sent": {"interrupted": 1},
    }


def test_tokens_compare_what_was_planned_with_what_the_server_reports():
    ok = {"due": at(0), "sent": at(0), "outcome": "ok", "planned_output_tokens": 10}
    frame = requests(
        ok | {"output_tokens": 10},
        ok | {"output_tokens": 4},
        ok,
        ok | {"outcome": "truncated", "output_tokens": 1},
    )
    assert tokens(frame) == {
        "input": {"rows": 0, "planned": None, "reported": None, "differing_share": None},
        "output": {"rows": 2, "planned": 20, "reported": 14, "differing_share": 0.5},
    }


def test_the_worst_second_is_where_sending_left_the_schedule():
    rows = [{"due": at(1.0), "sent": at(1.5), "outcome": "ok"}] * 2 + [
        {"due": at(2.9), "sent": at(3.1), "outcome": "ok"}
    ] * 3
    found = fidelity(requests(*rows), limits=VerdictSection(), t0_us=T0_US, time_scale=1)
    worst = {"worst_second": 2, "max_abs_error_per_s": 3, "offered": 3, "delivered": 0}
    assert found.offered_vs_delivered == worst, "of equal ones the first"
    assert (found.lag_ms["lag_p50_ms"], found.lag_ms["lag_max_ms"]) == (200.0, 500.0)


def test_rows_left_unsent_by_a_stop_were_not_offered():
    sent = {"due": at(0.5), "sent": at(0.5), "outcome": "ok"}
    unsent = {"due": at(9), "outcome": "not_sent", "error_kind": "interrupted"}
    found = fidelity(requests(sent, unsent, unsent), limits=VerdictSection(), t0_us=T0_US, time_scale=1)
    assert (found.offered_vs_delivered["max_abs_error_per_s"], found.not_sent) == (0, {"interrupted": 2})
    assert found.untrusted.intervals == []


def test_warm_up_counts_for_nothing():
    rows = [{"due": at(i), "sent": at(i + (1 if i < 3 else 0.001)), "outcome": "ok"} for i in range(10)]
    frame, warm_up = requests(*rows), [(T0_US, T0_US + 3_000_000)]
    found = fidelity(frame, limits=VerdictSection(), t0_us=T0_US, time_scale=1, warm_ups_us=warm_up)
    assert (found.rows_planned, found.warm_up_rows, found.lag_ms["lag_max_ms"]) == (7, 3, 1.0)
    assert found.untrusted.intervals == []
    assert without_warm_up(frame, warm_up).select(pl.col("row_id").min()).collect().item() == 3


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=300), st.sampled_from([0.5, 0.99, 0.999]))
@settings(deadline=None)
def test_streamed_quantiles_are_exact_to_four_digits(values, q):
    exact = sorted(values)[max(0, math.ceil(q * len(values)) - 1)]
    frame = requests(*({"due": T0, "sent": T0 + timedelta(microseconds=us), "outcome": "ok"} for us in values))
    name = {0.5: "lag_p50_ms", 0.99: "lag_p99_ms", 0.999: "lag_p999_ms"}[q]
    found = fidelity(frame, limits=VerdictSection(), t0_us=T0_US, time_scale=1).lag_ms[name]
    assert found == pytest.approx(exact / 1e3, rel=0.0006, abs=0.0005)


def test_latencies_are_in_endpoint_time_and_null_where_nothing_shows_them():
    frame = requests({"due": at(0), "sent": at(0.01), "done": at(0.11), "outcome": "ok"})
    found = latencies_ms(frame, 20.0)
    assert found["end_to_end_from_sent"]["p50"] == pytest.approx(2000)
    assert found["end_to_end_from_due"]["p99"] == pytest.approx(2200)
    assert found["ttft_from_due"] == {"p50": None, "p95": None, "p99": None}


def test_flags_win_over_the_file(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text('[trace]\npath = "t.csv"\nwindow = "1s.."\n[target]\nurl = "http://a:1"\n')
    scenario = resolve_scenario(str(file), window="2s..3s", target="http://b:2", max_in_flight=7)
    assert scenario.trace.window == "2s..3s"
    assert scenario.trace.path == str(tmp_path / "t.csv")
    assert (scenario.target.url, scenario.replay.max_in_flight) == ("http://b:2", 7)


def test_collect_needs_an_endpoint():
    with pytest.raises(BadInputError, match="endpoint-name"):
        resolve_scenario(None, collect=True, trace="t", target="http://a:1")
    scenario = resolve_scenario(
        None, collect=True, trace="t", target="http://a:1", endpoint_name="demo", emulator="http://a:1"
    )
    assert scenario.collect.endpoint_name == "demo"
    assert scenario.collect.endpoint_url == "http://a:1"
    assert resolve_scenario(None, collect=False, trace="t", target="http://a:1", endpoint_name="demo").collect is None


def test_flags_that_name_the_endpoint_hold_for_the_collector_too(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text(
        '[trace]\npath = "corpus:tiny-step"\n'
        '[target]\nkind = "sagemaker"\nendpoint_name = "mine"\nregion = "eu-west-1"\n'
        '[collect]\nendpoint_name = "mine"\nregion = "eu-west-1"\nvariant = "blue"\n'
    )
    flags = {"endpoint_name": "demo", "region": "us-east-1", "target": "http://127.0.0.1:8000"}
    collect = resolve_scenario(str(file), **flags).collect
    assert (collect.endpoint_name, collect.region, collect.endpoint_url) == (
        "demo",
        "us-east-1",
        "http://127.0.0.1:8000",
    )
    assert collect.variant == "blue"
    assert resolve_scenario(str(file)).collect.endpoint_name == "mine"
    assert resolve_scenario(str(file), collect=False).collect is None


def test_a_sagemaker_replay_without_a_file_collects_unless_told_not_to():
    flags = {"trace": "corpus:tiny-step", "kind": "sagemaker", "endpoint_name": "demo", "region": "us-east-1"}
    assert resolve_scenario(None, **flags).collect.endpoint_name == "demo"
    assert resolve_scenario(None, collect=False, **flags).collect is None
    assert resolve_scenario(None, trace="corpus:tiny-step", target="http://127.0.0.1:9").collect is None
