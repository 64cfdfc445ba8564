"""Secrets in headers and expiring credentials; and kinds of endpoint that other distributions install."""

from __future__ import annotations

import os

import pytest

from loadgen.endpoints.auth import SecretHeaders
from loadgen.scenario import TargetSection
from tests.loadgen.replay.test_replay_endpoints import run_python
from traces.errors import BadInputError


def secrets(**keys) -> SecretHeaders:
    return SecretHeaders(TargetSection(url="http://a", **keys))


def test_a_file_is_read_again_when_it_changes_and_never_half(tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    found = secrets(api_key_file=str(file))
    assert found.headers == {"Authorization": "Bearer one"}
    file.write_text("two\n")
    os.utime(file, ns=(1, 1))
    found.refresh()
    assert found.headers == {"Authorization": "Bearer two"}
    file.write_text("")  # caught in the middle of being written
    os.utime(file, ns=(2, 2))
    found.refresh()
    assert found.headers == {"Authorization": "Bearer two"}
    file.write_text("three\n")
    found.refresh()
    assert found.headers == {"Authorization": "Bearer three"}
    file.unlink()
    found.refresh()
    assert found.headers == {"Authorization": "Bearer three"}


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"api_key_env": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE is not set"),
        ({"api_key_env": "BROKEN"}, "not printable"),
        ({"api_key_file": "absent-file"}, "absent-file cannot be read"),
        ({"header_env": {"Host": "BROKEN"}}, "cannot be set"),
        ({"header_env": {"X-Ok: 1\r\nEvil": "BROKEN"}}, "cannot be set"),
        ({"api_key_env": "A", "api_key_file": "b"}, "keep one"),
    ],
)
def test_bad_secrets_are_refused_without_being_shown(monkeypatch, keys, word):
    monkeypatch.setenv("BROKEN", "hush\r\nhush")
    with pytest.raises(BadInputError, match=word) as caught:
        secrets(**keys)
    assert "hush" not in str(caught.value)


def test_expiring_credentials_are_renewed_before_the_next_slice_is_signed(tmp_path):
    """A process that hands out credentials, as `credential_process` does: new ones each time, soon to expire."""
    script = tmp_path / "hand-out"
    script.write_text(
        "#!/bin/sh\n"
        f"echo x >> {tmp_path}/calls\n"
        f"n=$(wc -l < {tmp_path}/calls | tr -d ' ')\n"
        "when=$(date -u -d '+2 seconds' +%Y-%m-%dT%H:%M:%SZ)\n"
        'printf \'{"Version": 1, "AccessKeyId": "AKID%s", "SecretAccessKey": "s", "Expiration": "%s"}\' "$n" "$when"\n'
    )
    script.chmod(0o755)
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {script}\nregion = eu-west-1\n")
    found = run_python(
        """
        from loadgen.endpoints.base import parse_target
        from loadgen.endpoints.sigv4 import Signer
        signer, ids = Signer("sagemaker", None), []
        for _ in range(3):
            signer.refresh()
            wire = signer.signed(parse_target("http://a:1"), "/p", b"{}", {})
            ids.append(wire.split(b"Credential=")[1].split(b"/")[0].decode())
        print(json.dumps(ids))
        """,
        tmp_path,
        AWS_CONFIG_FILE=str(tmp_path / "config"),
    )
    assert len(set(found)) == 3


def test_an_installed_kind_is_found_by_its_entry_point(tmp_path):
    package = tmp_path / "elsewhere-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[ramptrace.endpoints]\nelsewhere = elsewhere:Elsewhere\nbroken = absent_module:X\n"
    )
    (tmp_path / "elsewhere.py").write_text(
        "class Elsewhere:\n"
        "    kind = 'elsewhere'\n"
        "    def __init__(self, section, prompts):\n"
        "        self.url, self.label = section.url, section.options['name']\n"
    )
    found = run_python(
        """
        import sys; sys.path.insert(0, ".")
        from loadgen.endpoints.registry import make_endpoint
        from loadgen.prompts import Prompts
        from loadgen.scenario import PromptsSection
        from loadgen.scenario_file import build_scenario
        from traces.errors import BadInputError
        def make(**target):
            section = build_scenario({"trace": {"path": "t"}, "target": target}, origin="o").target
            try:
                return make_endpoint(section, Prompts(PromptsSection(), seed=0)).label
            except BadInputError as error:
                return str(error)
        print(json.dumps([make(kind="elsewhere", options={"name": "there"}), make(kind="broken"), make(kind="opnai")]))
        """,
        tmp_path,
    )
    assert found[0] == "there"
    assert "cannot be loaded from absent_module:X" in found[1]
    assert 'did you mean "openai"' in found[2]
    assert "elsewhere" in found[2]
