"""Ways to a target: proxies that the environment names, IPv6, and connections that one side closes."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from loadgen.endpoints.base import parse_target
from loadgen.proxy import proxy_for
from tests.contract.test_endpoints_contract import ask
from tests.loadgen.replay.test_replay_hostile import Hostile
from traces.errors import BadInputError

PROXY = Path(__file__).with_name("forward_proxy.py")
VARIABLES = [name for word in ("http", "https", "all", "no") for name in (f"{word}_proxy", f"{word}_proxy".upper())]


@pytest.fixture
def named(monkeypatch):
    """Set the environment's proxies; returns the proxy for an address."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def proxy(url: str, *, loopback: bool = False, **environment: str):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return proxy_for(parse_target(url), loopback=loopback)

    return proxy


def test_the_environment_names_the_proxy(named):
    assert named("http://a.test") is None
    assert named("http://a.test", HTTP_PROXY="http://p.test:3128").origin == "http://p.test:3128"
    assert named("https://a.test") is None
    assert named("https://a.test", https_proxy="q.test:8080").origin == "http://q.test:8080"
    assert named("https://a.test:444", NO_PROXY="b.test,a.test") is None
    assert named("https://c.test", NO_PROXY=".test") is None
    assert named("http://d.example").port == 3128


def test_all_proxy_is_for_both(named):
    assert named("https://a.test", ALL_PROXY="http://[::1]:9").origin == "http://[::1]:9"


def test_loopback_is_never_reached_through_a_proxy(named):
    assert named("http://127.0.0.1:8000", loopback=True, HTTP_PROXY="http://p.test:3128") is None


def test_what_a_proxy_is_told(named):
    proxy = named("https://[2001:db8::1]:444/v1", HTTPS_PROXY="http://me:s%40fe@p.test:3128")
    word = base64.b64encode(b"me:s@fe").decode()
    assert proxy.tunnel(parse_target("https://[2001:db8::1]:444/v1")).decode() == (
        f"CONNECT [2001:db8::1]:444 HTTP/1.1\r\nHost: [2001:db8::1]:444\r\nProxy-Authorization: Basic {word}\r\n\r\n"
    )
    assert "fe" not in proxy.origin


@pytest.mark.parametrize("value", ["socks5://me:SECRET@p.test:1080", "https://p.test", "http://p.test:x", "http://"])
def test_a_proxy_that_cannot_be_used_is_refused_and_not_shown(named, value):
    with pytest.raises(BadInputError, match=r"HTTP_PROXY: expected http://HOST:PORT") as caught:
        named("http://a.test", HTTP_PROXY=value)
    assert "SECRET" not in str(caught.value)


@pytest.fixture
def proxy(tmp_path):
    """A forward proxy that carries every host to 127.0.0.1; its port, and what it was told."""
    log = tmp_path / "proxy.log"
    log.touch()
    process = subprocess.Popen(
        [sys.executable, str(PROXY), str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield int(process.stdout.readline()), lambda: [json.loads(line) for line in log.read_text().splitlines()]
    process.stdin.close()
    process.stdout.close()
    process.wait(10)


@pytest.fixture
def hostile(tmp_path):
    found = Hostile(tmp_path)
    yield found
    found.close()


@pytest.mark.e2e
def test_requests_go_through_a_proxy_with_whole_addresses(hostile, proxy, tmp_path):
    port, told = proxy
    target = hostile.target("keep", host="nowhere.test")
    environment = {"HTTP_PROXY": f"http://me:pw@127.0.0.1:{port}", "NO_PROXY": ""}
    (row,) = ask([{"target": target, "requests": 2}], tmp_path, **environment)
    assert (row["outcome"], row["chunks"]) == ("ok", 2)
    assert hostile.read("keep") == 2
    lines = [entry["line"] for entry in told() if entry["line"].startswith("POST")]
    assert lines == [f"POST http://nowhere.test:{hostile.port}/keep/v1/chat/completions HTTP/1.1"] * 2
    assert {entry["authorization"] for entry in told()} <= {"Basic " + base64.b64encode(b"me:pw").decode(), None}


@pytest.mark.e2e
@pytest.mark.parametrize(("host", "options"), [("[::1]", ["--ipv6"]), ("localhost", [])])
def test_ipv6_literals_and_names(tmp_path, host, options):
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    server = Hostile(tmp_path, *options)
    try:
        (row,) = ask([{"target": server.target("close", host=host), "requests": 3}], tmp_path)
    finally:
        server.close()
    assert (row["outcome"], row["chunks"]) == ("ok", 2)


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command to make a certificate")
def test_tls_goes_through_a_proxy_and_is_verified_with_the_targets_own_name(proxy, tmp_path):
    key, cert, both = (tmp_path / name for name in ("key.pem", "cert.pem", "both.pem"))
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert)]
    line += ["-days", "2", "-subj", "/CN=secure.test", "-addext", "subjectAltName=DNS:secure.test"]
    subprocess.run(line, check=True, capture_output=True)
    both.write_text(cert.read_text() + key.read_text())
    port, told = proxy
    server = Hostile(tmp_path, "--tls", str(both))
    environment = {"HTTPS_PROXY": f"http://127.0.0.1:{port}", "NO_PROXY": "", "SSL_CERT_FILE": str(cert)}
    target = {"kind": "openai", "model": "m", "url": f"https://secure.test:{server.port}/keep"}
    try:
        (row,) = ask([{"target": target, "requests": 2}], tmp_path, **environment)
    finally:
        server.close()
    assert (row["outcome"], row["chunks"]) == ("ok", 2)
    assert {entry["line"] for entry in told()} == {f"CONNECT secure.test:{server.port} HTTP/1.1"}


@pytest.mark.e2e
def test_a_proxy_that_is_not_there_is_named(trace, replay, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:SECRET@127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    code, _, stderr = replay(trace([0]), "https://secure.test/v1")
    assert (code, stderr.count("\n")) == (4, 1)
    assert "https://secure.test through the proxy http://127.0.0.1:1: cannot connect (connection refused)" in stderr
    assert "SECRET" not in stderr


@pytest.mark.e2e
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_handshake_that_is_cut_or_answered_in_plain_is_one_clear_line(trace, replay, said):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(10)  # not all of it: closing resets
                    client.sendall(said)

        threading.Thread(target=answer, daemon=True).start()
        code, _, stderr = replay(trace([0]), f"https://127.0.0.1:{listener.getsockname()[1]}/v1")
    assert (code, stderr.count("\n")) == (4, 1)
    assert "does the port speak TLS?" in stderr


@pytest.mark.e2e
def test_loopback_goes_around_the_proxy(hostile, tmp_path):
    environment = {"HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"}
    (row,) = ask([{"target": hostile.target("close")}], tmp_path, **environment)
    assert row["outcome"] == "ok"
