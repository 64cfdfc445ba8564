"""The replay beside an emulator's clock and a collector: stand-ins that speak the same contract."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from traces.run import RunDir

pytestmark = pytest.mark.e2e

COLLECT = '\n[collect]\nendpoint_name = "demo"\ntail = "1s"\n'


@pytest.fixture
def collector(tmp_path, monkeypatch):
    """Put a stand-in `collect` command in front of the real one in the replay's child process."""

    def install(body: str) -> None:
        folder = tmp_path / "stand-in"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(
            "import sys, types, os\n"
            "if 'collect' in sys.argv or 'collect' in ' '.join(sys.orig_argv):\n"
            "    module = types.ModuleType('loadgen.collect.cli')\n"
            "    import click\n"
            "    @click.command()\n"
            "    @click.option('--attach')\n"
            "    def collect(attach):\n"
            + "".join(f"        {line}\n" for line in body.splitlines())
            + "    module.collect = collect\n"
            "    package = types.ModuleType('loadgen.collect'); package.__path__ = []\n"
            "    sys.modules['loadgen.collect'] = package\n"
            "    sys.modules['loadgen.collect.cli'] = module\n"
        )
        import os

        paths = [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))

    return install


def replay_collecting(command, trace, server, tmp_path):
    import subprocess

    line = command(trace([0, 50, 1500]), server.url("ok"))
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(scenario.read_text() + COLLECT)
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return RunDir.open(tmp_path / "run").manifest()


READY = "import pathlib\nprint('{\"ready\": true}', flush=True)\n"


def test_the_collector_is_told_when_the_load_ends(server, trace, command, collector, rows, tmp_path):
    collector(
        READY + "assert os.path.exists(attach + '/run.json')\n"
        "sys.stdin.read()\n"
        "pathlib.Path(attach, 'tail').write_text('seen')"
    )
    manifest = replay_collecting(command, trace, server, tmp_path)
    assert manifest.collector == {"state": "finished", "exit_code": 0, "detail": None}
    assert (tmp_path / "run/tail").read_text() == "seen"
    assert manifest.state == "finished"


def test_a_collector_that_dies_does_not_stop_the_replay(server, trace, command, collector, rows, tmp_path):
    collector(READY + "sys.stderr.write('ramptrace: no credentials\\n')\nsys.exit(4)")
    manifest = replay_collecting(command, trace, server, tmp_path)
    assert manifest.collector == {"state": "died", "exit_code": 4, "detail": "no credentials"}
    assert rows()["outcome"].to_list() == ["ok"] * 3


def test_a_collector_that_dies_before_it_is_ready_holds_nothing_up(server, trace, command, collector, tmp_path):
    collector("sys.exit(2)")
    manifest = replay_collecting(command, trace, server, tmp_path)
    assert (manifest.collector["state"], manifest.collector["exit_code"]) == ("died", 2)


def test_an_emulators_clock_scales_the_schedule(server_with_clock, trace, replay, rows, tmp_path):
    """A target on loopback that answers /_ramptrace/clock: arrivals and latencies are in its time."""
    code, summary, _ = replay(trace([0, 2000, 4000]), server_with_clock.url("ok"))
    assert code == 0
    assert summary["emulated"] is True
    manifest = RunDir.open(tmp_path / "run").manifest()
    assert manifest.clock.time_scale == 20.0
    assert 0 < manifest.clock.error_us < 1_000_000
    due = rows()["due"]
    assert [(d - due[0]).total_seconds() for d in due] == [0.0, 0.1, 0.2]
    sent = summary["latency_ms"]["ttft_from_sent"]["p50"]
    assert sent >= 20 * 25, "30 ms of client time are 600 ms of endpoint time"
    assert sys.platform != "linux" or summary["verdict"]["cpu_share"] is not None


def test_a_collectors_last_words_do_not_repeat_the_programs_name(tmp_path: Path) -> None:
    from loadgen.companion import Companion

    (tmp_path / "collector.log").write_text("collect: reading\nramptrace: no AWS region is set\n")
    assert Companion(tmp_path)._last_words() == "no AWS region is set"
