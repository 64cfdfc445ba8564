"""What docs/offline.md shows is run as it stands, on a simulated run."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import duckdb
import pytest

from ramptrace import main

PAGE = (Path(__file__).parents[1] / "docs" / "offline.md").read_text(encoding="utf-8")


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("offline") / "run"
    for arguments in (
        ["simulate", "--profile", "sagemaker-qwen3-8b", "--image-cache", "off", "--run-dir", str(path), "--json"],
        ["analyse", str(path), "--json"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert not ended.value.code
    return path


def test_the_polars_example_prints_outcomes_and_phases(run):
    (code,) = snippets("python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code.replace("RUN/", f"{run}/"), {})
    assert "median_ttft_s" in printed.getvalue()
    assert "provisioning+pull" in printed.getvalue()


def test_every_query_answers(run):
    queries = snippets("sql")
    assert len(queries) == 3
    answers = [duckdb.sql(query.replace("RUN/", f"{run}/")).fetchall() for query in queries]
    assert sum(row[1] for row in answers[0]) == 1326, "each request once"
    assert {"decision", "in_service"} <= {row[1] for row in answers[1]}
    lengths = {row[1]: row[2] for row in answers[2]}
    assert lengths["provisioning+pull"] == pytest.approx(454, abs=3)
