"""The workflow files: they parse, and say only what the command line knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ramptrace import cli

CI = sorted((Path(__file__).parents[1] / "deploy" / "ci").glob("*.yml"))


@pytest.mark.parametrize("path", CI, ids=lambda path: path.name)
def test_a_workflow_parses_and_its_command_exists(path):
    text = path.read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    assert "soak" in (document.get("jobs") or document)
    commands = re.findall(r"ramptrace ([a-z]+) [^\n]*", text)
    assert commands == ["soak"]
    known = {option for parameter in cli.get_command(None, "soak").params for option in parameter.opts}
    line = next(line for line in text.splitlines() if "ramptrace soak" in line)
    assert set(re.findall(r"--[a-z]+", line)) <= known


def test_both_are_there():
    assert [path.name for path in CI] == ["github-actions.yml", "gitlab-ci.yml"]
