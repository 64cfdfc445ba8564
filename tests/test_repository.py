"""What holds for the repository as a whole."""

import re
import subprocess
from pathlib import Path

import pytest

from loadgen.reference import scenario_markdown
from traces.columns import tables_markdown

ROOT = Path(__file__).parents[1]
_REGISTRIES = re.compile(r"pypi" + r"\.org|pythonhosted" + r"\.org|registry\.npmjs|deb\.debian" + r"\.org")


def _tracked_text() -> dict[str, str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    texts = {}
    for name in listed.stdout.split():
        try:
            texts[name] = (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
    return texts


def test_no_registry_address_is_committed() -> None:
    found = {name for name, text in _tracked_text().items() if _REGISTRIES.search(text)}
    assert not found - {"tests/test_repository.py"}


def test_constraints_hold_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", pin) for pin in pins)


def test_column_tables_are_current() -> None:
    written = (ROOT / "docs" / "tables.md").read_text()
    assert written == tables_markdown(), "run: python -m traces.columns > docs/tables.md"


def test_scenario_reference_is_current() -> None:
    written = (ROOT / "docs" / "scenario.md").read_text()
    assert written == scenario_markdown(), "run: python -m loadgen.reference > docs/scenario.md"


def test_the_two_halves_hold_every_test():
    from tests.side_by_side import TESTS, halves

    held = [
        file for half in halves() for path in half for file in ([path] if path.is_file() else path.rglob("test_*.py"))
    ]
    assert sorted(held) == sorted(file for file in TESTS.rglob("test_*.py") if "bench" not in file.parts)
