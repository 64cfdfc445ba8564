"""The live page's routes in Locust's own web UI: bounded, behind the login, closed to other web sites."""

import csv
import io
import json
import sys
from types import SimpleNamespace

import pytest

from loadgen.live.view import LiveView
from tests.analysis.run_builder import Case, build, write
from tests.loadgen.live.living import feed, seen, served, session, twelve_hours, view_of
from traces.run import RunDir

S = 1_000_000


@pytest.fixture(autouse=True)
def no_arguments(monkeypatch):
    """Locust's start form reads the command line."""
    monkeypatch.setattr(sys, "argv", ["locust"])


def data(client, since="", span="whole"):
    answer = client.get(f"/scaling/data?span={span}&since={since}")
    assert answer.status_code == 200
    return json.loads(answer.data), len(answer.data)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return RunDir.open(build(tmp_path_factory.mktemp("live") / "run", Case(), state="running"))


def test_a_run_of_twelve_hours_is_told_in_bounded_pieces(tmp_path):
    found = twelve_hours(tmp_path / "run")
    client = served(view_of(found))
    for span in ("whole", "recent"):
        whole, size = data(client, span=span)
        assert whole["whole"]
        assert size < 150_000
        assert len(whole["bins"]["i"]) <= 900
        assert len(whole["scaling"]["scale_outs"]) == 20
        assert whole["scaling"]["left_out"] == 141 - 20
        assert len(whole["scaling"]["levels"]) <= 600
        nothing, size = data(client, whole["cursor"], span)
        assert not nothing["whole"]
        assert nothing["bins"]["i"] == []
        assert "scaling" not in nothing
        assert size < 1_500
        feed(found.meter, found.manifest.t0_us, 12 * 3600, 12 * 3600 + 1, 5)
        more, size = data(client, nothing["cursor"], span)
        assert 1 <= len(more["bins"]["i"]) <= 3
        assert size < 2_000
    assert sum(data(client)[0]["bins"]["due"]) == 12 * 3600 * 5 + 10


def test_the_reference_case_is_told_with_its_scale_out(reference):
    document, _ = data(served(view_of(session(reference))))
    (scale_out,) = document["scaling"]["scale_outs"]
    assert (scale_out["before"], scale_out["desired"]) == (1, 3)
    assert [unit["now"] for unit in scale_out["units"]] == ["in service"] * 2
    assert document["run"]["emulated"]
    assert document["now"]["verdict"]["status"] == "VALID"
    assert document["now"]["so_far"]


def test_before_a_run_there_is_nothing_to_tell_and_no_error():
    client = served(view_of(None))
    assert data(client)[0]["now"]["stage"] == "idle"
    for table in ("load", "phases"):
        assert len(client.get(f"/scaling/{table}.csv").data.splitlines()) == 1


def test_a_second_run_in_the_same_process_starts_from_nothing(tmp_path):
    runs = [RunDir.open(build(tmp_path / name, Case(), state="running")) for name in ("one", "two")]
    host = SimpleNamespace(session=session(runs[0], hours=0.1), error=None)
    client = served(LiveView(host))
    first, _ = data(client)
    host.session = session(runs[1], hours=0.01)
    second, _ = data(client, first["cursor"])
    assert second["whole"]
    assert sum(second["bins"]["due"]) == 36 * 5


def test_under_a_base_path_the_page_names_nothing_outside_it(reference):
    client = served(view_of(session(reference)), base="/load")
    assert client.get("/scaling").status_code == 404
    page = client.get("/load/scaling")
    text = page.data.decode()
    assert page.status_code == 200
    assert 'src="scaling/page.js"' in text
    assert '="/' not in text
    assert "http" not in text
    for name in ("page.css", "page.js", "axis.js", "load.js", "waterfall.js"):
        answer = client.get(f"/load/scaling/{name}")
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert b"http" not in answer.data.replace(b"http://www.w3.org/2000/svg", b"")
    assert client.get("/load/scaling/pages.py").status_code == 404
    assert b'href="./scaling"' in client.get("/load/").data
    stats = json.loads(client.get("/load/stats/requests").data)
    (table,) = stats["extended_stats"]
    assert table["key"] == "scaling"
    assert {row["phase"] for row in table["data"]} == {"in service"}


def test_the_login_guards_every_route(reference, monkeypatch):
    client = served(view_of(session(reference)), login=True, monkeypatch=monkeypatch)
    routes = ("", "/data", "/page.js", "/page.css", "/load.csv", "/phases.csv")
    for route in routes:
        answer = client.get(f"/scaling{route}")
        assert answer.status_code == 302
        assert "/login" in answer.headers["Location"]
    client.post("/ramptrace-login", data={"username": "ada", "password": "engine"})
    assert all(client.get(f"/scaling{route}").status_code == 200 for route in routes)


@pytest.mark.parametrize("route", ["/swarm", "/stop", "/stats/reset", "/scaling/data"])
def test_another_web_site_can_neither_post_nor_read(reference, route):
    client = served(view_of(session(reference)))
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post(route, headers=headers).status_code == 403
        answer = client.get("/scaling/data", headers=headers)
        assert not [name for name in answer.headers.keys() if name.startswith("Access-Control")]  # noqa: SIM118
        assert client.options("/swarm", headers=headers).status_code == 403
    assert client.post("/stop", headers={"Origin": "http://localhost"}).status_code == 200
    assert client.post("/stop").status_code == 200


def test_csv_holds_the_figures_and_no_formula(tmp_path):
    case = Case()
    run = RunDir.open(build(tmp_path / "run", case, state="running"))
    evil = '=HYPERLINK("http://evil")\n<script>'
    write(run, "observations", [seen(case, "container_started", 300, "evil", unit_id=evil)])
    client = served(view_of(session(run, hours=0.1)))
    load = list(csv.DictReader(io.StringIO(client.get("/scaling/load.csv").data.decode())))
    assert sum(int(row["due"]) for row in load) == 360 * 5
    phases = list(csv.DictReader(io.StringIO(client.get("/scaling/phases.csv").data.decode())))
    assert f"'{evil}" in {row["unit"] for row in phases}


def test_what_workers_record_is_counted_once(tmp_path):
    run = RunDir.open(build(tmp_path / "run", Case(end_s=200.0), state="running"))
    found = session(run)
    found.sends_elsewhere = True
    client = served(view_of(found))
    rows = run.scan("requests").collect()
    before, _ = data(client)
    assert sum(before["bins"]["due"]) == sum(before["bins"]["ok"]) == len(rows)
    run.compact("requests", at_least=1)
    assert sum(data(client)[0]["bins"]["due"]) == len(rows)
    assert sum(data(client)[0]["bins"]["sent"]) == len(rows)
