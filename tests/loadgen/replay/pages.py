"""Locust's web page in tests."""

from __future__ import annotations

import http.cookiejar
import json
import os
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import pytest


class Page:
    """Locust's web page, as a browser with cookies would see it."""

    def __init__(self, command, tmp_path, **environment):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [*command, "--web-port", str(self.port)],
            cwd=tmp_path,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    def get(self, route, **form):
        body = urllib.parse.urlencode(form).encode() if form else None
        with self.browser.open(f"http://127.0.0.1:{self.port}{route}", body, timeout=30) as answer:
            return answer.url, answer.read().decode()

    def stats(self):
        return json.loads(self.get("/stats/requests")[1])

    def total(self):
        """Return the number of requests in Locust's own table."""
        return next((s["num_requests"] for s in self.stats()["stats"] if s["name"] == "Aggregated"), 0)

    def until(self, condition):
        for _ in range(300):
            try:
                if condition():
                    return
            except OSError:
                pass
            time.sleep(0.1)
        pytest.fail("it did not come to that")

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=30)
