"""Whole replays against a real server on loopback: every row is accounted for, whatever the server does."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import polars as pl
import pytest

from traces.clock import to_us
from traces.run import RunDir

pytestmark = pytest.mark.e2e

STEADY = [i * 40 for i in range(20)]


def test_a_plain_run_records_each_row_in_order_of_its_instants(server, trace, replay, rows, tmp_path):
    code, summary, stderr = replay(trace(STEADY), server.url("ok"), "--condition", "image-cache-off")
    assert (code, stderr) == (0, "")
    assert summary["requests"] == {"planned": 20, "sent": 20, "ok": 20, "cancelled": 0, "failed": {}, "not_sent": {}}
    found = rows()
    assert found["row_id"].to_list() == list(range(20))
    order = ["due", "sent", "headers", "first_token", "last_token", "done"]
    for earlier, later in itertools.pairwise(order):
        assert (found[earlier] <= found[later]).all(), (earlier, later)
    assert found["input_tokens"].to_list() == [7] * 20
    assert found["output_tokens"].to_list() == [6] * 20
    assert found["chunks"].to_list() == [6] * 20
    assert found["unit_id"].to_list() == ["i-0123"] * 20
    assert found["chunk_us"].null_count() == 20, "kept only where asked for"
    # The role-only chunk at once is not the first token: that comes 30 ms later. A machine that was busy reads the
    # headers late and so some of these gaps too short, but not all of them, and never both in one piece.
    gaps = (found["first_token"] - found["headers"]).dt.total_microseconds()
    assert (gaps > 0).all()
    assert gaps.max() > 25_000
    manifest = RunDir.open(tmp_path / "run").manifest()
    assert (manifest.state, manifest.condition, manifest.emulated) == ("finished", "image-cache-off", False)
    assert manifest.verdict == summary["verdict"]
    due = [to_us(instant) - manifest.t0_us for instant in found["due"]]
    assert due == [ms * 1000 for ms in STEADY]
    assert pl.read_parquet(tmp_path / "run/trace.parquet")["arrival_us"].to_list() == due
    assert len(server.posts("ok")) == 20


@pytest.mark.parametrize(
    ("behaviour", "outcome", "kind"),
    [
        ("truncated", "truncated", "closed_early"),
        ("cleancut", "truncated", "no_end_marker"),
        ("error", "stream_error", "server_error"),
        ("closed", "truncated", "closed_before_response"),
        ("503", "http_error", "http_503"),
        ("429", "http_error", "http_429"),
        ("crlf", "ok", None),
        ("reasoning", "ok", None),
        ("garbage", "stream_error", "bad_http"),
    ],
)
def test_each_kind_of_answer_has_its_outcome_and_is_asked_for_once(
    server, trace, replay, rows, tmp_path, behaviour, outcome, kind
):
    code, summary, _ = replay(trace([0, 30, 60, 200]), server.url(behaviour))
    found = rows()
    assert found["outcome"].unique().to_list() == [outcome]
    # (the connection over which the models were listed is one that had been idle)
    assert set(found["error_kind"]) - ({"stale_connection"} if behaviour == "closed" else set()) == {kind}
    assert found["row_id"].to_list() == [0, 1, 2, 3]
    assert len(server.posts(behaviour)) == 4
    # A failed request is a result, not an error. Four requests on a busy machine may be late; but all were sent.
    assert not [r for r in summary["verdict"]["reasons"] if "sent" in r or "reached the target" in r]
    assert code == (5 if summary["verdict"]["status"] == "INVALID" else 0)
    assert sum(summary["requests"]["failed"].values()) == (0 if outcome == "ok" else 4)
    for file in (tmp_path / "run").rglob("*"):
        assert file.is_dir() or b"SECRET" not in file.read_bytes()


def test_reasoning_counts_as_first_token_but_is_not_visible(server, trace, replay, rows):
    replay(trace([0, 50]), server.url("reasoning"))
    found = rows()
    assert ((found["first_visible_token"] - found["first_token"]).dt.total_microseconds() > 40_000).all()


def test_a_whole_answer_has_usage_but_no_token_instants(server, trace, replay, rows):
    replay(trace([0, 50]), server.url("ok"), "--no-stream")
    found = rows()
    assert found["outcome"].to_list() == ["ok", "ok"]
    assert found["output_tokens"].to_list() == [6, 6]
    assert found["first_token"].null_count() == 2


def test_the_instants_of_all_chunks_are_kept_where_asked_for(server, trace, replay, rows):
    replay(trace([0, 50]), server.url("ok"), "--record-chunks")
    for row in rows().iter_rows(named=True):
        assert len(row["chunk_us"]) == row["chunks"] == 6
        assert row["chunk_us"] == sorted(row["chunk_us"])
        instants = [to_us(row["sent"]) + offset for offset in row["chunk_us"]]
        assert (instants[0], instants[-1]) == (to_us(row["first_token"]), to_us(row["last_token"]))
        assert max(b - a for a, b in itertools.pairwise(instants)) == row["max_gap_us"]


def test_a_slow_server_does_not_delay_the_schedule(server, trace, replay, rows):
    """The open loop: 60 answers of more than half a second each, due within 0.3 s, are all under way at once."""
    replay(trace([i * 5 for i in range(60)]), server.url("slow"))
    found = rows()
    assert found["outcome"].to_list() == ["ok"] * 60
    assert found["sent"].max() < found["done"].min()


def test_a_server_that_closes_idle_connections_loses_nothing(server, trace, replay, rows):
    """Requests every 15 ms meet connections in every state of closing; none fails, and none is answered twice."""
    _, summary, _ = replay(trace([i * 15 for i in range(80)]), server.url("impatient"))
    assert rows()["outcome"].to_list() == ["ok"] * 80
    assert summary["resent"] >= 0
    assert len(server.posts("impatient")) == 80


def test_a_cap_makes_requests_late_and_says_so(server, trace, replay, rows):
    code, summary, _ = replay(trace([0, 0, 0, 0]), server.url("slow"), "--max-in-flight", "1", limits="")
    assert code == 5
    assert summary["verdict"]["status"] == "INVALID"
    found = rows()
    assert found["outcome"].to_list() == ["ok"] * 4
    assert (found["sent"].sort()[1:] >= found["done"].sort()[:-1]).all()


def test_the_window_is_what_is_sent(server, trace, replay, rows, tmp_path):
    replay(trace([0, 100, 200, 300]), server.url("ok"), "--window", "100ms..300ms")
    assert rows()["row_id"].to_list() == [1, 2]
    assert pl.read_parquet(tmp_path / "run/trace.parquet")["arrival_us"].to_list() == [0, 100_000]


def start(command, tmp_path) -> subprocess.Popen:
    return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_shards(tmp_path, count: int) -> None:
    for _ in range(400):
        if len(list((tmp_path / "run/requests").glob("[!.]*.parquet"))) >= count:
            return
        time.sleep(0.05)
    pytest.fail("no shards were written")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_keeps_the_data_and_accounts_for_the_rest(server, trace, command, rows, tmp_path, number):
    process = start(command(trace([i * 20 for i in range(1000)]), server.url("ok"), "--json"), tmp_path)
    wait_for_shards(tmp_path, 3)
    process.send_signal(number)
    stdout, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    found = rows()
    assert found["row_id"].to_list() == list(range(1000))
    rest = found.filter(pl.col("outcome") == "not_sent")
    assert 0 < rest.height < 1000
    assert rest["error_kind"].unique().to_list() == ["interrupted"]
    assert rest["sent"].null_count() == rest.height
    assert RunDir.open(tmp_path / "run").manifest().state == "interrupted"
    assert json.loads(stdout)["requests"]["not_sent"] == {"interrupted": rest.height}


def test_a_second_stop_ends_what_is_under_way(server, trace, command, rows, tmp_path):
    process = start(command(trace([0, 10, 20, 5000]), server.url("hang")), tmp_path)
    for _ in range(200):
        if len(server.posts("hang")) == 3:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert rows()["outcome"].to_list() == ["cancelled"] * 3 + ["not_sent"]


def test_kill_leaves_readable_tables(server, trace, command, rows, tmp_path):
    process = start(command(trace([i * 20 for i in range(1000)]), server.url("ok")), tmp_path)
    wait_for_shards(tmp_path, 3)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    found = rows()
    assert found.height > 0
    assert found["row_id"].is_unique().all()
    assert RunDir.open(tmp_path / "run").manifest().state == "running"


def test_answers_that_do_not_come_end_with_the_drain(server, trace, command, rows, tmp_path):
    line = command(trace([0, 10]), server.url("hang"))
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(scenario.read_text() + 'drain = "300ms"\n')
    assert subprocess.run(line, cwd=tmp_path, capture_output=True, timeout=30, check=False).returncode == 0
    found = rows()
    assert found["outcome"].to_list() == ["cancelled"] * 2
    assert found["error_kind"].to_list() == ["drain_timeout"] * 2


def test_a_request_has_an_absolute_deadline(server, trace, command, rows, tmp_path):
    line = command(trace([0, 10]), server.url("hang"))
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(scenario.read_text().replace("[replay]", 'request_timeout = "200ms"\n[replay]'))
    assert subprocess.run(line, cwd=tmp_path, capture_output=True, timeout=30, check=False).returncode == 0
    assert rows()["outcome"].to_list() == ["timeout"] * 2


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        (["--target", "http://127.0.0.1:1"], 4, "refused"),
        (["--target", "http://nowhere.invalid"], 4, "resolved"),
        (["--target", "ftp://host"], 2, "expected http"),
        (["--target", "http://user:hidden@127.0.0.1:1"], 2, "api_key_env"),
        (["--window", "100s.."], 2, "no arrival in the window"),
        (["--window", "5s"], 2, "not a window"),
        (["--trace", "absent.csv"], 2, "no such file"),
        (["--emulator", "http://127.0.0.1:1"], 4, "refused"),
    ],
)
def test_bad_input_is_one_line_and_no_run(server, trace, replay, tmp_path, more, code, word):
    found, summary, stderr = replay(trace([0]), server.url("ok"), *more)
    assert (found, summary) == (code, None)
    assert word in stderr
    assert stderr.count("\n") == 1
    assert "hidden" not in stderr
    assert not (tmp_path / "run").exists()


def test_an_existing_run_is_not_written_over(server, trace, replay, tmp_path):
    path = trace([0])
    assert replay(path, server.url("ok"))[0] == 0
    before = sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "run").rglob("*"))
    code, _, stderr = replay(path, server.url("ok"))
    assert code == 2
    assert "already there" in stderr
    assert sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "run").rglob("*")) == before


def lenient(tmp_path, trace, url) -> Path:
    """A scenario for which a busy test machine's own lag is no matter."""
    file = tmp_path / "lenient.toml"
    limits = "invalid_lag_p99_ms = 60000.0\ninvalid_untrusted_share = 1.0\n"
    file.write_text(f'[trace]\npath = "{trace}"\n[target]\nurl = "{url}"\n[verdict]\n{limits}')
    return file


def locust(trace, url, tmp_path, *more):
    import loadgen

    file = Path(loadgen.__file__).with_name("locustfile.py")
    options = ["--scenario", str(lenient(tmp_path, trace, url)), "--target", url, "--run-dir", str(tmp_path / "run")]
    options += ["--headless", *more]
    line = [sys.executable, "-m", "locust", "-f", str(file), *options]
    return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)


def test_as_a_locustfile_the_exit_code_is_the_verdict(server, trace, command, rows, tmp_path):
    done = locust(trace([0, 20, 40]), server.url("503"), tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    assert rows()["outcome"].to_list() == ["http_error"] * 3
    assert json.loads(done.stdout)[0]["num_failures"] == 3


def test_the_web_ui_stops_a_run_and_starts_another(server, trace, command, tmp_path):
    import loadgen

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = trace([i * 20 for i in range(1000)])
    file = Path(loadgen.__file__).with_name("locustfile.py")
    line = [sys.executable, "-m", "locust", "-f", str(file), "--web-host", "127.0.0.1", "--web-port", str(port)]
    line += ["--scenario", str(lenient(tmp_path, path, server.url("ok")))]
    process = start(line, tmp_path)

    def post(route: str, **form: str) -> dict:
        body = urllib.parse.urlencode(form).encode() if form else None
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{route}", body, timeout=30) as answer:
            return json.loads(answer.read())

    def runs() -> list[Path]:
        return sorted(p for p in (tmp_path / "runs").glob("*") if list(p.glob("requests/[!.]*.parquet")))

    def until(condition) -> None:
        for _ in range(300):
            try:
                if condition():
                    return
            except OSError:
                pass
            time.sleep(0.1)
        pytest.fail("it did not come to that")

    try:
        until(lambda: "user_count" in post("/stats/requests"))
        assert post("/swarm", user_count="1", spawn_rate="1", condition="first")["success"]
        until(lambda: len(runs()) == 1)
        assert post("/stop", now="1")["success"]
        assert RunDir.open(runs()[0]).manifest().state == "interrupted"
        assert RunDir.open(runs()[0]).scan("requests").collect().height == 1000
        assert post("/swarm", user_count="1", spawn_rate="1", window="0s..1s", condition="second")["success"]
        until(lambda: len(runs()) == 2 and RunDir.open(runs()[1]).manifest().state == "finished")
        assert [RunDir.open(run).manifest().condition for run in runs()] == ["first", "second"]
        until(lambda: post("/stats/requests")["state"] == "stopped")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_trace_that_does_not_fit_on_the_disk_is_one_clear_line(server, trace, command, tmp_path):
    """The system refuses files beyond 8 kB: the manifest fits, the trace does not."""
    lengths = [(i * 7919) % 4001 for i in range(20_000)]
    arguments = command(trace(lengths, prefix_blocks=[[n, n * 31] for n in lengths]), server.url("ok"))
    limited = f"ulimit -f 8; exec {shlex.join(arguments)}"
    done = subprocess.run(
        ["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ramptrace: ")]
    assert "trace.parquet: cannot be written" in line


def test_a_run_directory_that_is_removed_meanwhile_is_one_clear_line(server, trace, command, tmp_path):
    process = start(command(trace([i * 110 for i in range(66)]), server.url("ok")), tmp_path)
    for _ in range(300):
        if list((tmp_path / "run").glob("requests/*.parquet")):
            break
        time.sleep(0.1)
    # In one step: a shard that is written while a folder is being emptied would keep it there.
    (tmp_path / "run").rename(tmp_path / "gone")
    _, errors = process.communicate(timeout=60)
    assert process.returncode in {1, 2}
    assert "Traceback" not in errors
    assert [str(tmp_path / "run") in line for line in errors.splitlines() if line.startswith("ramptrace: ")] == [True]


def test_a_querys_values_go_to_the_target_and_nowhere_else(server, trace, replay, rows, tmp_path):
    code, _, _ = replay(trace([0, 20]), server.url("ok") + "?api-version=3&key=SECRETkey", "--model", "m")
    assert code == 0
    assert rows()["outcome"].to_list() == ["ok", "ok"]
    asked = [json.loads(line)["path"] for line in server.log.read_text().splitlines() if '"path"' in line]
    assert "/ok/v1/chat/completions?api-version=3&key=SECRETkey" in asked
    for file in (tmp_path / "run").rglob("*"):
        assert file.is_dir() or b"SECRETkey" not in file.read_bytes()


def test_a_refused_address_does_not_show_its_secrets(trace, replay, tmp_path):
    code, _, stderr = replay(trace([0]), "http://me:SECRETpw@127.0.0.1:9/v1?key=SECRETkey")
    assert code == 2
    assert "credentials do not belong" in stderr
    assert "SECRET" not in stderr
