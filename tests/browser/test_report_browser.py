"""The report in a real browser: the charts draw, nothing complains, and no request leaves the file."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from analysis.analyse import analyse_run
from analysis.compare import compare_runs
from analysis.report.html import write_report
from tests.analysis.run_builder import Case, after_case, build

CHROMIUM = shutil.which("chromium")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium")]
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--virtual-time-budget=10000",
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    runs = [
        analyse_run(build(folder / "before", Case(time_scale=20.0))),
        analyse_run(build(folder / "after", after_case(time_scale=20.0))),
    ]
    return write_report(runs, compare_runs(runs), folder / "report.html")


def _open(page: Path, profile: Path, *flags: str) -> tuple[str, str]:
    """Return the page's document as the browser sees it, and what it logged."""
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", *flags, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    return done.stdout, done.stderr


@pytest.mark.parametrize("width", [1200, 390], ids=["desktop", "phone"])
def test_every_chart_is_drawn_and_nothing_complains(report: Path, tmp_path: Path, width: int) -> None:
    document, log = _open(report, tmp_path, f"--window-size={width},2400")
    body = re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)
    assert "chart failed" not in body
    charts = set(re.findall(r'<div[^>]*\bid="((?:pair|run)\d+-\w+)"', body))
    assert charts >= {"pair1-lanes", "pair1-steps", "run1-demand", "run1-out0", "run1-latency", "run2-demand"}
    assert body.count("<svg") >= len(charts)
    assert not re.findall(r"CONSOLE.*", log)


def test_what_a_name_injects_stays_text(tmp_path: Path) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\">"
    run = analyse_run(build(tmp_path / "run", Case(condition=evil)))
    page = write_report([run], None, tmp_path / "report.html")
    document, _ = _open(page, tmp_path / "profile")
    assert "<title>owned" not in document
    assert "<img" not in re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)
