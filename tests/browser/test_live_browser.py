"""The live page in a real browser, while a replay against the emulator goes on behind a login."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.browser.chrome import Certificate, browser, made_certificate, needs_chromium
from tests.emulators import ROOT, start_emulator
from traces.clock import to_datetime
from traces.run import RunDir, ShardWriter, columns_of
from traces.schema import TABLES

pytestmark = [pytest.mark.browser, pytest.mark.e2e, needs_chromium, pytest.mark.timeout(240)]

EVIL = "<img src=x onerror=\"document.title='owned'\">"
CREDENTIALS = ("AKIDTEST000000000000", "secret-of-the-test")
USER, PASSWORD = "ada", "engine 1843"
SCENARIO = """
name = {name}
[trace]
path = "corpus:reference-burst"
[target]
kind = "sagemaker"
url = "{url}"
endpoint_name = "demo"
region = "us-east-1"
[collect]
endpoint_name = "demo"
region = "us-east-1"
endpoint_url = "{url}"
[run]
condition = {name}
[verdict]
invalid_lag_p99_ms = 60000.0
degraded_lag_p99_ms = 60000.0
"""


@contextlib.contextmanager
def web_ui(folder: Path, url: str, certificate: Certificate):
    """`ramptrace ui` over TLS, not started yet; gives its address under a base path."""
    scenario = folder / "live.toml"
    scenario.write_text(SCENARIO.format(name=json.dumps(EVIL), url=url))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"AWS_ACCESS_KEY_ID": CREDENTIALS[0], "AWS_SECRET_ACCESS_KEY": CREDENTIALS[1]}
    environment |= {"RAMPTRACE_WEB_USER": USER, "RAMPTRACE_WEB_PASSWORD": PASSWORD}
    with (folder / "ui.log").open("w") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ramptrace", "ui", str(scenario), "--web-port", str(port), "--no-open"),
                *("--yes", "--run-dir", str(folder / "run"), "--web-login", "--web-base-path", "/load"),
                *("--tls-cert", str(certificate.cert), "--tls-key", str(certificate.key)),
            ],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, (folder / "ui.log").read_text()
            time.sleep(0.1)
        yield f"https://127.0.0.1:{port}/load"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(40)
        finally:
            process.kill()


def name_a_machine(run: Path) -> None:
    """Write what a collector would of a machine whose name is markup."""
    manifest = RunDir.open(run).manifest()
    at = to_datetime(manifest.clock.to_endpoint_us(int(time.time() * 1e6)))
    row = {
        "platform": "sagemaker",
        "resource": EVIL,
        "unit_id": EVIL,
        "anchor": "container_started",
        "lo": at,
        "hi": at,
        "source": "logs:first-event",
        "method": "event",
        "native_id": "evil",
        "clock": "instance",
        "response_received": at,
        "verified": False,
        "detail": json.dumps({"line": EVIL}),
    }
    ShardWriter(RunDir.open(run), "observations", "evil").write(columns_of([row], TABLES["observations"]))


def check_looks(tab, shots: Path, name: str) -> None:
    """On a desktop, in the dark and on a phone: nothing overflows, and axe has no serious complaint."""
    for look, size in {"light": {}, "dark": {"dark": True}, "phone": {"width": 390, "height": 844}}.items():
        tab.look(**size)
        assert tab.axe() == [], look
        # A phone's innerWidth grows with what overflows it.
        assert tab.value("document.documentElement.scrollWidth") <= size.get("width", 1200), look
        tab.screenshot(shots / f"{name}-{look}.png")
    tab.look()


def test_the_page_follows_a_run_to_its_capacity(tmp_path):
    certificate = made_certificate(tmp_path)
    with (
        start_emulator(time_scale=40, image_cache=True, credentials=CREDENTIALS) as url,
        web_ui(tmp_path, url, certificate) as home,
        browser(tmp_path / "profile", trusted=certificate) as new_tab,
    ):
        plain = urlsplit(home)
        assert not answers_without_tls(plain.hostname, plain.port)
        tab = new_tab()
        tab.open(f"{home}/scaling")
        assert tab.value("location.pathname") == "/load/login"
        assert tab.value(f"fetch('{home}/scaling/data', {{redirect: 'manual'}}).then(a => a.type)") == "opaqueredirect"
        form = json.dumps({"username": USER, "password": PASSWORD})
        tab.value(f"fetch('ramptrace-login', {{method: 'POST', body: new URLSearchParams({form})}}).then(a => a.url)")

        (cookie,) = tab.call("Network.getCookies", urls=[home])["cookies"]
        assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")

        tab.open(f"{home}/scaling")
        tab.until("document.querySelector('#headline').textContent === 'Not started.'")
        check_looks(tab, tmp_path, "idle")
        tab.value("document.querySelector('#start').click()")

        # The scale-out while it lasts: one unit serves, two are on their way, and their bars grow.
        tab.until("document.querySelectorAll('#chart .open').length >= 2")
        assert "since the decision" in tab.text("#headline")
        assert tab.text("#units") == "1"
        assert tab.value("document.querySelectorAll('#chart path.deficit').length") in {0, 1}
        growing = tab.value("Number(document.querySelector('#chart .open').getAttribute('width'))")
        assert growing > 0
        name_a_machine(tmp_path / "run")
        tab.until("[...document.querySelectorAll('#unit-table td')].some(c => c.textContent.startsWith('<img'))")
        check_looks(tab, tmp_path, "busy")

        # The step, when it happens: the load still goes on, and the page has three units.
        tab.until("document.querySelector('#units').textContent === '3'")
        assert not tab.value("document.querySelector('#stop').hidden"), "the capacity step came after the load's end"
        tab.until("document.querySelectorAll('#chart .open').length <= 1")  # the made-up machine never comes
        assert tab.value("document.querySelectorAll('#chart .phase-registration, #chart .phase-start').length") >= 2
        tab.value("document.querySelector('#chart').focus()")
        tab.press("ArrowLeft")
        assert tab.text("#readout").startswith("At ")
        assert tab.value("document.querySelector('#chart').getAttribute('aria-valuetext')") == tab.text("#readout")
        tab.value("document.querySelector('input[value=recent]').click()")

        tab.until("document.querySelector('#headline').textContent.startsWith('Finished')", 120)
        assert tab.text("#verdict-name") == "Verdict"
        assert tab.text("#verdict") == RunDir.open(tmp_path / "run").manifest().verdict["status"]
        assert EVIL in tab.text("#about")
        assert tab.value("document.querySelectorAll('img').length") == 0
        check_looks(tab, tmp_path, "finished")
        download(tab, tmp_path / "downloads")
        tab.open(f"{home}/?tab=scaling")
        tab.until("document.body.innerText.includes('in service')")
        assert tab.complaints == []
        elsewhere = [u for u in tab.asked if not u.startswith((home, "data:", "blob:"))]
        assert elsewhere == []

        tab.open(f"{home}/scaling")
        tab.until("document.querySelector('#headline').textContent.startsWith('Finished')")
        lose_connection(tab)


def answers_without_tls(host: str, port: int) -> bool:
    """Tell whether the port answers plain HTTP."""
    with socket.create_connection((host, port), timeout=10) as plain:
        plain.sendall(b"GET /load/login HTTP/1.0\r\n\r\n")
        with contextlib.suppress(OSError):
            return plain.recv(100).startswith(b"HTTP/")
    return False


def download(tab, folder: Path) -> None:
    folder.mkdir()
    tab.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    tab.value("[...document.querySelectorAll('a[download]')].forEach(a => a.click())")
    for _ in range(100):
        if {file.name for file in folder.iterdir()} == {"ramptrace-load.csv", "ramptrace-phases.csv"}:
            break
        time.sleep(0.1)
    lines = (folder / "ramptrace-load.csv").read_text().splitlines()
    assert lines[0].startswith("start_s,width_s,due,sent")
    assert sum(int(line.split(",")[2]) for line in lines[1:]) == 1326
    assert "provisioning+pull" in (folder / "ramptrace-phases.csv").read_text()


def lose_connection(tab) -> None:
    """A page that cannot reach its server says so, and goes on by itself once it can."""
    limits = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    tab.call("Network.emulateNetworkConditions", offline=True, **limits)
    tab.until("document.querySelector('#connection').textContent.includes('lost')")
    tab.call("Network.emulateNetworkConditions", offline=False, **limits)
    tab.until("document.querySelector('#connection').textContent === ''")
