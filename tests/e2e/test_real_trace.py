"""Real input: the Azure code trace is imported whole, and a window of it replayed with every row accounted for."""

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.emulators import start_emulator

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


def _json(*arguments: str | Path, cwd: Path) -> dict:
    command = [sys.executable, "-m", "ramptrace", *map(str, arguments), "--json"]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=150, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_import_keeps_every_row(shared_traces: Path, tmp_path: Path) -> None:
    printed = _json("trace", "import", shared_traces / "AzureLLMInferenceTrace_code.csv", cwd=tmp_path)
    assert printed["rows_read"] == printed["rows_kept"] == 8_819
    assert printed["dropped"] == {}
    assert printed["first_arrival"].startswith("2023-11-16T18:17:03.979960")


def test_three_minutes_are_replayed_with_every_row_accounted_for(shared_traces: Path, tmp_path: Path) -> None:
    trace = shared_traces / "AzureLLMInferenceTrace_code.csv"
    with start_emulator(time_scale=10) as url:
        arguments = [
            "replay",
            "--trace",
            trace,
            "--target",
            url,
            "--model",
            "demo",
            "--window",
            "10m..13m",
            "--run-dir",
            "run",
        ]
        printed = _json(*arguments, cwd=tmp_path)
    assert printed["emulated"] is True
    planned = pl.read_parquet(tmp_path / "run" / "trace.parquet")
    requests = pl.read_parquet(tmp_path / "run" / "requests" / "*.parquet")
    assert planned.height == printed["requests"]["planned"] > 300
    assert sorted(requests["row_id"]) == sorted(planned["row_id"])
    not_sent = requests.filter(pl.col("outcome") == "not_sent")
    assert not_sent["error_kind"].null_count() == 0
    assert printed["requests"]["sent"] + not_sent.height == planned.height
