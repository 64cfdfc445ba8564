"""TLS is verified with the target's own name, unless the scenario says otherwise."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command to make a certificate"),
]


@pytest.fixture
def certificate(tmp_path) -> Path:
    """A certificate for the name localhost, with its key."""
    key, cert, both = tmp_path / "key.pem", tmp_path / "cert.pem", tmp_path / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert)]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)
    both.write_text(cert.read_text() + key.read_text())
    return both


@pytest.fixture
def tls_server(tmp_path, certificate):
    script = Path(__file__).with_name("server.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "log"), "--tls", str(certificate)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield int(process.stdout.readline())
    process.stdin.close()
    process.stdout.close()
    process.wait(10)


def test_an_unknown_certificate_is_refused(tls_server, trace, replay):
    code, _, stderr = replay(trace([0]), f"https://localhost:{tls_server}/ok")
    assert code == 4
    assert "certificate" in stderr
    assert stderr.count("\n") == 1


def test_a_trusted_certificate_carries_streams(tls_server, trace, replay, rows, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_name("cert.pem")))
    code, summary, stderr = replay(trace([i * 20 for i in range(15)]), f"https://localhost:{tls_server}/ok")
    assert (code, stderr) == (0, "")
    assert summary["requests"]["ok"] == 15
    assert (rows()["first_token"] < rows()["done"]).all()


def test_a_trusted_certificate_for_another_name_is_refused(tls_server, trace, replay, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_name("cert.pem")))
    code, _, stderr = replay(trace([0]), f"https://127.0.0.1:{tls_server}/ok")
    assert code == 4
    assert "certificate" in stderr


def test_verification_can_be_switched_off(tls_server, trace, command, rows, tmp_path):
    line = command(trace([0, 20]), f"https://127.0.0.1:{tls_server}/ok")
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(scenario.read_text().replace("[replay]", "verify_tls = false\n[replay]"))
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert rows()["outcome"].to_list() == ["ok"] * 2
