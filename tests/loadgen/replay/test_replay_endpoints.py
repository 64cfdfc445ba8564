"""Adapters, in a process of its own for what imports Locust and botocore; frames are built here, independently."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import textwrap
import zlib

import pytest


def run_python(code: str, tmp_path, **environment: str) -> dict:
    """Run code that prints one JSON document, with Locust imported first as the replay command does."""
    import os

    script = "import locust, json\n" + textwrap.dedent(code)
    env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")} | environment
    env |= {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def frame(payload: bytes, **headers: str) -> bytes:
    """One event-stream message (application/vnd.amazon.eventstream), by the published layout."""
    head = b""
    for name, value in headers.items():
        key = (":" + name.replace("_", "-")).encode()
        head += bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    message = prelude + head + payload
    return message + struct.pack(">I", zlib.crc32(message))


def part(payload: bytes) -> bytes:
    return frame(payload, message_type="event", event_type="PayloadPart")


SSE = (
    b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"choices":[{"delta":{"content":"b"}}]}\n\n'
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
)

DECODE = """
    from loadgen.endpoints.sagemaker import FramedStream
    from loadgen.endpoints.base import Reply
    from loadgen.endpoints.chat import ChatStream
    reply = Reply(); stream = FramedStream(reply, ChatStream(reply)); body = bytes.fromhex({hex!r})
    for i in range(0, len(body), {step}):
        stream.feed(body[i:i + {step}], i)
    stream.close()
    print(json.dumps({{name: getattr(reply, name) for name in Reply.__slots__}}))
"""


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_payload_parts_may_end_anywhere(tmp_path, step):
    body = b"".join(part(SSE[i : i + 37]) for i in range(0, len(SSE), 37))
    found = run_python(DECODE.format(hex=body.hex(), step=step), tmp_path)
    assert (found["finished"], found["chunks"], found["error_kind"]) == (True, 2, None)
    assert (found["input_tokens"], found["output_tokens"]) == (3, 2)


@pytest.mark.parametrize("name", ["ModelStreamError", "InternalStreamFailure"])
def test_an_exception_frame_after_a_200_is_a_failure(tmp_path, name):
    body = part(SSE[:130]) + frame(b'{"Message":"SECRET"}', message_type="exception", exception_type=name)
    found = run_python(DECODE.format(hex=body.hex(), step=50), tmp_path)
    assert (found["finished"], found["error_kind"]) == (False, name)
    assert "SECRET" not in json.dumps(found)


def test_a_damaged_frame_is_a_failure(tmp_path):
    body = bytearray(part(SSE))
    body[-10] ^= 1
    assert run_python(DECODE.format(hex=body.hex(), step=50), tmp_path)["error_kind"] == "malformed_frame"


def test_a_prepared_request_carries_the_signature_that_its_bytes_have(tmp_path):
    """Sign the bytes on the wire again, from scratch, and compare."""
    found = run_python(
        """
        import datetime, hashlib, hmac
        from loadgen.endpoints.registry import make_endpoint
        from loadgen.plan import PlannedRequest
        from loadgen.prompts import Prompts
        from loadgen.scenario import PromptsSection, TargetSection
        section = TargetSection(kind="sagemaker", url="http://127.0.0.1:9", endpoint_name="de mo", region="eu-west-1")
        endpoint = make_endpoint(section, Prompts(PromptsSection(), seed=0)); endpoint.refresh()
        wire = endpoint.prepare(PlannedRequest(row_id=1, due_us=0, input_tokens=5, output_tokens=6))
        head, _, body = wire.partition(b"\\r\\n\\r\\n")
        first, *lines = head.decode().split("\\r\\n")
        method, path, _ = first.split(" ")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        scope, signed, signature = (p.partition("=")[2] for p in headers["authorization"].split(" ", 1)[1].split(", "))
        _, date, region, service, _ = scope.split("/")
        # the URI is encoded once more in the canonical request, as every service but S3 wants it
        named = [f"{name}:{headers[name]}" for name in signed.split(";")]
        digest = hashlib.sha256(body).hexdigest()
        canonical = "\\n".join([method, path.replace("%", "%25"), "", *named, "", signed, digest])
        text = "\\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], "/".join(scope.split("/")[1:]),
                          hashlib.sha256(canonical.encode()).hexdigest()])
        key = b"AWS4" + b"topsecret"
        for piece in (date, region, service, "aws4_request"):
            key = hmac.new(key, piece.encode(), hashlib.sha256).digest()
        again = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        print(json.dumps({"path": path, "same": again == signature, "service": service, "region": region,
                          "signed": signed, "length": int(headers["content-length"]) == len(body),
                          "leak": b"topsecret" in wire, "asked": json.loads(body)["max_tokens"]}))
        """,
        tmp_path,
        AWS_ACCESS_KEY_ID="AKIDEXAMPLE",
        AWS_SECRET_ACCESS_KEY="topsecret",
    )
    assert found["same"], found
    assert (found["service"], found["region"], found["asked"]) == ("sagemaker", "eu-west-1", 6)
    assert found["path"] == "/endpoints/de%20mo/invocations-response-stream"
    assert "host" in found["signed"]
    assert found["length"]
    assert not found["leak"]


def test_sagemaker_without_credentials_says_what_to_set(tmp_path):
    found = run_python(
        """
        from loadgen.endpoints.registry import make_endpoint
        from loadgen.prompts import Prompts
        from loadgen.scenario import PromptsSection, TargetSection
        from traces.errors import BadInputError
        try:
            section = TargetSection(kind="sagemaker", url="http://a:1", endpoint_name="x", region="r")
            make_endpoint(section, Prompts(PromptsSection(), seed=0))
        except BadInputError as error:
            print(json.dumps(str(error)))
        """,
        tmp_path,
    )
    assert "AWS_PROFILE" in found


def test_locust_first_then_botocore_imports(tmp_path):
    assert run_python("import loadgen.locustfile, loadgen.endpoints.sagemaker; print('true')", tmp_path) is True
