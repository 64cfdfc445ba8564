"""The report in a real browser: the charts draw, nothing complains, and no request leaves the file."""

import base64
import re
from pathlib import Path

import pytest

from analysis.analyse import analyse_run
from analysis.compare import compare_runs
from analysis.report.html import write_report
from tests.analysis.run_builder import Case, after_case, build
from tests.browser.chrome import browser, needs_chromium

pytestmark = [pytest.mark.browser, needs_chromium, pytest.mark.timeout(300)]

EVIL = "<img src=x onerror=\"document.title='owned'\">"
LOOKS = {"desktop": {}, "dark": {"dark": True}, "phone": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    runs = [
        analyse_run(build(folder / "before", Case(time_scale=20.0))),
        analyse_run(build(folder / "after", after_case(time_scale=20.0))),
    ]
    return write_report(runs, compare_runs(runs), folder / "report.html")


@pytest.fixture(scope="module")
def new_tab(tmp_path_factory: pytest.TempPathFactory):
    with browser(tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found


def opened(new_tab, page: Path):
    tab = new_tab()
    tab.look()
    tab.open(page.as_uri())
    tab.until("[...document.querySelectorAll('.chart')].every(c => c.querySelector('svg'))")
    return tab


def test_every_chart_is_drawn_and_nothing_complains(report: Path, new_tab, tmp_path: Path) -> None:
    tab = opened(new_tab, report)
    charts = set(tab.value("[...document.querySelectorAll('.chart')].map(c => c.id)"))
    assert charts >= {"pair1-lanes", "pair1-steps", "pair1-ecdf", "run1-demand", "run1-out0", "run1-out0-ladder"}
    assert charts >= {"run1-latency", "run2-demand", "run2-out0"}
    assert "chart failed" not in tab.value("document.body.innerText")
    for name, look in LOOKS.items():
        tab.look(**look)
        assert tab.axe() == [], name
        assert tab.value("document.documentElement.scrollWidth <= innerWidth"), name
        tab.screenshot(tmp_path / f"report-{name}.png")
    assert tab.complaints == []
    assert [url for url in tab.asked if not url.startswith(("data:", report.as_uri()))] == []


def test_it_prints_on_pages_of_paper(report: Path, new_tab) -> None:
    tab = opened(new_tab, report)
    printed = base64.b64decode(tab.call("Page.printToPDF", printBackground=False)["data"])
    pages = len(re.findall(rb"/Type\s*/Page[^s]", printed))
    assert 3 <= pages <= 16
    tab.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert tab.value("[...document.querySelectorAll('.chart svg')].every(s => s.getBoundingClientRect().height > 20)")


def test_what_a_name_injects_stays_text(new_tab, tmp_path: Path) -> None:
    run = analyse_run(build(tmp_path / "run", Case(condition=EVIL, name=EVIL)))
    tab = opened(new_tab, write_report([run], None, tmp_path / "report.html"))
    assert tab.value("document.title") != "owned"
    assert tab.value("document.querySelectorAll('img').length") == 0
    assert EVIL in tab.value("document.body.innerText")
