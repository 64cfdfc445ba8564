"""A run of twelve hours on the live page, in a real browser: what is sent and what is drawn stay bounded."""

from __future__ import annotations

import json
import sys
import threading

import pytest
from werkzeug.serving import make_server

from tests.browser.chrome import browser, needs_chromium
from tests.loadgen.live.living import S, feed, served, twelve_hours, view_of

pytestmark = [pytest.mark.browser, needs_chromium, pytest.mark.timeout(180)]

SECONDS = 12 * 3600


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Serve twelve hours; gives the address and the session."""
    monkeypatch.setattr(sys, "argv", ["locust"])
    found = twelve_hours(tmp_path / "run")
    server = make_server("127.0.0.1", 0, served(view_of(found)).application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.port}", found
    server.shutdown()
    thread.join(10)


DRAWN = "performance.getEntriesByType('resource').filter(e => e.name.includes('scaling/data'))"
REDRAW = """(async () => {
  const times = [];
  for (let n = 0; n < 9; n++) {
    document.querySelector('main, body').style.width = `${900 + n}px`;
    const begin = performance.now();
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    times.push(performance.now() - begin);
  }
  document.querySelector('main, body').style.width = '';
  return times.sort((a, b) => a - b)[4];
})()"""


def test_twelve_hours_are_drawn_from_little(page, tmp_path):
    url, found = page
    with browser(tmp_path / "profile") as new_tab:
        tab = new_tab()
        tab.look()
        tab.open(f"{url}/scaling")
        tab.until("document.querySelectorAll('#chart svg').length === 1")
        tab.until(f"{DRAWN}.length >= 4")
        sizes = tab.value(f"{DRAWN}.map(e => e.decodedBodySize)")
        nodes = tab.value("document.querySelectorAll('#chart *').length")
        redraw_ms = tab.value(REDRAW)
        print(f"bytes {sizes[:4]}; elements {nodes}; redraw and paint {redraw_ms:.0f} ms")
        assert sizes[0] < 150_000
        assert max(sizes[1:]) < 2_000
        assert nodes < 1_500
        assert tab.value("document.documentElement.scrollWidth <= innerWidth")
        # The second after them arrives, and changes the newest bin only.
        feed(found.meter, found.manifest.t0_us, SECONDS, SECONDS + 60, 5)
        found.clock.now_us = lambda: found.manifest.t0_us + (SECONDS + 60) * S
        tab.until("document.querySelector('#time').textContent === '12:01:00'")
        for look, size in {"light": {}, "dark": {"dark": True}, "phone": {"width": 390, "height": 844}}.items():
            tab.look(**size)
            tab.until("document.querySelectorAll('#chart svg').length === 1")
            tab.screenshot(tmp_path / f"hours-{look}.png")
            assert tab.value("document.documentElement.scrollWidth") <= size.get("width", 1200), look
        assert tab.complaints == []
        assert json.loads(tab.value("JSON.stringify(document.title)")).startswith("Replaying")
