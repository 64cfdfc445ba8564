"""A SageMaker target before the first request: a name that is not there is said once, not with every request."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from loadgen.scenario_file import build_scenario
from tests.emulators import start_emulator
from traces.errors import BadInputError

pytestmark = pytest.mark.e2e


@pytest.fixture
def invoke(trace, tmp_path, monkeypatch):
    """Replay 20 requests to an endpoint of this name; returns (exit code, summary, stderr, text)."""
    for name, value in {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "topsecret"}.items():
        monkeypatch.setenv(name, value)

    def run(url: str, *more: str):
        line = [sys.executable, "-m", "ramptrace", "replay", "--trace", str(trace([i * 20 for i in range(20)]))]
        line += ["--kind", "sagemaker", "--target", url, "--region", "eu-west-1", "--no-collect"]
        line += ["--run-dir", str(tmp_path / "run"), *more]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


def test_an_endpoint_that_does_not_exist_is_one_clear_line(invoke, tmp_path):
    with start_emulator(time_scale=20) as url:
        code, _, stderr = invoke(url, "--endpoint-name", "nope")
    assert (code, stderr.count("\n")) == (4, 1)
    assert 'the endpoint "nope" does not exist in eu-west-1' in stderr
    assert not (tmp_path / "run").exists()


@pytest.fixture
def platform():
    """A runtime whose model refuses every request, and a control plane that answers as told."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        answer: tuple[int, dict] = (400, {"__type": "AccessDeniedException", "message": "not you"})

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            status, document = self.answer if self.path == "/" else (400, {"message": "SECRET"})
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(body)))
            if self.path != "/":
                self.send_header("x-amzn-ErrorType", "ValidationError:http://internal.amazon.com/")
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.send_error(404)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", Handler
    server.shutdown()
    server.server_close()


def test_who_may_not_ask_goes_on_and_the_summary_says_what_the_answers_said(invoke, platform):
    url, _ = platform
    code, stdout, _ = invoke(url, "--endpoint-name", "demo", "--json")
    summary = json.loads(stdout)
    assert code in {0, 5}
    assert summary["requests"]["failed"] == {"http_400": 20}
    assert summary["errors"] == [{"outcome": "http_error", "kind": "http_400", "text": "ValidationError", "rows": 20}]


def test_the_text_summary_names_the_most_frequent_error(invoke, platform):
    _, stdout, _ = invoke(platform[0], "--endpoint-name", "demo")
    assert "errors    20 http_400: ValidationError" in stdout
    assert "SECRET" not in stdout


def test_an_endpoint_that_is_not_in_service_is_not_sent_to(invoke, platform):
    url, handler = platform
    handler.answer = (200, {"EndpointStatus": "Creating"})
    code, _, stderr = invoke(url, "--endpoint-name", "demo")
    assert (code, stderr.count("\n")) == (4, 1)
    assert 'the endpoint "demo" is Creating, not InService' in stderr


def test_a_query_in_the_address_is_refused():
    target = {"kind": "sagemaker", "endpoint_name": "demo", "url": "https://a.test?x=SECRET"}
    with pytest.raises(BadInputError, match="has no query") as caught:
        build_scenario({"trace": {"path": "t"}, "target": target}, origin="s.toml")
    assert "SECRET" not in str(caught.value)
