"""Bad input: one clear line, the right exit code, no traceback, nothing lost."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

_STUB = "version https://git-lfs.github.com/spec/v1\noid sha256:0f00\nsize 235000000\n"
_GOOD = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:01.1234500,812,44\n2023-11-16 18:00:02.0000000,64,8\n"
)


@pytest.fixture
def listening() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def _run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ramptrace", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def _assert_refused(result: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("ramptrace: ")]
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word.lower() in lines[0].lower()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (_STUB, ["git", "lfs"]),
        ("", ["empty"]),
        ("When,In,Out\n1,2,3\n", ["when"]),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", ["no"]),
    ],
    ids=["lfs-stub", "empty", "wrong-header", "header-only"],
)
@pytest.mark.parametrize("command", ["import", "info", "replay"])
def test_a_bad_trace_is_refused(tmp_path: Path, content: str, words: list[str], command: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(content)
    arguments = (
        ["trace", command, file]
        if command != "replay"
        else ["replay", "--trace", file, "--target", "http://127.0.0.1:9"]
    )
    result = _run(*arguments, cwd=tmp_path)
    _assert_refused(result, 2, "trace.csv", *words)
    assert not (tmp_path / "runs").exists()


def test_a_missing_trace_is_refused(tmp_path: Path) -> None:
    _assert_refused(_run("trace", "info", "none.csv", cwd=tmp_path), 2, "none.csv")


def test_a_window_without_rows_names_the_extent(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(_GOOD)
    arguments = ["replay", "--trace", "trace.csv", "--target", "http://127.0.0.1:9", "--window", "1h..2h"]
    _assert_refused(_run(*arguments, cwd=tmp_path), 2, "trace.csv", "window")


def test_an_unknown_scenario_key_suggests_the_near_one(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        '[trace]\npath = "corpus:tiny-step"\n[target]\nurl = "http://127.0.0.1:9"\nmodle = "m"\n'
    )
    _assert_refused(_run("replay", "s.toml", cwd=tmp_path), 2, "s.toml", "modle", "model")


def test_a_broken_scenario_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("[trace\n")
    _assert_refused(_run("replay", "s.toml", cwd=tmp_path), 2, "s.toml", "line 1")


def test_an_unresolvable_endpoint_is_unreachable(tmp_path: Path) -> None:
    arguments = ["replay", "--trace", "corpus:tiny-step", "--target", "http://no-such-host.invalid:8080"]
    _assert_refused(_run(*arguments, cwd=tmp_path), 4, "no-such-host.invalid")
    assert not (tmp_path / "runs").exists()


def test_a_refused_connection_is_unreachable(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["replay", "--trace", "corpus:tiny-step", "--target", f"http://127.0.0.1:{port}"]
    _assert_refused(_run(*arguments, cwd=tmp_path), 4, str(port))


def test_a_port_in_use_is_refused(tmp_path: Path, listening: int) -> None:
    _assert_refused(_run("emulate", "--port", str(listening), cwd=tmp_path), 2, str(listening), "in use")


@pytest.mark.parametrize("command", ["analyse", "report"])
def test_a_directory_that_is_no_run_is_refused(tmp_path: Path, command: str) -> None:
    _assert_refused(_run(command, tmp_path, cwd=tmp_path), 2, "run")


def test_an_existing_run_is_never_written_over(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    arguments = ["replay", "--trace", "corpus:tiny-step", "--target", "http://127.0.0.1:9", "--run-dir", run]
    _assert_refused(_run(*arguments, cwd=tmp_path), 2, "already")
    assert (run / "run.json").read_text() == "{}"
