"""Workers on other hosts: network namespaces with links of their own, one of them slow, one of them cut.

Each host has its own loopback, with a server on it: load goes to 127.0.0.1 alone, whatever becomes of the links.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from traces.run import RunDir, write_parquet
from traces.schema import Trace

pytestmark = pytest.mark.e2e

SERVER, RELAY = Path(__file__).with_name("server.py"), Path(__file__).with_name("slow_link.py")
PORT = 8000
ROWS = 360
GAP_MS = 50
DELAY_MS = 30


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Hosts:
    """A master's host and two workers', joined by links between them and the master."""

    def __init__(self) -> None:
        self.names = {host: f"rt{os.getpid()}{host}" for host in "mab"}

    def make(self) -> None:
        for name in self.names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        master = self.names["m"]
        for number, host in enumerate("ab", 1):
            ip("link", "add", f"to{host}", "netns", master, "type", "veth", "peer", "eth0", "netns", self.names[host])
            ip("-n", master, "addr", "add", f"10.77.{number}.1/24", "dev", f"to{host}")
            ip("-n", self.names[host], "addr", "add", f"10.77.{number}.2/24", "dev", "eth0")
            ip("-n", master, "link", "set", f"to{host}", "up")
            ip("-n", self.names[host], "link", "set", "eth0", "up")

    def slow_down(self, host: str) -> bool:
        """Delay what a host sends, and not what it receives; False where the kernel cannot."""
        netem = ["tc", "-n", self.names[host], "qdisc", "add", "dev", "eth0", "root", "netem", "delay", f"{DELAY_MS}ms"]
        return subprocess.run(netem, check=False, capture_output=True, text=True).returncode == 0

    def cut(self, host: str) -> None:
        ip("-n", self.names["m"], "link", "set", f"to{host}", "down")

    def start(self, host: str, *command: str, **more) -> subprocess.Popen:
        line = ["ip", "netns", "exec", self.names[host], *command]
        return subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
        )

    def remove(self) -> None:
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture(scope="module")
def hosts():
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("network namespaces need root on Linux")
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("needs ip and tc: apt-get install iproute2")
    found = Hosts()
    permitted = subprocess.run(["ip", "netns", "add", found.names["m"]], check=False, capture_output=True, text=True)
    if permitted.returncode:
        pytest.skip(f"network namespaces are not permitted here: {permitted.stderr.strip()}")
    found.remove()
    try:
        found.make()
        yield found
    finally:
        found.remove()


class Outcome:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "hidden" / "run"
        self.codes: dict[str, int] = {}
        self.said: dict[str, str] = {}
        self.summary: dict = {}

    def rows(self) -> pl.DataFrame:
        return RunDir(self.run).scan("requests").sort("row_id").collect()


def wait_for(condition, seconds=60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("it did not come to that")
        time.sleep(0.05)


@pytest.fixture(scope="module")
def outcome(hosts, tmp_path_factory) -> Outcome:
    """One run: host a is slow, host b is cut off in its midst. No host sees another's directory."""
    found = Outcome(tmp_path_factory.mktemp("hosts"))
    folder, hidden = found.folder, found.folder / "hidden"
    hidden.mkdir()
    data = {name: [None] * ROWS for name in pl.Schema(Trace)}
    data |= {"row_id": list(range(ROWS)), "arrival_us": [i * GAP_MS * 1000 for i in range(ROWS)]}
    data |= {"input_tokens": [10] * ROWS, "output_tokens": [6] * ROWS}
    write_parquet(folder / "trace.parquet", pl.DataFrame(data, schema=pl.Schema(Trace)))
    (folder / "scenario.toml").write_text(
        '[trace]\npath = "trace.parquet"\n[verdict]\ninvalid_lag_p99_ms = 1000.0\ninvalid_untrusted_share = 1.0\n'
        f'degraded_lag_p99_ms = 5.0\n[target]\nurl = "http://127.0.0.1:{PORT}/ok"\n'
        '[replay]\nlead = "1s"\nflush = "200ms"\n'
    )
    servers, started = {}, {}
    try:
        for host in "mab":
            log = folder / f"server-{host}.log"
            log.touch()
            servers[host] = hosts.start(host, sys.executable, str(SERVER), str(log), "--port", str(PORT))
            assert servers[host].stdout.readline().strip() == str(PORT)
        ours = [sys.executable, "-m", "ramptrace", "replay"]
        master = [*ours, "scenario.toml", "--master", "--expect-workers", "2", "--master-bind-host", "0.0.0.0"]
        started["m"] = hosts.start("m", *master, "--run-dir", str(found.run), "--json", cwd=folder)
        at = {"a": "10.77.1.1", "b": "10.77.2.1"}
        if not hosts.slow_down("a"):
            relay = [sys.executable, str(RELAY), "5557", at["a"], "5557", str(DELAY_MS / 1000)]
            servers["relay"] = hosts.start("a", *relay)
            assert servers["relay"].stdout.readline()
            at["a"] = "127.0.0.1"
        for host in "ab":
            cover = f'mount -t tmpfs none "{hidden}" && exec "$0" "$@"'
            worker = [
                *ours,
                "--worker",
                "--master-host",
                at[host],
                "--run-dir",
                str(folder / f"part-{host}"),
            ]
            started[host] = hosts.start(host, "sh", "-c", cover, *worker, cwd=folder)
        wait_for(lambda: len((folder / "server-b.log").read_text().splitlines()) > 40)
        hosts.cut("b")
        for host in "mab":
            stdout, found.said[host] = started[host].communicate(timeout=90)
            found.codes[host] = started[host].returncode
            if host == "m":
                found.summary = json.loads(stdout) if stdout.startswith("{") else {}
    finally:
        for process in [*started.values(), *servers.values()]:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=30)
    return found


def test_a_cut_link_makes_the_run_invalid_and_the_other_worker_finishes(outcome):
    assert outcome.codes["m"] == 5, outcome.said["m"]
    assert outcome.codes["a"] == 0, outcome.said["a"]
    assert outcome.summary["verdict"]["status"] == "INVALID"
    states = {worker["shard"]: worker["state"] for worker in outcome.summary["workers"]}
    assert sorted(states.values()) == ["finished", "lost"]
    assert "out of reach" in outcome.said["m"]
    assert "ramptrace merge" in outcome.said["m"]
    found = outcome.rows()
    assert found.height == ROWS // 2, "those of the worker that could be reached were fetched"
    assert set(found["outcome"]) == {"ok"}
    assert outcome.summary["requests"]["not_sent"] == {"worker_lost": ROWS // 2}


def test_a_worker_that_lost_its_master_stops_by_itself(outcome):
    assert outcome.codes["b"] == 4, outcome.said["b"]
    assert "no word from the master" in outcome.said["b"]
    part = RunDir(outcome.folder / "part-b")
    kinds = part.scan("requests").collect()["error_kind"].drop_nulls().unique().to_list()
    assert kinds == ["master_lost"]


def test_a_clock_is_read_right_over_a_slow_link(outcome):
    """The hosts share one clock here, so the true offset is nought; the link is slow in one direction only."""
    slow = max(outcome.summary["workers"], key=lambda worker: worker["clock_error_us"])
    for worker in outcome.summary["workers"]:
        assert abs(worker["clock_offset_us"]) <= worker["clock_error_us"]
    assert slow["state"] == "finished"
    assert slow["clock_error_us"] >= DELAY_MS * 1000 / 2
    reasons = " ".join(outcome.summary["verdict"]["reasons"])
    assert "error of the workers' clocks" in reasons


def test_what_a_lost_worker_recorded_is_merged_into_the_run(outcome):
    folder, part = outcome.folder, outcome.folder / "part-b"
    line = [sys.executable, "-m", "ramptrace"]

    def call(*arguments):
        return subprocess.run([*line, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False)

    said = call("analyse", str(outcome.run)).stdout
    assert f"{ROWS // 2} have no row at all" in said
    assert "only what worker" in call("analyse", str(part)).stdout
    before = RunDir(part).scan("requests").collect()
    merged = call("merge", str(outcome.run), str(part), "--json")
    summary = json.loads(merged.stdout)
    found = outcome.rows()
    assert found.height == ROWS // 2 + before.height
    assert found["row_id"].is_unique().all()
    assert {worker["state"] for worker in summary["workers"]} == {"finished", "merged"}
    lost = before.filter(pl.col("outcome") == "not_sent").height
    assert merged.returncode == (5 if lost > 0.01 * ROWS else 0)
    again = call("merge", str(outcome.run), str(part))
    assert again.returncode == 2
    assert "already" in again.stderr
