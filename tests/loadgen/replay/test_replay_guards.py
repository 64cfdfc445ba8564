"""Guards before the first byte, rules that end a run, warm-up: nothing is sent that was not allowed."""

from __future__ import annotations

import os
import pty
import subprocess
import time

import polars as pl
import pytest

from loadgen.abort import AbortWatch, parse_rule
from loadgen.guard import Estimate, estimate, needs_confirmation, refuse_beyond
from loadgen.scenario import GuardSection, PricesSection, ReplaySection
from traces.errors import BadInputError
from traces.manifest import Laps
from traces.run import RunDir

S = 1_000_000


def trace_of(arrivals_s, inputs, outputs):
    data = {"arrival_us": [round(s * S) for s in arrivals_s], "input_tokens": inputs, "output_tokens": outputs}
    return pl.LazyFrame(data, schema=dict.fromkeys(data, pl.Int64))


def test_an_estimate_counts_what_would_be_sent_and_its_price():
    frame = trace_of([0, 0.2, 0.9, 5], [100, None, 0, 200], [10, 20, None, 30])
    prices = PricesSection(per_million_input_tokens=2.0, per_thousand_requests=10.0, per_hour=3600.0)
    found = estimate(frame, ReplaySection(default_input_tokens=50, default_output_tokens=7), prices, None, 4)
    # the missing input counts as the default, the zero as the one token that is sent
    assert (found.requests, found.input_tokens, found.output_tokens) == (4, 351, 67)
    assert (found.peak_per_s, found.length_us) == (3, 5 * S)
    assert found.cost == pytest.approx(351 * 2e-6 + 0.04 + 5.0)
    assert estimate(frame, ReplaySection(), PricesSection(), None, 4).cost is None


def test_an_estimate_of_a_loop():
    frame = trace_of([0, 1], [10, 20], [1, 1])
    laps = Laps(rows=2, length_us=2 * S, stride=2, until_us=9 * S)
    found = estimate(frame, ReplaySection(), PricesSection(), laps, 9)
    assert (found.requests, found.input_tokens, found.length_us) == (9, 135, 9 * S)
    endless = estimate(frame, ReplaySection(), PricesSection(), laps, None)
    assert (endless.requests, endless.cost) == (None, None)


PLAN = Estimate(requests=100, input_tokens=5, output_tokens=5, length_us=S, peak_per_s=20, cost=3.0)
ENDLESS = Estimate(requests=None, input_tokens=None, output_tokens=None, length_us=None, peak_per_s=20)


@pytest.mark.parametrize(
    ("plan", "guard", "word"),
    [
        (PLAN, {"max_requests": 99}, "100 requests"),
        (PLAN, {"max_rate": 19.5}, "busiest second"),
        (PLAN, {"max_cost": 2.99}, "3 USD"),
        (ENDLESS, {"max_requests": 10**9}, "no end"),
        (
            Estimate(requests=1, input_tokens=1, output_tokens=1, length_us=1, peak_per_s=1),
            {"max_cost": 1.0},
            "no price",
        ),
    ],
)
def test_a_plan_beyond_a_limit_is_refused(plan, guard, word):
    with pytest.raises(BadInputError, match=word):
        refuse_beyond(plan, GuardSection(**guard))


def test_a_plan_at_its_limits_is_allowed():
    refuse_beyond(PLAN, GuardSection(max_requests=100, max_rate=20, max_cost=3.0))
    refuse_beyond(ENDLESS, GuardSection(max_rate=20))


def test_another_machine_and_much_need_a_yes():
    guard = GuardSection(confirm_above_requests=100, confirm_above_cost=3.0)
    assert not needs_confirmation(PLAN, guard, loopback=False)
    assert needs_confirmation(PLAN, GuardSection(confirm_above_requests=99), loopback=False)
    assert needs_confirmation(PLAN, GuardSection(confirm_above_cost=2.9), loopback=False)
    assert needs_confirmation(ENDLESS, guard, loopback=False)
    assert not needs_confirmation(ENDLESS, guard, loopback=True)


@pytest.mark.parametrize("text", ["errors>5", "errors<5%", "lag>5", "p99 > ", "p95>1s", "errors > 5% for 3s", ""])
def test_what_is_no_rule_is_said(text):
    with pytest.raises(BadInputError):
        parse_rule(text)


def watch(*rules, grace_s=3, window_s=10):
    return AbortWatch([parse_rule(rule) for rule in rules], window_us=window_s * S, grace_us=grace_s * S)


def test_a_rule_has_to_hold_for_its_whole_grace():
    errors = watch("errors>50%")
    said = []
    for second in range(10):
        for _ in range(4):
            errors.ended(second * S, failed=second >= 2, lag_us=0, latency_us=1)
        said.append(errors.check(second * S))
    # the share passes a half in second 4 (12 of 20 failed), and the grace ends three seconds later
    assert [i for i, text in enumerate(said) if text] == [7, 8, 9]
    assert said[7] == "errors>50% held for 3 s (75% at last)"


def test_a_rule_that_stops_holding_begins_anew():
    lag = watch("lag>100ms", window_s=1)
    for second, lag_us in enumerate([200_000] * 3 + [50_000] + [200_000] * 3):
        lag.ended(second * S, failed=False, lag_us=lag_us, latency_us=1)
        assert lag.check(second * S) is None
    lag.ended(7 * S, failed=False, lag_us=200_000, latency_us=1)
    assert "lag>100ms" in lag.check(7 * S)


def test_p99_is_of_the_successful_and_nothing_is_judged_while_nothing_ends():
    p99 = watch("p99>1s", grace_s=0)
    assert p99.check(0) is None
    p99.ended(0, failed=True, lag_us=None, latency_us=9 * S)
    assert p99.check(0) is None
    p99.ended(0, failed=False, lag_us=0, latency_us=2 * S)
    assert p99.check(0) is not None
    assert p99.check(60 * S) is None


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--max-requests", "19"], "20 requests"),
        (["--max-rate", "10"], "busiest second"),
        (["--max-cost", "1"], "no price"),
        (["--loop", "--max-requests", "10"], "no end"),
        (["--abort-on", "errors>lots"], "percentage"),
    ],
)
def test_guards_hold_before_the_first_byte(server, trace, replay, tmp_path, more, word):
    code, summary, stderr = replay(trace([i * 40 for i in range(20)]), server.url("ok"), *more)
    assert (code, summary, stderr.count("\n")) == (2, None, 1)
    assert word in stderr
    assert not server.posts("ok")
    assert not (tmp_path / "run").exists()


# 0.0.0.0 reaches this machine, and is not a loopback address: a stranger, as far as the guard can know.
def elsewhere(server):
    return f"http://0.0.0.0:{server.port}/ok"


@pytest.mark.e2e
def test_without_a_terminal_much_to_another_machine_is_refused_unless_said_yes(server, trace, replay):
    path = trace([i // 10 for i in range(1001)])
    code, _, stderr = replay(path, elsewhere(server))
    assert (code, stderr.count("\n")) == (2, 1)
    assert "1,001 requests" in stderr
    assert "--yes" in stderr
    assert not server.posts("ok")
    assert replay(path, elsewhere(server), "--yes", "--window", "0s..10ms")[0] == 0
    assert len(server.posts("ok")) == 100


@pytest.mark.e2e
@pytest.mark.parametrize(("answer", "code", "posts"), [("n", 130, 0), ("y", 0, 1001)])
def test_on_a_terminal_it_asks(server, trace, command, tmp_path, answer, code, posts):
    ours, theirs = pty.openpty()
    line = command(trace(list(range(1001))), elsewhere(server))
    process = subprocess.Popen(line, cwd=tmp_path, stdin=theirs, stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    seen = b""
    try:
        while b"[y/N]" not in seen:
            seen += os.read(ours, 4096)
        os.write(ours, f"{answer}\n".encode())
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            try:
                os.read(ours, 4096)
            except OSError:
                break
        assert process.wait(30) == code
    finally:
        process.kill()
        os.close(ours)
    assert len(server.posts("ok")) == posts


@pytest.mark.e2e
def test_a_rule_ends_the_run_with_its_own_exit_code(server, trace, replay, rows, tmp_path):
    path = trace([i * 20 for i in range(3000)])
    code, _, stderr = replay(path, server.url("503"), "--abort-on", "errors>50%", "--abort-grace", "1s")
    assert code == 3, stderr
    found = rows()
    assert found["row_id"].to_list() == list(range(3000))
    assert set(found.filter(pl.col("outcome") == "not_sent")["error_kind"]) == {"aborted"}
    manifest = RunDir.open(tmp_path / "run").manifest()
    assert manifest.state == "interrupted"
    assert manifest.verdict["aborted"].startswith("errors>50% held")
    assert any("aborted" in reason for reason in manifest.verdict["reasons"])


@pytest.mark.e2e
def test_warm_up_is_sent_and_counts_for_no_latency(server, trace, replay, rows, tmp_path):
    code, summary, _ = replay(trace([0, 100, 200, 300, 400]), server.url("ok"), "--warm-up", "250ms")
    assert code == 0
    assert rows()["outcome"].to_list() == ["ok"] * 5
    assert summary["requests"]["ok"] == 5
    assert (summary["verdict"]["rows_sent"], summary["verdict"]["warm_up_rows"]) == (2, 3)
    (window,) = RunDir.open(tmp_path / "run").manifest().warm_ups_us
    assert window[1] - window[0] == 250_000


@pytest.mark.e2e
def test_a_saturated_client_says_so_and_names_the_windows(server, trace, command, tmp_path):
    """Far more than this machine can send: the verdict is not VALID, and says what to do."""
    line = command(trace([i * 0.01 for i in range(6000)], output_tokens=20), server.url("ok"))
    scenario = tmp_path / "scenario.toml"
    text = scenario.read_text()
    scenario.write_text(text[: text.index("[verdict]")] + text[text.index("[target]") :] + 'drain = "20s"\n')
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 5, done.stdout + done.stderr
    found = RunDir.open(tmp_path / "run").manifest().verdict
    assert found["status"] == "INVALID"
    assert found["untrusted"]
    assert found["lag_p99_ms"] > 50
    assert any("core" in reason or "connections" in reason for reason in found["reasons"])
    assert "untrusted" in done.stdout
    rows = RunDir(tmp_path / "run").scan("requests").collect()
    assert sorted(rows["row_id"]) == list(range(6000))
