"""Bursts: found where they are, ranked, not invented, and cut so that a replay takes them."""

from __future__ import annotations

import json
import tomllib

import polars as pl
import pytest

import ramptrace
from traces.bursts import find_bursts, grid_step_us
from traces.readers import open_trace
from traces.synth import Lengths, Step, synthesise
from traces.transform import window
from traces.units import US_PER_S, parse_window_us

S = US_PER_S
FLAT = Lengths(median=8)


def made(*steps: tuple[float, float], seed: int = 4) -> pl.DataFrame:
    return synthesise([Step(length_s=length, rate_per_s=rate) for length, rate in steps], FLAT, FLAT, seed)


def on_grid(frame: pl.DataFrame, step_s: int = 3) -> pl.DataFrame:
    return frame.with_columns(pl.col("arrival_us") // (step_s * S) * (step_s * S))


QUIET_BURST_QUIET = made((1200, 2), (120, 9), (1200, 2))


@pytest.mark.parametrize("frame", [QUIET_BURST_QUIET, on_grid(QUIET_BURST_QUIET)], ids=["as recorded", "on a 3 s grid"])
def test_a_burst_is_found_where_it_is(frame):
    report = find_bursts(frame.lazy())
    [burst] = report.bursts
    assert burst.start_us == pytest.approx(1200 * S, abs=4 * S)
    assert burst.end_us == pytest.approx(1320 * S, abs=4 * S)
    assert burst.rate_per_s == pytest.approx(9, rel=0.1)
    assert burst.baseline_per_s == pytest.approx(2, rel=0.15)
    assert burst.excess == pytest.approx(7 * 120, rel=0.15)
    assert burst.ended
    assert report.grid_us in {None, 3 * S}


@pytest.mark.parametrize("rate", [0.5, 5, 50])
def test_poisson_traffic_has_none_not_even_on_a_time_grid(rate):
    found = [find_bursts(made((1800, rate), seed=seed).lazy()).bursts for seed in range(4)]
    found += [find_bursts(on_grid(made((1800, rate), seed=seed)).lazy()).bursts for seed in range(4)]
    # 14,400 bins at h = 12: less than one in ten runs of this test would see one, were the seeds not fixed.
    assert found == [[]] * 8


def test_they_are_ranked_by_height_and_length():
    frame = made((600, 2), (60, 8), (600, 2), (60, 20), (600, 2), (200, 8), (600, 2))
    bursts = find_bursts(frame.lazy(), baseline_us=120 * S).bursts
    assert [burst.start_us / S for burst in bursts] == pytest.approx([1260, 1920, 600], abs=10)
    assert [burst.score for burst in bursts] == sorted((burst.score for burst in bursts), reverse=True)


def test_a_rise_that_stays_is_said_to_stay_and_becomes_normal():
    bursts = find_bursts(made((300, 2), (3000, 8), (60, 40), (300, 8)).lazy(), baseline_us=60 * S).bursts
    by_start = sorted(bursts, key=lambda burst: burst.start_us)
    assert [(round(burst.start_us / S, -1), burst.ended) for burst in by_start] == [(300, False), (3300, True)]
    assert by_start[1].baseline_per_s == pytest.approx(8, rel=0.2)


def test_restless_traffic_needs_more_evidence():
    """A renewal process of pairs is not a series of bursts, though its counts vary more than Poisson ones."""
    base = made((1800, 3))
    clumps = pl.concat([base] * 6).sort("arrival_us")
    report = find_bursts(clumps.lazy())
    assert report.overdispersion == pytest.approx(6, rel=0.15)
    assert report.bursts == []


def test_the_window_holds_the_burst_and_a_baseline_around_it():
    report = find_bursts(QUIET_BURST_QUIET.lazy())
    [burst] = report.bursts
    start_us, end_us = parse_window_us(burst.window)
    assert (start_us, end_us) == (
        pytest.approx(burst.start_us - report.baseline_us, abs=1000),
        pytest.approx(burst.end_us + report.baseline_us, abs=1000),
    )
    assert window(QUIET_BURST_QUIET.lazy(), start_us, end_us).collect().height > burst.requests
    last = find_bursts(made((100, 2), (60, 20)).lazy()).bursts[0]
    assert window(made((100, 2), (60, 20)).lazy(), *parse_window_us(last.window)).collect()["row_id"].max() == (
        made((100, 2), (60, 20)).height - 1
    )


def test_a_grid_is_told_from_chance_ties():
    assert grid_step_us(on_grid(QUIET_BURST_QUIET)["arrival_us"]) == 3 * S
    assert grid_step_us(QUIET_BURST_QUIET["arrival_us"]) is None
    assert grid_step_us(pl.Series([5], dtype=pl.Int64)) is None


def test_the_bundled_burst_is_found_to_the_second():
    [burst] = find_bursts(open_trace("corpus:reference-burst").scan()).bursts
    assert (round(burst.start_us / S), round(burst.end_us / S)) == (59, 600)


def test_the_public_code_trace_is_full_of_bursts_and_the_synthetic_one_of_none(shared_traces):
    code = find_bursts(open_trace(str(shared_traces / "AzureLLMInferenceTrace_code.csv")).scan())
    assert len(code.bursts) > 20
    assert code.bursts[0].rate_per_s > 30 * code.bursts[0].baseline_per_s
    smooth = find_bursts(open_trace(str(shared_traces / "mooncake_synthetic_trace.jsonl")).scan())
    assert smooth.bursts == []


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        ramptrace.main(["trace", "bursts", *map(str, arguments)])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_the_command_gives_a_table_json_and_a_scenario(capsys):
    code, out, _ = call(capsys, "corpus:reference-burst")
    assert (code, out.splitlines()[0].split("\t")[0]) == (0, "window")
    document = json.loads(call(capsys, "corpus:reference-burst", "--json")[1])
    assert document["bursts"][0]["window"] == "0s..658.467s"
    table = tomllib.loads(call(capsys, "corpus:reference-burst", "--scenario")[1])
    assert table["trace"] == {"path": "corpus:reference-burst", "window": document["bursts"][0]["window"]}
    assert "no burst" in call(capsys, "corpus:steady-200")[1]
    assert call(capsys, "corpus:steady-200", "--scenario")[0] == 2
    assert call(capsys, "corpus:steady-200", "--rise", "0.5")[0] == 2
