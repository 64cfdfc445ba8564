"""What every kind of endpoint owes the replay, whatever its protocol: one suite over all of them.

Each kind is asked through the replay's own client and sender, in one process per kind, by a server written from the
protocols' public descriptions. Peers that none of us wrote are in `test_endpoint_peers.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadgen.scenario_file import build_scenario
from traces.errors import BadInputError

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = {"q": "${prompt}", "n": "${max_tokens}", "note": "row ${row_id}", "m": "${model}"}
SAGEMAKER = {"kind": "sagemaker", "endpoint_name": "demo", "region": "eu-west-1"}
KINDS = {
    "openai": {"kind": "openai", "model": "m"},
    "completions": {"kind": "completions", "model": "m"},
    "tgi": {"kind": "tgi"},
    "triton": {"kind": "triton", "model": "m"},
    "http-sse": {"kind": "http", "body": TEMPLATE | {"as": "sse"}, "answer": "sse"},
    "http-lines": {"kind": "http", "body": TEMPLATE | {"as": "lines"}, "answer": "lines"},
    "sagemaker": SAGEMAKER | {"inference_component": "copy-a"},
    "sagemaker-completions": SAGEMAKER | {"dialect": "completions"},
    "sagemaker-tgi": SAGEMAKER | {"dialect": "tgi"},
}
HAS_END_MARKER = {"openai", "completions", "tgi", "sagemaker", "sagemaker-completions", "sagemaker-tgi"}
COUNTS_TOKENS = HAS_END_MARKER
UNINTERPRETED = {"http-sse", "http-lines"}

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "topsecret"}


def ask(cases: list[dict], tmp_path: Path, **environment: str) -> list[dict]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("endpoint_harness.py"))],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=tmp_path,
        env=kept
        | CREDENTIALS
        | {"PYTHONPATH": str(ROOT), "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}
        | environment,
    )
    assert done.returncode == 0, done.stderr
    assert "SECRET" not in done.stdout
    return json.loads(done.stdout)


class Server:
    def __init__(self, log: Path) -> None:
        self.log = log
        log.touch()
        script = Path(__file__).with_name("endpoint_server.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = int(self.process.stdout.readline())

    def url(self, behaviour: str) -> str:
        return f"http://127.0.0.1:{self.port}/{behaviour}"

    def entries(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def asked(self, behaviour: str) -> dict:
        (found,) = [e for e in self.entries() if "path" in e and e["path"].split("/")[1] == behaviour]
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    found = Server(tmp_path_factory.mktemp("server") / "log")
    yield found
    found.process.stdin.close()
    found.process.stdout.close()
    found.process.wait(10)


CASES = {
    "ok": {},
    "whole": {},
    "not-streamed": {"target": {"stream": False}},
    "cut-not-streamed": {"behaviour": "cut", "target": {"stream": False}},
    "503": {},
    "cut": {},
    "cleancut": {},
    "error": {},
    "leave": {"behaviour": "ok", "row": {"output_tokens": 200, "cancel_after_tokens": 3}},
    "leave-in-time": {"behaviour": "ok", "row": {"output_tokens": 400, "cancel_after_us": 100_000}},
}


@pytest.fixture(scope="module", params=list(KINDS))
def answers(request, server, tmp_path_factory):
    """The rows of all cases of one kind, by name."""
    kind = request.param
    cases = []
    for case in CASES.values():
        name = case.get("behaviour") or next(n for n, c in CASES.items() if c is case)
        behaviour = "ok" if name == "not-streamed" else name
        target = KINDS[kind] | {"url": server.url(behaviour)} | case.get("target", {})
        if target["kind"] == "http" and target.get("stream") is False:
            target = target | {"answer": "whole", "body": TEMPLATE}
        cases.append({"target": target, "row": case.get("row", {})})
    return kind, dict(zip(CASES, ask(cases, tmp_path_factory.mktemp("ask")), strict=True))


def test_a_stream_is_ok_with_its_instants_in_order_and_one_chunk_per_token(answers):
    kind, rows = answers
    row = rows["ok"]
    assert (row["outcome"], row["error_kind"], row["http_status"]) == ("ok", None, 200)
    assert row["chunks"] == 6
    assert row["sent"] <= row["headers"] < row["first_token"] < row["last_token"] <= row["done"]
    assert row["first_visible_token"] == row["first_token"]
    assert row["first_token"] - row["headers"] > 100_000, "an event without content is not a token"
    assert row["unit_id"] == "i-7"
    assert (row["input_tokens"], row["output_tokens"]) == ((7, 6) if kind in COUNTS_TOKENS else (None, None))


@pytest.mark.parametrize("case", ["whole", "not-streamed"])
def test_a_whole_answer_is_ok_and_dates_no_token(answers, case):
    kind, rows = answers
    if case == "whole" and kind in UNINTERPRETED | {"sagemaker", "sagemaker-completions", "sagemaker-tgi"}:
        pytest.skip("this protocol has no whole answer to a request for a stream")
    row = rows[case]
    assert (row["outcome"], row["first_token"], row["chunks"]) == ("ok", None, None)
    if kind in COUNTS_TOKENS:
        assert row["output_tokens"] == 6


@pytest.mark.parametrize("case", ["cut", "cut-not-streamed"])
def test_a_cut_answer_is_never_a_success(answers, case):
    _, rows = answers
    assert rows[case]["outcome"] == "truncated"


def test_an_answer_that_ends_in_the_middle_is_truncated_where_the_protocol_has_an_end(answers):
    kind, rows = answers
    row = rows["cleancut"]
    if kind in HAS_END_MARKER:
        assert (row["outcome"], row["error_kind"]) == ("truncated", "no_end_marker")
    else:
        assert row["outcome"] == "ok"
        assert row["chunks"] == 3, "what came is counted; that more should have come cannot be known"


def test_an_http_error_keeps_its_type_and_nothing_else(answers):
    _, rows = answers
    row = rows["503"]
    assert (row["outcome"], row["error_kind"], row["error_text"]) == ("http_error", "http_503", "overloaded")


def test_an_error_event_after_a_200_is_a_failure(answers):
    kind, rows = answers
    if kind in UNINTERPRETED:
        pytest.skip("events of an unknown protocol are not interpreted")
    assert (rows["error"]["outcome"], rows["error"]["error_kind"]) == ("stream_error", "server_error")


def test_a_client_leaves_as_recorded_and_the_server_sees_it(answers, server):
    _, rows = answers
    for case in ("leave", "leave-in-time"):
        assert (rows[case]["outcome"], rows[case]["error_kind"]) == ("cancelled", "as_recorded")
    assert 3 <= rows["leave"]["chunks"] < 200
    assert rows["leave-in-time"]["done"] - rows["leave-in-time"]["sent"] >= 95_000
    assert any(entry.get("left") for entry in server.entries())


PATHS = {
    "openai": "/ask-openai/v1/chat/completions",
    "completions": "/ask-completions/v1/completions",
    "tgi": "/ask-tgi/generate_stream",
    "triton": "/ask-triton/v2/models/m/generate_stream",
    "http-sse": "/ask-http-sse",
    "sagemaker": "/ask-sagemaker/endpoints/demo/invocations-response-stream",
    "sagemaker-tgi": "/ask-sagemaker-tgi/endpoints/demo/invocations-response-stream",
}


def test_each_kind_asks_in_its_own_words(server, tmp_path):
    cases = [{"target": KINDS[kind] | {"url": server.url(f"ask-{kind}")}} for kind in PATHS]
    assert {row["outcome"] for row in ask(cases, tmp_path)} == {"ok"}
    found = {kind: server.asked(f"ask-{kind}") for kind in PATHS}
    assert {kind: entry["path"] for kind, entry in found.items()} == PATHS
    body = {kind: entry["body"] for kind, entry in found.items()}
    text = body["completions"]["prompt"]
    assert len(text.split()) == 12
    assert body["openai"]["messages"] == [{"role": "user", "content": text}]
    assert body["openai"]["max_tokens"] == 6
    assert body["openai"]["stream_options"] == {"include_usage": True}
    assert "min_tokens" not in body["openai"]
    assert body["tgi"] == {"inputs": text, "parameters": {"max_new_tokens": 6, "details": True}}
    assert body["triton"] == {"text_input": text, "max_tokens": 6, "stream": True}
    assert body["http-sse"] == {"q": text, "n": 6, "note": "row 1", "as": "sse"}, "no model, no field for it"
    assert body["sagemaker-tgi"]["stream"] is True
    headers = found["sagemaker"]["headers"]
    assert headers["x-amzn-sagemaker-inference-component"] == "copy-a"
    signed = headers["authorization"]
    assert signed.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "x-amzn-sagemaker-inference-component" in signed
    assert "topsecret" not in json.dumps(server.entries())


def test_the_output_length_is_enforced_where_asked_for(server, tmp_path):
    options = {"min_tokens": True, "ignore_eos": True, "extra_body": {"temperature": 0.5}}
    cases = [
        {
            "target": KINDS["openai"]
            | options
            | {"url": server.url("len-a"), "max_tokens_field": "max_completion_tokens"}
        },
        {"target": KINDS["triton"] | options | {"url": server.url("len-b")}},
        {"target": KINDS["tgi"] | {"url": server.url("len-c"), "extra_body": {"top_k": 3}}},
        {"target": KINDS["openai"] | {"url": server.url("len-d"), "stream_usage": False}},
    ]
    # The server knows max_tokens only, so that the first of them fails there; what was asked is what counts.
    ask(cases, tmp_path)
    asked = {name: server.asked(f"len-{name}")["body"] for name in "abcd"}
    assert (asked["a"]["max_completion_tokens"], asked["a"]["min_tokens"], asked["a"]["ignore_eos"]) == (6, 6, True)
    assert "max_tokens" not in asked["a"]
    assert asked["a"]["temperature"] == 0.5
    assert (asked["b"]["min_tokens"], asked["b"]["ignore_eos"]) == (6, True)
    assert asked["c"]["parameters"] == {"max_new_tokens": 6, "details": True, "top_k": 3}
    assert "stream_options" not in asked["d"]


def test_images_go_into_the_message(server, tmp_path):
    case = {"target": KINDS["openai"] | {"url": server.url("image")}, "prompts": {"image_size": "64x64"}}
    ask([case | {"row": {"images": 2}}], tmp_path)
    parts = server.asked("image")["body"]["messages"][0]["content"]
    assert [part["type"] for part in parts] == ["image_url", "image_url", "text"]


def test_secrets_come_from_environment_and_files(server, tmp_path):
    (tmp_path / "token").write_text("from-a-file\n")
    keys = [
        {"api_key_env": "MY_KEY", "header_env": {"x-api-key": "OTHER"}},
        {"api_key_file": str(tmp_path / "token"), "header_file": {"X-Second": str(tmp_path / "token")}},
        {"sigv4_service": "execute-api", "region": "eu-west-1"},
    ]
    cases = [{"target": KINDS["openai"] | {"url": server.url(f"secret-{i}")} | key} for i, key in enumerate(keys)]
    ask(cases, tmp_path, MY_KEY="one", OTHER="two")
    headers = [server.asked(f"secret-{i}")["headers"] for i in range(3)]
    assert (headers[0]["authorization"], headers[0]["x-api-key"]) == ("Bearer one", "two")
    assert (headers[1]["authorization"], headers[1]["x-second"]) == ("Bearer from-a-file", "from-a-file")
    assert "/eu-west-1/execute-api/aws4_request" in headers[2]["authorization"]


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ({"kind": "triton", "url": "http://a"}, "model"),
        ({"kind": "sagemaker"}, "endpoint_name"),
        ({"kind": "tgi"}, "url"),
        ({"kind": "tgi", "url": "http://a", "min_tokens": True}, "extra_body"),
        ({"kind": "openai", "url": "http://a", "body": {}}, "template"),
    ],
)
def test_what_a_kind_cannot_do_is_refused(target, word):
    with pytest.raises(BadInputError, match=word):
        build_scenario({"trace": {"path": "t"}, "target": target}, origin="s.toml")


def test_images_are_refused_where_they_cannot_be_sent():
    document = {"trace": {"path": "t"}, "target": {"kind": "tgi", "url": "http://a"}}
    with pytest.raises(BadInputError, match="no images"):
        build_scenario(document | {"prompts": {"image_size": "8x8"}}, origin="s.toml")
