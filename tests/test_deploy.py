"""What `deploy/` describes: files that are there, options that exist, manifests that fit each other."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()


def documents(name: str) -> list[dict]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


def test_the_image_is_made_of_what_is_there_pinned_and_not_by_root():
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINERFILE, flags=re.MULTILINE)
    assert copied
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored, f"{name} is kept from the build"
    assert all("--constraint constraints.txt" in line for line in CONTAINERFILE.splitlines() if "pip install" in line)
    assert re.search(r"^USER 10001", CONTAINERFILE, flags=re.MULTILINE)
    assert "HEALTHCHECK" in CONTAINERFILE


@pytest.mark.parametrize("role", ["--master", "--worker"])
def test_locust_takes_the_operator_s_arguments(role):
    (test,) = documents("locusttest.yaml")
    assert (test["apiVersion"], test["kind"]) == ("locust.io/v1", "LocustTest")
    code = (
        "import sys, locust, loadgen.locustfile; from locust.argument_parser import get_parser; "
        "print(get_parser().parse_args(sys.argv[1:]).trace)"
    )
    line = [sys.executable, "-c", code, role, *shlex.split(test["spec"]["args"])]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith("s3://")


def test_the_jobs_fit_each_other_and_our_options():
    volume, service, master, worker = documents("jobs.yaml")
    template = master["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (claimed,) = template["spec"]["volumes"]
    assert claimed["persistentVolumeClaim"]["claimName"] == volume["metadata"]["name"]
    commands = [job["spec"]["template"]["spec"]["containers"][0] for job in (master, worker)]
    lines = [[*container["command"], *container.get("args", [])] for container in commands]
    assert lines[0][lines[0].index("--expect-workers") + 1] == str(worker["spec"]["parallelism"])
    assert lines[1][lines[1].index("--master-host") + 1] == service["metadata"]["name"]
    text = subprocess.run(
        [sys.executable, "-m", "ramptrace", "replay", "--help"],
        capture_output=True, text=True, timeout=60, check=True, cwd=ROOT,
    ).stdout  # fmt: skip
    for line in lines:
        assert line[:2] == ["ramptrace", "replay"]
        assert all(option in text for option in line if option.startswith("--"))


def test_the_policy_is_about_the_test_s_own_pods():
    (policy,) = documents("networkpolicy.yaml")
    (test,) = documents("locusttest.yaml")
    labels = policy["spec"]["podSelector"]["matchLabels"]
    assert labels["locust.io/test-run"] == test["metadata"]["name"]
    assert labels["locust.io/component"] == "master"
