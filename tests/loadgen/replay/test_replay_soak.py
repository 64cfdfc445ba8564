"""Loops, durations, stops and kills: whatever happens, each row of the plan is sent at most once and recorded once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time

import polars as pl
import psutil
import pytest

from traces.run import RunDir

pytestmark = pytest.mark.e2e


def start(command, tmp_path) -> subprocess.Popen:
    return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_shards(tmp_path, count: int) -> None:
    for _ in range(800):
        if len(list((tmp_path / "run/requests").glob("[!.]*.parquet"))) >= count:
            return
        time.sleep(0.05)
    pytest.fail("no shards were written")


def resume(tmp_path, *more):
    line = [sys.executable, "-m", "ramptrace", "replay", "--resume", str(tmp_path / "run"), "--json", *more]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else None, done.stderr


def test_a_loop_sends_the_trace_again_and_again_until_its_duration(server, trace, replay, rows, tmp_path):
    code, summary, stderr = replay(
        trace([0, 100, 200, 300], session_id=["a", "a", None, None]), server.url("ok"), "--loop", "--duration", "1s"
    )
    assert code == 0, stderr
    found = rows()
    # a lap lasts 400 ms: the span and one mean gap more
    assert found["row_id"].to_list() == list(range(10))
    due_ms = (found["due"] - found["due"][0]).dt.total_milliseconds().to_list()
    assert due_ms == [i * 100 for i in range(10)]
    assert summary["requests"]["planned"] == summary["requests"]["ok"] == 10
    manifest = RunDir.open(tmp_path / "run").manifest()
    assert (manifest.laps.rows, manifest.laps.length_us, manifest.laps.stride) == (4, 400_000, 4)
    assert summary["estimate"]["requests"] == 10


def test_a_duration_shorter_than_the_trace_cuts_it(server, trace, replay, rows):
    code, summary, _ = replay(trace([0, 100, 200, 300]), server.url("ok"), "--loop", "--duration", "150ms")
    assert (code, summary["requests"]["planned"], rows()["row_id"].to_list()) == (0, 2, [0, 1])


def test_a_loop_without_end_is_stopped_and_resumed(server, trace, command, rows, tmp_path):
    process = start(command(trace([i * 20 for i in range(40)]), server.url("ok"), "--loop", "--json"), tmp_path)
    wait_for_shards(tmp_path, 4)
    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    first = rows()
    assert first["row_id"].to_list() == list(range(first.height)), "no gap, and no row beyond"
    assert set(first["outcome"].to_list()) <= {"ok", "cancelled"}
    assert json.loads(stdout)["requests"]["planned"] == first.height
    assert RunDir.open(tmp_path / "run").manifest().state == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_resume_neither_loses_nor_repeats_a_row(server, trace, command, rows, tmp_path, number):
    count = 300
    process = start(command(trace([i * 15 for i in range(count)]), server.url("ok")), tmp_path)
    wait_for_shards(tmp_path, 3)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGTERM else -signal.SIGKILL)
    before = rows().filter(pl.col("outcome") != "not_sent")
    assert 0 < before.height < count
    code, summary, stderr = resume(tmp_path)
    assert code == 0, stderr
    after = rows()
    assert after["row_id"].to_list() == list(range(count))
    killed = after.filter(pl.col("error_kind") == "killed")
    assert set(after["outcome"].to_list()) <= {"ok", "cancelled"}
    assert after.filter(pl.col("outcome") == "cancelled").height == killed.height
    if number == signal.SIGTERM:
        assert killed.height == 0
    assert killed["sent"].null_count() == killed.height
    # what was recorded stays as it was
    kept = after.join(before.select("row_id"), on="row_id", how="semi")
    assert kept.equals(before)
    # the server saw no row twice: at most as many requests as there are rows, and one for each answer
    posts = len(server.posts("ok"))
    assert summary["requests"]["ok"] <= posts <= count
    manifest = RunDir.open(tmp_path / "run").manifest()
    assert manifest.state == "finished"
    assert len(manifest.stretches) == 2
    # due instants keep the trace's spacing within each stretch
    rest = after.filter(pl.col("row_id") >= manifest.stretches[1].position)
    assert set(rest["due"].diff().drop_nulls().dt.total_milliseconds().to_list()) == {15}
    assert resume(tmp_path)[0] == 2, "a finished run is not gone on with"


def test_turns_that_waited_at_a_stop_are_sent_by_the_resume(server, trace, command, rows, tmp_path):
    """Two turns think for a minute when the run is stopped: taken from the plan, and not sent."""
    count, parent = 60, 8
    parents = [None] * count
    waited = [parent + 1, parent + 3]
    parents[waited[0]] = parents[waited[1]] = parent
    source = trace(
        [i * 50 for i in range(count)],
        parent_row=parents,
        think_us=[None if p is None else 60_000_000 for p in parents],
    )
    process = start(command(source, server.url("ok")), tmp_path)
    wait_for_shards(tmp_path, 12)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 130
    stopped = rows()
    assert stopped["row_id"].to_list() == list(range(count))
    sent = stopped.filter(pl.col("outcome") != "not_sent")
    assert sent["row_id"].max() > waited[1], "the plan went on beyond the turns that wait"
    assert not set(waited) & set(sent["row_id"])
    code, summary, stderr = resume(tmp_path)
    assert code == 0, stderr
    after = rows()
    assert after["row_id"].to_list() == list(range(count))
    assert set(after["outcome"]) == {"ok"}
    assert summary["requests"]["ok"] == len(server.posts("ok")) == count
    assert after.join(sent.select("row_id"), on="row_id", how="semi").equals(sent)


def test_a_query_that_was_not_kept_has_to_be_given_again(server, trace, command, tmp_path):
    url = server.url("ok") + "?key=secret"
    process = start(command(trace([i * 20 for i in range(200)]), url), tmp_path)
    wait_for_shards(tmp_path, 3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert "secret" not in (tmp_path / "run/run.json").read_text()
    code, _, stderr = resume(tmp_path)
    assert (code, stderr.count("\n"), "--target" in stderr) == (2, 1, True)
    code, _, stderr = resume(tmp_path, "--target", server.url("other") + "?key=secret")
    assert (code, "own target" in stderr, "secret" in stderr) == (2, True, False)
    code, summary, stderr = resume(tmp_path, "--target", url)
    assert code == 0, stderr
    assert summary["requests"]["ok"] == 200


def test_killed_again_and_again(server, trace, command, rows, tmp_path):
    """Kills at odd moments, in different laps; then a resume to the end accounts for each row once."""
    first = command(trace([i * 10 for i in range(200)]), server.url("ok"), "--loop", "--duration", "8s")
    process = start(first, tmp_path)
    line = [sys.executable, "-m", "ramptrace", "replay", "--resume", str(tmp_path / "run")]
    for kill in range(3):
        wait_for_shards(tmp_path, 6 * (kill + 1))
        time.sleep(0.13 * kill)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
        process = start(line, tmp_path)
    _, stderr = process.communicate(timeout=90)
    assert process.returncode == 0, stderr
    found = rows()
    assert found["row_id"].to_list() == list(range(800))
    assert len(server.posts("ok")) <= 800
    assert found.filter(pl.col("outcome") == "ok").height <= len(server.posts("ok"))


def test_a_run_is_written_by_one_process_at_a_time(server, trace, command, tmp_path):
    process = start(command(trace([i * 20 for i in range(1000)]), server.url("ok")), tmp_path)
    try:
        wait_for_shards(tmp_path, 1)
        code, _, stderr = resume(tmp_path)
        assert code == 2
        assert "another replay" in stderr
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_resume_takes_no_other_plan(server, trace, command, tmp_path):
    subprocess.run(command(trace([0]), server.url("ok")), cwd=tmp_path, capture_output=True, timeout=60, check=False)
    code, _, stderr = resume(tmp_path, "--window", "1s..")
    assert code == 2
    assert "leave out window" in stderr
    code, _, stderr = resume(tmp_path)
    assert (code, "finished" in stderr, stderr.count("\n")) == (2, True, 1)


def test_a_lost_checkpoint_is_said_and_nothing_is_sent(server, trace, command, tmp_path):
    process = start(command(trace([i * 20 for i in range(1000)]), server.url("ok")), tmp_path)
    wait_for_shards(tmp_path, 2)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    (tmp_path / "run/checkpoint.bin").unlink()
    posts = len(server.posts("ok"))
    code, _, stderr = resume(tmp_path)
    assert (code, stderr.count("\n")) == (2, 1)
    assert "checkpoint" in stderr
    assert len(server.posts("ok")) == posts


def test_memory_does_not_grow_with_the_number_of_requests(server, trace, command, rows, tmp_path):
    """The short form of the soak: 4,000 requests in 20 laps. What is kept of each would show, from 8 KB each on."""
    line = command(trace([i * 5 for i in range(200)]), server.url("ok"), "--loop", "--duration", "20s")
    process = start(line, tmp_path)
    sizes = []
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            sizes.append((len(server.posts("ok")), psutil.Process(process.pid).memory_info().rss / 1e6))
        time.sleep(0.5)
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert rows()["row_id"].to_list() == list(range(4000))
    sending = [size for sent, size in sizes if 1000 <= sent < 4000]
    quarter = max(1, len(sending) // 4)
    assert statistics.median(sending[-quarter:]) - statistics.median(sending[:quarter]) < 20, sizes


def test_connections_that_a_stall_left_over_are_closed(monkeypatch):
    from loadgen import httpclient

    class Idle:
        closed = False

        def close(self):
            self.closed = True

    address = httpclient.Address(host="x", port=1, tls=False, sockaddrs=())
    client = httpclient.HttpClient(address, context=None, connect_timeout_s=1, now_us=lambda: 0)
    idle = [Idle() for _ in range(100)]
    client._idle.extend(httpclient._Idle(sock) for sock in idle)
    monkeypatch.setattr(httpclient, "_SURPLUS_S", -1)
    client.ensure(10)  # nothing is known of the time before
    assert not any(sock.closed for sock in idle)
    client.ensure(10)
    assert [sock.closed for sock in idle] == [True] * 90 + [False] * 10
    client.ensure(10)
    assert sum(sock.closed for sock in idle) == 90
