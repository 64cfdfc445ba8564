"""Debian's Chromium, driven over its DevTools protocol: pages stay open while a run goes on, and everything is seen."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import websocket

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium")

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
    # No name is found but the loopback's own address, so that a page that asks elsewhere fails loudly.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_PATIENCE_S = 60.0


def _axe_source() -> str:
    found = importlib.util.find_spec("axe_core_python")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")


class Tab:
    """One page; `complaints` are console messages and uncaught errors, `asked` the addresses it requested."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, timeout=_PATIENCE_S)
        self._number = 0
        self.complaints: list[str] = []
        self.asked: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer to one command; what happened meanwhile is noted."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._socket.recv())
            if told.get("id") == self._number:
                assert "error" not in told, told["error"]
                return told["result"]
            self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        kind, given = told.get("method"), told.get("params", {})
        if kind == "Runtime.consoleAPICalled" and given["type"] in {"error", "warning", "assert"}:
            self.complaints.append(" ".join(str(a.get("value", a.get("description"))) for a in given["args"]))
        elif kind == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(given["exceptionDetails"]))
        elif kind == "Log.entryAdded" and given["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(given["entry"]["text"])
        elif kind == "Network.requestWillBeSent":
            self.asked.append(given["request"]["url"])

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression: str) -> Any:
        """Return what a JavaScript expression (or the promise it gives) comes to."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str, patience_s: float = _PATIENCE_S) -> Any:
        """Wait until an expression holds; returns its value."""
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):  # a page that is being left has no answer
                if found := self.value(expression):
                    return found
            time.sleep(0.1)
        text = self.value("document.body ? document.body.innerText.slice(0, 3000) : ''")
        pytest.fail(f"it did not come to {expression}; the page reads:\n{text}")

    def text(self, selector: str) -> str:
        """Return the text of the first element that matches."""
        return self.value(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''")

    def look(self, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Take the size of a screen and its colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """Write the whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def axe(self) -> list[str]:
        """Return what axe-core finds that is serious or critical, a line per rule and element."""
        self.value(_axe_source() + "; true")
        found = self.value("axe.run().then(r => r.violations)")
        grave = [v for v in found if v["impact"] in {"serious", "critical"}]
        return [f"{v['id']} ({v['impact']}): {node['html'][:200]}" for v in grave for node in v["nodes"]]

    def press(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def close(self) -> None:
        """Let go of the page."""
        self._socket.close()


class Certificate(NamedTuple):
    """A self-signed certificate of 127.0.0.1; `spki` is the hash of its public key, by which the browser trusts it."""

    cert: Path
    key: Path
    spki: str


def made_certificate(folder: Path) -> Certificate:
    """Make a certificate in a folder; skips the test where there is no openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert)]
    made += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(made, check=True, capture_output=True)
    public = subprocess.run(["openssl", "x509", "-in", cert, "-noout", "-pubkey"], check=True, capture_output=True)
    body = "".join(line for line in public.stdout.decode().splitlines() if not line.startswith("-"))
    return Certificate(cert, key, base64.b64encode(hashlib.sha256(base64.b64decode(body)).digest()).decode())


@contextlib.contextmanager
def browser(profile: Path, *, trusted: Certificate | None = None) -> Iterator[Callable[[], Tab]]:
    """Run a browser while the context lasts; gives a function that opens a new tab."""
    assert CHROMIUM is not None
    trust = [] if trusted is None else [f"--ignore-certificate-errors-spki-list={trusted.spki}"]
    log = (profile.parent / f"{profile.name}.log").open("w+")
    process = subprocess.Popen(
        [CHROMIUM, *_FLAGS, *trust, f"--user-data-dir={profile}", "about:blank"], stdout=subprocess.DEVNULL, stderr=log
    )
    tabs: list[Tab] = []
    try:
        port = _port(process, Path(log.name))

        def new_tab() -> Tab:
            command = websocket.create_connection(_browser_address(Path(log.name)), timeout=_PATIENCE_S)
            command.send(json.dumps({"id": 1, "method": "Target.createTarget", "params": {"url": "about:blank"}}))
            while (told := json.loads(command.recv())).get("id") != 1:
                pass
            command.close()
            tabs.append(Tab(f"ws://127.0.0.1:{port}/devtools/page/{told['result']['targetId']}"))
            return tabs[-1]

        yield new_tab
    finally:
        for tab in tabs:
            tab.close()
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def _browser_address(log: Path) -> str:
    found = re.search(r"DevTools listening on (ws://\S+)", log.read_text("utf-8", "replace"))
    return found[1] if found else ""


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        if address := _browser_address(log):
            return int(address.split(":")[2].split("/")[0])
        time.sleep(0.1)
    pytest.fail(f"the browser did not start: {log.read_text('utf-8', 'replace')[-2000:]}")
