"""`ramptrace soak`: one command, its files and its exit codes, also when it is told to stop."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.emulators import start_emulator
from traces.run import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SCENARIO = """\
name = "nightly"
[trace]
path = "corpus:{trace}"
window = "{window}"
[target]
url = "{url}"
[verdict]
# A busy machine is not the matter here.
degraded_lag_p99_ms = 60000.0
invalid_lag_p99_ms = 60000.0
[gate]
thresholds = {thresholds}
"""


@pytest.fixture(scope="module")
def url():
    with start_emulator(time_scale=20) as address:
        yield address


def soak(
    folder: Path, url: str, thresholds: list[str], *, trace="tiny-step", window="0s..20s"
) -> subprocess.Popen[str]:
    text = SCENARIO.format(trace=trace, window=window, url=url, thresholds=json.dumps(thresholds))
    (folder / "soak.toml").write_text(text)
    command = [sys.executable, "-P", "-m", "ramptrace", "soak", "soak.toml", "--markdown", "step.md"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_judges_and_leaves_its_files(url, tmp_path):
    passing = ["failed(requests) < 100%", "time_to_capacity < 4m"]
    process = soak(tmp_path, url, passing)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert len(out.strip().splitlines()) <= 10
    assert out.startswith("gate passed; fidelity ")
    assert "skipped      time_to_capacity < 4m: no scale-out was seen" in out
    assert "EMULATED" in out
    folder = tmp_path / "soak"
    assert {"run", "report.html", "gate.json", "junit.xml", "summary.md"} <= {path.name for path in folder.iterdir()}
    assert ET.parse(folder / "junit.xml").getroot()[0].get("tests") == "3"
    assert (tmp_path / "step.md").read_text() == (folder / "summary.md").read_text()
    again = soak(tmp_path, url, passing)
    assert "a run is already there" in again.communicate(timeout=60)[1]
    assert again.returncode == 2


def test_a_threshold_that_does_not_hold_ends_with_3(url, tmp_path):
    process = soak(tmp_path, url, ["p95(e2e) < 1ms", "failed(requests) < 100%"], window="0s..10s")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert out.splitlines()[1].split()[:2] == ["fail", "p95(e2e)"], "the worst first"


def test_why_a_run_is_no_measure_is_in_the_ten_lines(url, tmp_path):
    text = SCENARIO.format(trace="tiny-step", window="0s..10s", url=url, thresholds='["failed(requests) < 100%"]')
    text = text.replace("degraded_lag_p99_ms = 60000.0\ninvalid_lag_p99_ms = 60000.0", "invalid_lag_p99_ms = 0.001")
    (tmp_path / "soak.toml").write_text(text)
    command = [sys.executable, "-P", "-m", "ramptrace", "soak", "soak.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 5, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "gate failed; fidelity INVALID"
    reasons = json.loads((tmp_path / "soak" / "gate.json").read_text())["verdict_reasons"]
    assert lines[1].strip() == reasons[0]
    assert len(lines) <= 10


def test_sigterm_drains_and_still_judges(url, tmp_path):
    process = soak(tmp_path, url, ["failed(requests) < 100%"], trace="reference-burst", window="0s..10m")
    requests = tmp_path / "soak" / "run" / "requests"
    deadline = time.monotonic() + 60
    while not (requests.is_dir() and any(requests.glob("[!.]*.parquet"))):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    assert "gate " in out
    assert RunDir.open(tmp_path / "soak" / "run").manifest().state == "interrupted"
    assert (tmp_path / "soak" / "report.html").is_file()


def test_a_wrong_threshold_is_refused_before_anything_is_sent(url, tmp_path):
    process = soak(tmp_path, url, ["p95(tft) < 2s"])
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "[gate] thresholds: not a threshold" in err
    assert "Traceback" not in err
    assert not (tmp_path / "soak" / "run").exists()
