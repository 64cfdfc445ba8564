"""Servers that none of us wrote: recorded answers (see `peers/README.md`), and GuideLLM's mock where installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from loadgen.endpoints.answers import ErrorBody
from loadgen.endpoints.base import Reply
from loadgen.endpoints.chat import ChatDialect, CompletionsDialect
from loadgen.prompts import Prompts
from loadgen.scenario import PromptsSection, TargetSection
from tests.contract.test_endpoints_contract import ask

PEERS = Path(__file__).with_name("peers")
DIALECTS = {"chat": ChatDialect, "completions": CompletionsDialect}


def decode(name: str, step: int) -> Reply:
    head = (PEERS / f"{name}.head").read_text().splitlines()
    body = (PEERS / f"{name}.body").read_bytes()
    status = int(head[0].split(" ")[1])
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:])}
    reply = Reply()
    dialect = DIALECTS["completions" if "completions" in name else "chat"]
    asking = dialect(TargetSection(url="http://a"), Prompts(PromptsSection(), seed=0))
    decoder = asking.decoder(reply, headers["content-type"]) if status == 200 else ErrorBody(reply, status)
    for start in range(0, len(body), step):
        decoder.feed(body[start : start + step], start)
    reply.complete = True
    decoder.close()
    return reply


@pytest.mark.parametrize("step", [1, 100, 100_000])
@pytest.mark.parametrize(
    ("name", "tokens_in"),
    [
        ("guidellm-0.8.1-chat", 8),
        ("guidellm-0.8.1-completions", 8),
        ("transformers-5.24.0-chat", None),
        ("transformers-5.24.0-completions", None),
    ],
)
def test_recorded_streams(name, tokens_in, step):
    reply = decode(name, step)
    assert (reply.finished, reply.error_kind, reply.output_tokens) == (True, None, 5)
    assert 1 <= reply.chunks <= 5
    assert reply.input_tokens > 0
    assert tokens_in is None or reply.input_tokens == tokens_in
    assert reply.first_token_us == reply.first_visible_us


def test_a_recorded_whole_answer():
    reply = decode("transformers-5.24.0-chat-whole", 50)
    assert (reply.finished, reply.error_kind, reply.output_tokens, reply.chunks) == (True, None, 5, None)


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [("guidellm-0.8.1-error", "http_400", "invalid_request_error"), ("transformers-5.24.0-error", "http_500", None)],
)
def test_recorded_errors(name, kind, text):
    reply = decode(name, 7)
    assert (reply.error_kind, reply.error_text, reply.finished) == (kind, text, False)


@pytest.fixture(scope="module")
def guidellm():
    """The mock server of an installed GuideLLM; RAMPTRACE_GUIDELLM names its command in another environment."""
    program = os.environ.get("RAMPTRACE_GUIDELLM") or shutil.which("guidellm")
    if program is None:
        pytest.skip("GuideLLM is not installed: name its command in RAMPTRACE_GUIDELLM")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "mock-server", "--host", "127.0.0.1", "--port", str(port), "--ttft-ms", "50", "--itl-ms", "5"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        for _ in range(600):
            if process.poll() is not None:
                pytest.skip(f"{program} did not start (exit code {process.returncode})")
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.e2e
def test_guidellms_mock_server(guidellm, tmp_path):
    cases = [{"target": {"kind": kind, "url": guidellm, "model": "m"}} for kind in ("openai", "completions")]
    cases.append({"target": cases[0]["target"] | {"stream": False}})
    cases.append({"target": cases[0]["target"], "row": {"output_tokens": 400, "cancel_after_tokens": 3}})
    chat, completions, whole, left = ask(cases, tmp_path)
    for row in (chat, completions):
        assert (row["outcome"], row["output_tokens"], row["chunks"]) == ("ok", 6, 6)
        assert row["first_token"] - row["sent"] > 40_000
    assert (whole["outcome"], whole["output_tokens"], whole["first_token"]) == ("ok", 6, None)
    assert (left["outcome"], left["error_kind"]) == ("cancelled", "as_recorded")
    assert 3 <= left["chunks"] < 400
