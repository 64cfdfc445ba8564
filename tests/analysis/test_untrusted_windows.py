"""What the load generator says of its own windows reaches the reader, in endpoint time; warm-up is no latency."""

from __future__ import annotations

from datetime import datetime

import pytest

from analysis.analyse import analyse_run
from analysis.report.html import write_report
from analysis.report.text import run_text
from tests.analysis.run_builder import Case, build
from traces.manifest import Stretch
from traces.run import RunDir


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    build(path, Case(time_scale=20.0))
    return RunDir.open(path)


def test_untrusted_windows_are_shown_in_endpoint_time(run, tmp_path):
    manifest = run.manifest()
    start = manifest.t0_us + 1_000_000
    window = {"start_us": start, "end_us": start + 500_000, "why": "requests went out up to 312 ms late"}
    manifest.verdict = {"status": "DEGRADED", "reasons": [], "untrusted": [window, {"start_us": "?"}]}
    run.write_manifest(manifest)
    analysis = analyse_run(run.path)
    (found,) = analysis.fidelity["untrusted"]
    assert found["why"] == window["why"]
    length = datetime.fromisoformat(found["end"]) - datetime.fromisoformat(found["start"])
    assert length.total_seconds() == 10.0
    assert "312 ms late" in " ".join(run_text(analysis).split())
    assert "312 ms late" in write_report([analysis], None, tmp_path / "r.html").read_text()


def test_warm_up_is_load_but_no_latency(run):
    manifest = run.manifest()
    before = analyse_run(run.path)
    end = manifest.t0_us + 3_000_000
    manifest.stretches = [Stretch(t0_us=manifest.t0_us, began_us=manifest.t0_us, warm_up_until_us=end)]
    run.write_manifest(manifest)
    after = analyse_run(run.path)
    due_us = run.scan("requests").collect()["due"].dt.epoch("us")
    excluded = int((due_us < end).sum())
    assert excluded > 0
    assert before.latency["all"]["ttft_from_due"]["n"] > after.latency["all"]["ttft_from_due"]["n"]
    assert sum(before.latency["all"]["outcomes"].values()) - excluded == sum(after.latency["all"]["outcomes"].values())
    assert after.load.equals(before.load)
    assert any(f.code == "warm-up" and f.text.startswith(f"{excluded} ") for f in after.findings)
    assert run.manifest().warm_ups_us == [(manifest.t0_us, end)]
