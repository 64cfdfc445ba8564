"""What is read from the bytes that pass by: the same however they are cut, and nothing that is not there."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.record.meter import MAX_BODY_BYTES, Asked, Collected, Meter, Usage, asked

STREAM = (
    b'data: {"choices":[{"delta":{"content":"say \\"usage\\""}}],"usage":null}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":21,"completion_tokens":4}}\r\n\r\ndata: [DONE]\n\n'
)
WHOLE = json.dumps({"choices": [], "usage": {"prompt_tokens": 21, "completion_tokens": 4}}).encode()
RESPONSES = b'event: response.completed\ndata: {"response":{"usage":{"input_tokens":21,"output_tokens":4}}}\n\n'


@pytest.mark.parametrize(
    ("kind", "body"),
    [("text/event-stream; charset=utf-8", STREAM), ("application/json", WHOLE), ("text/event-stream", RESPONSES)],
)
@pytest.mark.parametrize("encoding", ["", "gzip"])
@given(cuts=st.lists(st.integers(0, 250), max_size=6).map(sorted))
def test_usage_is_read_however_the_bytes_are_cut(kind, body, encoding, cuts):
    content = gzip.compress(body) if encoding else body
    meter = Meter(kind, encoding)
    for start, end in zip([0, *cuts], [*cuts, None], strict=True):
        meter.feed(content[start:end])
    assert meter.usage() == Usage(21, 4)


@given(st.binary(max_size=200), st.sampled_from(["", "gzip", "br"]), st.sampled_from(["text/event-stream", "x"]))
def test_no_answer_breaks_the_meter(body, encoding, kind):
    meter = Meter(kind, encoding)
    meter.feed(body)
    usage = meter.usage()
    assert usage.input_tokens is None or b'"usage"' in body


@pytest.mark.parametrize(
    "usage", ['{"prompt_tokens":-1}', '{"prompt_tokens":true}', '{"prompt_tokens":"9"}', "[]", "null"]
)
def test_what_is_no_count_is_unknown(usage):
    meter = Meter("application/json", "")
    meter.feed(f'{{"usage":{usage}}}'.encode())
    assert meter.usage() == Usage()


@given(st.binary(max_size=200))
def test_any_request_body_can_pass(body):
    assert isinstance(asked(body), Asked)


def test_requests_tell_model_and_images():
    message = {"role": "user", "content": [{"type": "image_url"}, {"type": "text"}, "x"]}
    assert asked(json.dumps({"model": "m", "messages": [message, message, "y"]}).encode()) == Asked("m", 2)
    assert asked(b'{"model": 7, "prompt": "x"}') == Asked(None, None)
    assert asked(None) == Asked()


def test_a_body_too_long_is_passed_and_not_read():
    collected = Collected()
    collected.feed(b"x" * MAX_BODY_BYTES)
    assert collected.content() is not None
    collected.feed(b"x")
    assert collected.content() is None
