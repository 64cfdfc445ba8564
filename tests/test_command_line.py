"""The command line as a whole: quick, helpful, and honest in its exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ramptrace
from tests.analysis.run_builder import Case, after_units, build

COMMANDS = ("analyse", "collect", "compare", "demo", "emulate", "replay", "report", "trace", "ui")


def run(
    *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ramptrace", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_help_names_every_command() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert all(f"\n  {name} " in result.stdout for name in COMMANDS)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, ramptrace\n"
        "try: ramptrace.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'polars','locust','gevent','botocore','aiohttp','altair','dataframely'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(command: str) -> None:
    result = run(command, "--help")
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) > 4
    if command != "trace":
        assert "--json" in result.stdout


def test_unknown_command_suggests_the_near_one() -> None:
    result = run("replya")
    assert result.returncode == 2
    assert 'did you mean "replay"?' in result.stderr
    assert "Traceback" not in result.stderr


def test_shared_import_name_is_refused_naming_both(tmp_path: Path) -> None:
    other = tmp_path / "traces_of_others-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: traces-of-others\nVersion: 1.0\n")
    (other / "top_level.txt").write_text("traces\n")
    # Behind our own path: the metadata is what is looked at, not who wins the import.
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(tmp_path)]).strip(os.pathsep)
    }
    result = run("trace", "corpus", env=env)
    assert result.returncode == 2
    assert "traces-of-others" in result.stderr
    assert "ramptrace" in result.stderr


def test_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m ramptrace trace corpus | head -n 1"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in result.stderr
    assert "BrokenPipe" not in result.stderr


def test_a_folder_called_traces_does_not_shadow_ours(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "__init__.py").write_text("raise RuntimeError('the wrong package')\n")
    script = Path(sys.executable).with_name("ramptrace")
    if not script.exists():
        pytest.skip("the console script is not installed")
    result = subprocess.run(
        [script, "trace", "corpus", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    json.loads(result.stdout)


def test_a_path_that_the_system_refuses_is_one_clear_line() -> None:
    for arguments in (("analyse", "x" * 300), ("trace", "info", "x" * 300), ("demo", "--directory", "/proc/none")):
        result = run(*arguments)
        assert result.returncode == 2, result.stderr
        assert "Traceback" not in result.stderr
        assert sum(line.startswith("ramptrace: ") for line in result.stderr.splitlines()) == 1


@pytest.mark.parametrize("scale", ["0", "-1", "nan", "inf", "fast"])
def test_a_demo_with_an_impossible_time_scale_is_refused(scale: str, tmp_path: Path) -> None:
    result = run("demo", "--time-scale", scale, cwd=tmp_path)
    assert result.returncode == 2
    assert "--time-scale" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_demo_on_a_busy_machine_still_shows_what_it_saw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both replays come late (exit code 5): the figures are printed all the same, and the demo ends with 5."""

    def arm(path: Path, condition: str, *_: object) -> int:
        cached = condition == "image-cache-on"
        case = Case(condition=condition, run_id=condition, lag_ms=90.0)
        build(path, Case(condition=condition, run_id=condition, units=after_units()) if cached else case)
        return 5

    monkeypatch.setattr(ramptrace, "_demo_arm", arm)
    with pytest.raises(SystemExit) as ended:
        ramptrace.main(["demo", "--directory", str(tmp_path), "--json"])
    assert ended.value.code == 5
    printed = json.loads(capsys.readouterr().out)
    assert [entry["condition"] for entry in printed["runs"]] == ["image-cache-off", "image-cache-on"]
    assert printed["compare"]["pull"]["before_s"] is not None
    assert Path(printed["report"]).is_file()


def _shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = f"{sys.executable} -P -m ramptrace {line}"
    env = os.environ | {"PYTHONPATH": str(Path(ramptrace.__file__).parent)} | environment
    return subprocess.run(["bash", "-c", command], env=env, capture_output=True, timeout=60, check=False)


def test_a_locale_without_our_signs_and_a_closed_stream_are_no_errors(tmp_path: Path) -> None:
    run_path = build(tmp_path / "r", Case())
    shown = _shell(f"analyse {run_path}", PYTHONIOENCODING="latin-1")
    assert shown.returncode == 0, shown.stderr
    assert b"provisioning+pull" in shown.stdout
    for redirection in (">&-", "2>&-"):
        for line in (f"analyse {run_path}", "trace corpus"):
            closed = _shell(f"{line} {redirection}")
            assert (closed.returncode, b"Traceback" in closed.stderr) == (0, False), closed.stderr
