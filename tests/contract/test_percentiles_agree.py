"""Replay and analysis state one percentile: the smallest value with at least that share at or below it."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis.fidelity import fidelity as fidelity_by_analysis
from analysis.latency import MEASURES, quantiles, timings
from loadgen.summary import fidelity, latencies_ms
from loadgen.verdict import verdict
from traces.manifest import Manifest

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def rows(count):
    for i in range(count):
        due = T0 + timedelta(milliseconds=10 * i)
        sent = due + timedelta(microseconds=100 + i * i)
        first = sent + timedelta(microseconds=1000 + 37 * i * i)
        yield {"due": due, "sent": sent, "first_token": first, "done": first + timedelta(microseconds=11 * i)}


@pytest.mark.parametrize("count", [1, 2, 7, 16, 99])
def test_replay_and_analysis_state_the_same_percentiles(count):
    from loadgen.scenario import VerdictSection

    frame = pl.DataFrame(list(rows(count))).with_columns(
        outcome=pl.lit("ok"),
        error_kind=pl.lit(None, pl.String),
        row_id=pl.int_range(count),
        output_tokens=1,
        planned_output_tokens=1,
    )
    replayed, analysed = latencies_ms(frame.lazy(), 1.0), quantiles(timings(frame))
    for name in MEASURES:
        for label in ("p50", "p95", "p99"):
            assert replayed[name][label] == pytest.approx(analysed[name][f"{label}_s"] * 1e3, rel=6e-4), (
                "the same row, which replay reads to four digits"
            )
    waits = sorted((row["first_token"] - row["sent"]).total_seconds() for row in rows(count))
    for q in (0.5, 0.9, 0.95, 0.99):
        expected = waits[math.ceil(q * count) - 1]
        assert analysed["ttft_from_sent"][f"p{round(q * 100)}_s"] == pytest.approx(expected, abs=1e-9)
    told = verdict(fidelity(frame.lazy(), limits=VerdictSection(), t0_us=0, time_scale=1.0), VerdictSection())
    again = fidelity_by_analysis(Manifest(run_id="r"), timings(frame), 0)
    for figure in ("lag_p50_ms", "lag_p99_ms", "lag_max_ms"):
        assert told[figure] == pytest.approx(again[figure], rel=6e-4, abs=1e-3)
