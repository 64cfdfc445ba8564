"""A made-up session in Locust's own web UI, fed for as long as a test wants."""

from __future__ import annotations

from types import SimpleNamespace

from locust.env import Environment
from locust.web import WebUI

from loadgen import web_login
from loadgen.host import ReplayUser
from loadgen.live import pages
from loadgen.live.meter import Meter
from loadgen.live.view import LiveView
from loadgen.recorder import RequestRow
from loadgen.scenario import VerdictSection
from loadgen.session import Progress
from tests.analysis.run_builder import Case, build, observation, write
from traces.run import RunDir

S = 1_000_000


def session(run, *, hours=0.0, per_s=5):
    """Something with what the view needs of a session, and a meter that was fed for so long."""
    manifest = run.manifest()
    meter = Meter(t0_us=manifest.t0_us, time_scale=manifest.time_scale, limit_us=50_000, measured_from_us=0)
    feed(meter, manifest.t0_us, 0, round(hours * 3600), per_s)
    length_us = round(hours * 3600 * S)
    return SimpleNamespace(
        sends_elsewhere=False,
        run=run,
        manifest=manifest,
        meter=meter,
        clock=SimpleNamespace(now_us=lambda: manifest.t0_us + length_us),
        load_ended=SimpleNamespace(is_set=lambda: False),
        scenario=SimpleNamespace(verdict=VerdictSection()),
        progress=lambda: Progress(
            planned=None, started=9, in_flight=1, lag_p99_us=900, elapsed_us=length_us, length_us=None
        ),
        verdict_so_far=lambda: {"status": "VALID", "reasons": [], "lag_p99_ms": 0.9},
    )


def feed(meter, t0_us, first_s, until_s, per_s):
    for second in range(first_s, until_s):
        for n in range(per_s):
            due = t0_us + second * S + n * S // per_s
            meter.due(due)
            meter.sent(due, due + 300)
            row = RequestRow(row_id=0, due=due, outcome="ok", endpoint="e", done=due + 900_000)
            row.first_token = due + 100_000 + (second * 7919 + n) % 400_000
            meter.ended(row)


def served(view, *, base=None, login=False, monkeypatch=None):
    environment = Environment(user_classes=[ReplayUser])
    environment.create_local_runner()
    web_ui = WebUI(environment, "127.0.0.1", 0, web_base_path=base, web_login=login, delayed_start=True)
    if login:
        monkeypatch.setenv(web_login.USER, "ada")
        monkeypatch.setenv(web_login.PASSWORD, "engine")
        web_login.install(web_ui)
    pages.install(web_ui, view)
    return web_ui.app.test_client()


def view_of(found):
    return LiveView(SimpleNamespace(session=found, error=None, summary=None))


def twelve_hours(path):
    """Return a session of 12 hours at 5 requests/s, in whose run four units come every five minutes, and go again."""
    case = Case()
    run = RunDir.open(build(path, case, state="running"))
    rows = []
    for k in range(4, 144):
        start = 300 * k
        detail = {"desired": 5, "status_code": "Successful"}
        rows.append(seen(case, "decision", start, f"d{k}", scaling_id=f"a{k}", detail={**detail, "from": 1}))
        for n in range(4):
            name = f"i-{k:04d}{n}{'x' * 12}"
            for anchor, after in (("container_started", 100), ("load_started", 105), ("load_finished", 120)):
                rows.append(seen(case, anchor, start + after + n, f"{name}{anchor}", unit_id=name))
            rows.append(seen(case, "ready", start + 130 + n, f"{name}ready", unit_id=name))
        rows.append(seen(case, "in_service", start + 140, f"s{k}", detail={"from": 1, "to": 5}))
        fell = {"field": "CurrentInstanceCount", "from": 5, "to": 1}
        rows.append(seen(case, None, start + 250, f"f{k}", detail=fell))
    write(run, "observations", rows)
    return session(run, hours=12)


def seen(case, anchor, at_s, native_id, **more):
    return observation(case, "made-up", anchor, at_s, at_s, "event", "service", native_id, **more)
