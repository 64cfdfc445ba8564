"""The wheel holds exactly what users install, and works without what only developers need."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    assert wheel.stat().st_size < 2_000_000
    return zipfile.ZipFile(wheel).namelist()


def test_top_level_is_exact(wheel_names: list[str]) -> None:
    top = {name.split("/")[0] for name in wheel_names if ".dist-info/" not in name}
    assert top == {"traces", "loadgen", "analysis", "ramptrace.py"}


def test_holds_every_tracked_file_of_the_packages(wheel_names: list[str]) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "traces", "loadgen", "analysis", "ramptrace.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    if not listed:
        pytest.skip("not a git checkout")
    assert {name for name in wheel_names if ".dist-info/" not in name} >= set(listed)


def test_types_are_marked(wheel_names: list[str]) -> None:
    assert {"traces/py.typed", "loadgen/py.typed", "analysis/py.typed"} <= set(wheel_names)


def test_licence_is_inside(wheel_names: list[str]) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in wheel_names)
