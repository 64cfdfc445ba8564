"""A run kept in S3: written, killed, analysed and reported there."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.emulators import start_emulator
from traces.mirror import fetch_run, stamps
from traces.run import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

_KEYS = ("AKIDEXAMPLE", "made-up")


def ramptrace(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "ramptrace", *arguments]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def replay(url: str, place: str, window: str, cwd: Path) -> subprocess.Popen[str]:
    flags = ["--trace", "corpus:steady-200", "--window", window, "--kind", "sagemaker", "--endpoint-name", "demo"]
    return ramptrace("replay", *flags, "--target", url, "--region", "us-east-1", "--run-dir", place, "--json", cwd=cwd)


def test_a_run_in_s3_is_whole_there_also_after_a_kill(s3, tmp_path):
    with start_emulator(credentials=_KEYS, time_scale=20) as url:
        done = replay(url, "s3://runs/done", "0s..2s", tmp_path)
        printed, said = done.communicate(timeout=90)
        assert done.returncode in {0, 5}, said  # a busy machine makes it INVALID, which is not the matter here
        assert "copied to s3://runs/done" in said
        local, copy = tmp_path / "runs" / "done", fetch_run("s3://runs/done")
        assert {n: size for n, (size, _) in stamps(copy.folder).items()} == {
            n: size for n, (size, _) in stamps(local).items() if size
        }
        assert RunDir.open(copy.folder).manifest().state == "finished"
        sent = json.loads(printed)["requests"]["planned"]
        assert RunDir.open(copy.folder).scan("requests").collect().height == sent

        refused = replay(url, "s3://runs/done", "0s..2s", tmp_path / "runs")
        assert "a run is already there" in refused.communicate(timeout=60)[1]
        assert refused.returncode == 2

        killed = replay(url, "s3://runs/killed", "0s..15s", tmp_path)
        deadline = time.monotonic() + 60
        while not any(key.startswith("killed/requests/") for _, key in list(s3.objects)):
            assert time.monotonic() < deadline
            assert killed.poll() is None, killed.stderr.read()
            time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        local = tmp_path / "runs" / "killed"
        while {key.removeprefix("killed/") for _, key in list(s3.objects) if key.startswith("killed/")} != set(
            stamps(local)
        ):
            assert time.monotonic() < deadline, "what was written before the kill is copied after it"
            time.sleep(0.1)

    analysed = ramptrace("analyse", "s3://runs/killed", "--json", cwd=tmp_path)
    printed, said = analysed.communicate(timeout=60)
    assert analysed.returncode == 0, said
    assert ("runs", "killed/analysis/summary.json") in s3.objects
    reported = ramptrace("report", "s3://runs/done", cwd=tmp_path)
    printed, said = reported.communicate(timeout=60)
    assert (reported.returncode, printed.strip()) == (0, "report: s3://runs/done/report.html"), said
    assert s3.objects["runs", "done/report.html"].startswith(b"<!doctype html>")
    missing = ramptrace("analyse", "s3://runs/nothing", cwd=tmp_path)
    assert "s3://runs/nothing: not a run directory" in missing.communicate(timeout=60)[1]
    assert missing.returncode == 2


def test_a_finished_run_is_copied_by_mirror(s3, tmp_path, monkeypatch):
    from traces.manifest import Manifest

    RunDir.create(tmp_path / "run", Manifest(run_id="r", state="finished"))
    copied = ramptrace("mirror", "run", "s3://runs/copy", "--json", cwd=tmp_path)
    printed, said = copied.communicate(timeout=60)
    assert copied.returncode == 0, said
    assert json.loads(printed) == {"schema": 1, "run": "run", "copy": "s3://runs/copy", "objects": 1}
    for wrong, why in (("runs/copy", "not an address in S3"), ("s3://secret/x", "S3 refused")):
        refused = ramptrace("mirror", "run", wrong, cwd=tmp_path)
        assert why in refused.communicate(timeout=60)[1]
        assert refused.returncode == 2
