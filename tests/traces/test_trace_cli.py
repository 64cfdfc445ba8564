"""`ramptrace trace …` as a user calls it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import ramptrace
from traces.readers import open_trace

ROWS = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97996,10,2\nbad,1,2\n2023-11-16 18:17:04.5,20,3\n"


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(ROWS)
    return path


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        ramptrace.main(["trace", *map(str, arguments)])
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


def test_import_accounts_for_every_row(capsys, recorded):
    code, out, _ = run(capsys, "import", recorded, "--json")
    document = json.loads(out)
    assert code == 0
    assert {key: document[key] for key in ("rows_read", "rows_kept", "dropped", "input_tokens", "output_tokens")} == {
        "rows_read": 3,
        "rows_kept": 2,
        "dropped": {"bad_timestamp": 1},
        "input_tokens": 30,
        "output_tokens": 5,
    }
    assert document["first_arrival"] == "2023-11-16T18:17:03.979960+00:00"
    assert document["last_arrival"] == "2023-11-16T18:17:04.500000+00:00"


def test_import_writes_what_it_kept(capsys, recorded, tmp_path):
    output = tmp_path / "out.parquet"
    code, out, err = run(capsys, "import", recorded, "-o", output)
    assert (code, "wrote 2 rows" in err) == (0, True)
    assert "dropped: bad timestamp\t1 (first: row 2)" in out
    assert pl.read_parquet(output).equals(open_trace(str(recorded)).scan().collect())


def test_import_does_not_write_over_its_source(capsys, tmp_path):
    output = tmp_path / "out.parquet"
    run(capsys, "import", "corpus:tiny-step", "-o", output)
    before = output.read_bytes()
    code, _, err = run(capsys, "import", output, "-o", output)
    assert (code, "a file being read" in err) == (2, True)
    assert output.read_bytes() == before
    code, _, err = run(capsys, "import", output, "-o", tmp_path / "no" / "x.parquet")
    assert (code, "there is no folder" in err) == (2, True)


@pytest.mark.parametrize("command", ["import", "lint"])
def test_dropped_rows_are_kept_where_asked(capsys, recorded, tmp_path, command):
    rejects = tmp_path / "rejects.jsonl"
    _, out, err = run(capsys, command, recorded, "--reject-file", rejects)
    assert "wrote 1 dropped rows to" in err
    assert [json.loads(line) for line in rejects.read_text().splitlines()] == [
        {"row": 2, "reason": "bad_timestamp", "raw": "bad,1,2"}
    ]
    assert "bad,1,2" not in out + err


def test_no_output_is_written_over_the_source(capsys, recorded):
    before = recorded.read_bytes()
    for flags in (
        ("import", "-o", recorded),
        ("import", "--reject-file", recorded),
        ("lint", "--reject-file", recorded),
    ):
        code, _, err = run(capsys, flags[0], recorded, *flags[1:])
        assert (code, "a file being read" in err) == (2, True)
    assert recorded.read_bytes() == before


def test_what_is_declared_is_recorded_and_what_means_nothing_is_refused(capsys, recorded, tmp_path):
    code, out, _ = run(capsys, "import", recorded, "--sampling-percent", "25", "-o", tmp_path / "o.parquet", "--json")
    assert (code, json.loads(out)["sampling_percent"]) == (0, 25)
    code, out, _ = run(capsys, "lint", tmp_path / "o.parquet", "--json")
    assert "4 times" in next(f["message"] for f in json.loads(out)["findings"] if f["code"] == "sampling")
    for flags, message in (
        (("--pattern", "x"), "--pattern means nothing for azure traces; it is for: nginx"),
        (("--time-unit", "h"), 'no time unit "h"; known units: s, ms'),
        (("--sampling-percent", "0"), "expected above 0, and at most 100"),
        (("--rate", "-1"), "expected a number above 0"),
    ):
        code, out, err = run(capsys, "info", recorded, *flags)
        assert (code, out, message in err) == (2, "", True)


def test_info_gives_figures(capsys, recorded):
    code, out, _ = run(capsys, "info", "corpus:steady-200", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["mean_rate_per_s"] == pytest.approx(200, rel=0.05)
    assert document["output_tokens"]["p99"] == 20
    code, out, _ = run(capsys, "info", recorded)
    assert "rows\t2" in out.splitlines()


def test_lint_ends_with_2_on_errors_only(capsys, recorded):
    code, out, _ = run(capsys, "lint", recorded, "--json")
    document = json.loads(out)
    assert (code, document["errors"]) == (2, 1)
    assert document["findings"][0]["code"] == "dropped-bad-timestamp"
    code, out, _ = run(capsys, "lint", "corpus:tiny-step")
    assert code == 0
    assert out.startswith("severity\tcode\trow\tfinding\n")


def test_corpus_lists_what_is_bundled(capsys):
    code, out, _ = run(capsys, "corpus", "--json")
    assert code == 0
    assert {made["name"] for made in json.loads(out)["traces"]} == {"reference-burst", "tiny-step", "steady-200"}
    assert "corpus:tiny-step" in run(capsys, "corpus")[1]


@pytest.mark.parametrize("command", ["import", "info", "lint"])
def test_bad_input_is_one_line_and_exit_code_2(capsys, command, tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n")
    for arguments in ((path,), (tmp_path / "missing",), (path, "--format", "azrue")):
        code, out, err = run(capsys, command, *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("ramptrace: ")
        assert err.count("\n") == 1


def test_a_terminal_gets_a_drawn_table_and_a_pipe_plain_text():
    root = Path(ramptrace.__file__).parent
    command = [sys.executable, "-m", "ramptrace", "trace", "corpus"]
    environment = {**os.environ, "PYTHONPATH": str(root), "TERM": "xterm", "COLUMNS": "200"}
    ours, theirs = pty.openpty()
    subprocess.run(command, stdout=theirs, env=environment, check=True, cwd=root)
    os.close(theirs)
    drawn = b""
    try:
        while block := os.read(ours, 65536):
            drawn += block
    except OSError:
        pass  # Linux reports the closed side of a terminal as an error
    os.close(ours)
    piped = subprocess.run(command, capture_output=True, env=environment, check=True, cwd=root).stdout
    assert b"\t" not in drawn
    assert b"corpus:tiny-step" in drawn
    assert b"corpus:tiny-step\t" in piped
    assert b"\x1b" not in piped


def test_help_imports_nothing_heavy():
    root = Path(ramptrace.__file__).parent
    script = "import sys, traces.cli; print([m for m in ('polars', 'dataframely', 'rich') if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert found.stdout.strip() == "[]"


def test_an_output_that_is_no_file_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for output in ("pipe", ""):
        with pytest.raises(SystemExit) as ended:
            ramptrace.main(["trace", "import", "corpus:tiny-step", "-o", output])
        assert ended.value.code == 2
        assert "file" in capsys.readouterr().err
    assert Path("pipe").is_fifo()
