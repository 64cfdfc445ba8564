"""As a locustfile: Locust's own flags do what they say, and the run directory is the same as ever."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.loadgen.replay.pages import Page
from traces.run import RunDir

pytestmark = pytest.mark.e2e


def line(trace, url, tmp_path, *more):
    import loadgen

    file = Path(loadgen.__file__).with_name("locustfile.py")
    (tmp_path / "scenario.toml").write_text(
        f'[trace]\npath = "{trace}"\n[verdict]\ninvalid_lag_p99_ms = 60000.0\ninvalid_untrusted_share = 1.0\n'
        f'[target]\nurl = "{url}"\n[replay]\nlead = "500ms"\nflush = "100ms"\n'
    )
    return [sys.executable, "-m", "locust", "-f", str(file), "--scenario", str(tmp_path / "scenario.toml"), *more]


def headless(trace, url, tmp_path, *more):
    command = line(trace, url, tmp_path, "--headless", "--run-dir", str(tmp_path / "run"), *more)
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)


def recorded(tmp_path):
    return RunDir(tmp_path / "run").scan("requests").sort("row_id").collect()


def test_its_csv_html_and_json_hold_the_whole_run(server, trace, tmp_path):
    path = trace([i * 50 for i in range(41)])
    done = headless(path, server.url("ok"), tmp_path, "--csv", "out/c", "--html", "out/r.html", "--json-file", "out/j")
    assert done.returncode == 0, done.stderr
    assert recorded(tmp_path).height == 41
    with (tmp_path / "out/c_stats.csv").open() as file:
        rows = {row["Name"]: row for row in csv.DictReader(file)}
    assert int(rows["Aggregated"]["Request Count"]) == 41
    (entry,) = json.loads((tmp_path / "out/j.json").read_text())
    assert (entry["num_requests"], entry["num_failures"], entry["name"]) == (41, 0, "served-model")
    assert "served-model" in (tmp_path / "out/r.html").read_text()
    # three significant digits: a response time of some 40 ms keeps its tenths
    assert any(float(bucket) % 1 for bucket in entry["response_times"])


_OPTIONS = """
import json, locust.argument_parser
from loadgen import locustfile
from loadgen.cli import replay
parser = locust.argument_parser.LocustArgumentParser()
locustfile._add_options(parser)
shown = [name for action in parser._actions for name in action.option_strings if action.include_in_web_ui]
print(json.dumps([shown, [name for option in replay.params for name in (*option.opts, *option.secondary_opts)]]))
"""


def test_every_option_of_the_replay_is_one_of_locusts():
    """Whatever `ramptrace replay` takes, Locust takes, and its start form shows, but for what Locust does itself."""
    said = subprocess.run([sys.executable, "-c", _OPTIONS], capture_output=True, text=True, timeout=60, check=True)
    shown, ours = map(set, json.loads(said.stdout.splitlines()[-1]))
    locusts = {"--workers", "--master", "--worker", "--expect-workers", "--json", "--target"}  # --target is its --host
    locusts |= {f"--master-{what}" for what in ("bind-host", "bind-port", "host", "port")}
    # A run that is gone on with has no start form; without a word, a scenario's [collect] table is heeded.
    assert {name for name in ours - shown if name.startswith("--")} == locusts | {"--resume", "--collect"}


def test_its_options_reach_the_replay(server, trace, tmp_path):
    done = headless(trace([0, 20]), server.url("ok"), tmp_path, "--record-chunks", "--abort-grace", "5s")
    assert done.returncode == 0, done.stderr
    assert all(len(chunks) > 1 for chunks in recorded(tmp_path)["chunk_us"])
    done = headless(trace([0, 20]), server.url("ok"), tmp_path, "--max-cost", "1", "--run-dir", "other")
    assert done.returncode == 2
    assert "prices" in done.stderr
    headless(trace([0, 20]), server.url("ok"), tmp_path, "--no-stream", "--run-dir", "whole")
    whole = RunDir(tmp_path / "whole").scan("requests").collect()
    assert whole["outcome"].to_list() == ["ok", "ok"]
    assert whole["first_token"].null_count() == 2


def test_its_run_time_is_a_planned_end(server, trace, tmp_path):
    done = headless(trace([i * 20 for i in range(1000)]), server.url("ok"), tmp_path, "--run-time", "3s")
    assert done.returncode == 0, done.stderr
    found = recorded(tmp_path)
    assert found["row_id"].to_list() == list(range(1000))
    rest = found.filter(found["outcome"] == "not_sent")
    assert 0 < rest.height < 1000
    assert set(rest["error_kind"]) == {"run_time"}
    assert set(found.filter(found["outcome"] != "not_sent")["outcome"]) == {"ok"}
    manifest = RunDir.open(tmp_path / "run").manifest()
    assert manifest.state == "finished"
    assert not any("stopped" in reason for reason in manifest.verdict["reasons"])


def test_tags_leave_the_trace_whole(server, trace, tmp_path):
    done = headless(trace([0, 20]), server.url("ok"), tmp_path, "--tags", "chat", "--exclude-tags", "slow")
    assert done.returncode == 0, done.stderr
    assert recorded(tmp_path)["outcome"].to_list() == ["ok", "ok"]
    assert "tags" in done.stderr
    assert "no tasks left" not in done.stderr


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        (["--max-requests", "1"], 2, "--max-requests"),
        (["--window", "100s.."], 2, "no arrival"),
        (["--host", "http://127.0.0.1:1"], 4, "refused"),
        (["--abort-on", "errors>x"], 2, "percentage"),
    ],
)
def test_exit_codes_are_ours(server, trace, tmp_path, more, code, word):
    done = headless(trace([0, 20]), server.url("ok"), tmp_path, *more)
    assert done.returncode == code, done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert not server.posts("ok")


def test_a_stop_reports_what_it_cut(server, trace, tmp_path):
    """Requests that never end are cut at the stop; Locust's own table has them too."""
    command = line(trace([0, 10, 20, 60_000]), server.url("hang"), tmp_path, "--headless", "--json")
    (tmp_path / "scenario.toml").write_text((tmp_path / "scenario.toml").read_text() + 'stop_grace = "300ms"\n')
    command += ["--run-dir", str(tmp_path / "run")]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(400):
        if len(server.posts("hang")) == 3:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert recorded(tmp_path)["outcome"].to_list() == ["cancelled"] * 3 + ["not_sent"]
    assert json.loads(stdout)[0]["num_failures"] == 3


def page_of(trace, url, tmp_path, *more, **environment):
    return Page(line(trace, url, tmp_path, *more), tmp_path, **environment)


def test_the_start_form_has_our_options_and_a_second_run_starts_clean(server, trace, tmp_path):
    def finished():
        found = [RunDir.open(run).manifest() for run in tmp_path.glob("runs/*")]
        return {manifest.condition for manifest in found if manifest.state == "finished"}

    page = page_of(trace([i * 20 for i in range(10)]), server.url("ok"), tmp_path)
    try:
        page.until(lambda: page.get("/"))
        form = page.get("/")[1]
        assert all(name in form for name in ("abort_on", "warm_up", "max_requests", "condition", "window"))
        for condition in ("first", "second"):
            answer = page.get("/swarm", user_count="1", spawn_rate="1", condition=condition, duration="150ms")
            assert json.loads(answer[1])["success"]
            wanted = {"first", "second"} if condition == "second" else {"first"}
            page.until(lambda wanted=wanted: page.stats()["state"] == "stopped" and finished() == wanted)
            (entry,) = [s for s in page.stats()["stats"] if s["name"] == "Aggregated"]
            assert entry["num_requests"] == 8, "the second run's own, and no more"
    finally:
        page.close()
    assert page.process.returncode == 0


def test_web_login_lets_in_who_knows_the_password(server, trace, tmp_path):
    secret = {"RAMPTRACE_WEB_USER": "ada", "RAMPTRACE_WEB_PASSWORD": "engine 1843"}
    page = page_of(trace([0]), server.url("ok"), tmp_path, "--web-login", **secret)
    try:
        page.until(lambda: page.get("/login"))
        assert "/login" in page.get("/")[0]
        assert "ramptrace-login" in page.get("/login")[1]
        assert "/login" in page.get("/ramptrace-login", username="ada", password="engine")[0]
        assert "/login" in page.get("/stats/requests")[0]
        assert page.get("/ramptrace-login", username="ada", password="engine 1843")[0].endswith(f":{page.port}/")
        assert page.stats()["state"] == "ready"
    finally:
        page.close()


def test_web_login_without_a_password_is_refused(server, trace, tmp_path):
    page = page_of(trace([0]), server.url("ok"), tmp_path, "--web-login")
    _, stderr = page.process.communicate(timeout=30)
    assert page.process.returncode == 2
    assert "RAMPTRACE_WEB_PASSWORD" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("given", [["--tls-cert"], ["--tls-key"], ["--tls-cert", "--tls-key"]])
def test_a_certificate_that_would_not_protect_is_refused(server, trace, tmp_path, given):
    file = tmp_path / "no.pem"
    file.write_text("not a certificate")
    page = page_of(trace([0]), server.url("ok"), tmp_path, *[word for option in given for word in (option, str(file))])
    _, stderr = page.process.communicate(timeout=30)
    assert page.process.returncode == 2
    assert ("cannot be used" if len(given) == 2 else "plain HTTP") in stderr
    assert "Traceback" not in stderr
