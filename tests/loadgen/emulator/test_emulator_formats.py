import json

import msgspec
import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from loadgen.emulator.chat import BadRequestError, ChatAnswer, parse_chat_request
from loadgen.emulator.eventstream import payload_parts, stream_exception
from loadgen.emulator.fleet import OperationSample
from loadgen.emulator.promql import QueryError, evaluate, names, parse_query
from loadgen.emulator.wire import ShapeError, WireError, parse_request, render_response, service_model

S = 1_000_000


def frames(data):
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [(message.headers, message.payload) for message in buffer]


@given(st.binary(max_size=400))
def test_payload_parts_come_back_whole_through_botocores_parser(data):
    parts = frames(payload_parts(data))
    assert b"".join(payload for _, payload in parts) == data
    assert {headers[":event-type"] for headers, _ in parts} == {"PayloadPart"}


def test_events_are_cut_somewhere_in_the_middle():
    line = b'data: {"choices":[{"delta":{"content":" more"}}]}\n\n'
    sizes = {len(frames(payload_parts(line * count))[0][1]) % len(line) for count in range(1, 20)}
    assert len(sizes) > 10


def test_an_exception_frame_says_what_failed():
    ((headers, payload),) = frames(stream_exception("ModelStreamError", b'{"Message":"x"}'))
    assert headers[":message-type"] == "exception"
    assert headers[":exception-type"] == "ModelStreamError"
    assert json.loads(payload) == {"Message": "x"}


def chat(**changes):
    document = {"messages": [{"role": "user", "content": "x" * 41}], "max_tokens": 7, **changes}
    return parse_chat_request(json.dumps(document).encode())


def test_a_chat_request_is_read():
    wanted = chat(stream=True, stream_options={"include_usage": True}, model="m")
    assert (wanted.input_tokens, wanted.output_tokens, wanted.stream, wanted.include_usage, wanted.model) == (
        10,
        7,
        True,
        True,
        "m",
    )
    parts = [{"type": "text", "text": "y" * 8}, {"type": "image_url", "image_url": {"url": "data:"}}]
    assert chat(messages=[{"role": "user", "content": parts}]).input_tokens == 2
    assert chat(messages=[{"role": "user", "content": ""}]).input_tokens == 1
    assert chat(max_completion_tokens=3).output_tokens == 3
    assert not chat().stream


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"messages":[]}',
        b'{"messages":[{}],"max_tokens":0}',
        b'{"messages":[{}],"max_tokens":"3"}',
    ],
)
def test_a_bad_chat_request_is_refused(body):
    with pytest.raises(BadRequestError):
        parse_chat_request(body)


def events(data):
    return [json.loads(line[6:]) for line in data.decode().split("\n\n") if line and line != "data: [DONE]"]


def test_an_answer_is_one_event_per_token_and_the_same_text_as_the_body():
    wanted = chat(stream=True, stream_options={"include_usage": True}, max_tokens=30)
    answer = ChatAnswer(wanted, "1f", 1000, "m")
    assert events(answer.opening())[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    tokens = events(answer.tokens(0, 13)) + events(answer.tokens(13, 30))
    assert len(tokens) == 30
    body = json.loads(answer.body())
    assert (
        "".join(event["choices"][0]["delta"]["content"] for event in tokens) == body["choices"][0]["message"]["content"]
    )
    end, usage = events(answer.closing())
    assert end["choices"][0]["finish_reason"] == "length"
    assert usage["usage"] == body["usage"] == {"prompt_tokens": 10, "completion_tokens": 30, "total_tokens": 40}
    assert usage["choices"] == []
    assert answer.closing().endswith(b"data: [DONE]\n\n")


LABELS = {"aws.sagemaker.endpoint.name": "demo", "@resource.host.id": "i-1"}


def sample(name="model_download_time", at_s=100, value=77.0, lag_s=5, **labels):
    at_us = at_s * S
    return OperationSample(
        name=name, value=value, at_us=at_us, visible_us=at_us + lag_s * S, labels={**LABELS, **labels}
    )


def ask(text, samples, at_s=1000, now_s=None):
    return evaluate(parse_query(text), samples, at_s * S, (at_s if now_s is None else now_s) * S)


def test_a_range_gives_the_raw_samples_of_each_series():
    other = sample(at_s=130, value=80.5, **{"@resource.host.id": "i-2"})
    data = ask('model_download_time{"aws.sagemaker.endpoint.name"="demo"}[30m]', [sample(), sample(at_s=900), other])
    assert data["resultType"] == "matrix"
    by_host = {found["metric"]["@resource.host.id"]: found["values"] for found in data["result"]}
    assert by_host == {"i-1": [[100.0, "77"], [900.0, "77"]], "i-2": [[130.0, "80.5"]]}
    assert data["result"][0]["metric"]["__name__"] == "model_download_time"


def test_a_sample_is_seen_once_published_and_as_long_as_the_range_reaches():
    text = "model_download_time[1m]"
    assert ask(text, [sample()], at_s=104)["result"] == []
    assert len(ask(text, [sample()], at_s=105)["result"]) == 1
    assert len(ask(text, [sample()], at_s=159)["result"]) == 1
    assert ask(text, [sample()], at_s=160)["result"] == []


def test_without_a_range_the_newest_of_five_minutes():
    data = ask("model_download_time", [sample(), sample(at_s=110, value=78)], at_s=200)
    assert data == {
        "resultType": "vector",
        "result": [{"metric": {"__name__": "model_download_time", **LABELS}, "value": [200.0, "78"]}],
    }
    assert ask("model_download_time", [sample()], at_s=500)["result"] == []


@pytest.mark.parametrize(
    ("matchers", "count"),
    [
        ('"@resource.host.id"="i-1"', 1),
        ('"@resource.host.id"!="i-1"', 0),
        ('"@resource.host.id"=~"i-.*"', 1),
        ('"@resource.host.id"!~"i-.*"', 0),
        ('zone=""', 1),
        ('"@resource.host.id"="i-1", "aws.sagemaker.endpoint.name"="other",', 0),
    ],
)
def test_matchers(matchers, count):
    assert len(ask(f"model_download_time{{{matchers}}}[1h]", [sample()])["result"]) == count


def test_other_ways_to_name_a_metric():
    for text in ('{"model_download_time"}[1h]', '{__name__="model_download_time"}[1h]', " model_download_time [60m] "):
        assert len(ask(text, [sample()])["result"]) == 1
    assert names([sample(), sample("e2e_duration", at_s=990, lag_s=20)], 1000 * S) == ["model_download_time"]


@pytest.mark.parametrize(
    "text", ["", "{}", '{a="b"}', "rate(x[5m])", "x[5y]", "x{a=b}", 'x{a=~"("}', "x[5m] offset 1m"]
)
def test_anything_else_is_refused(text):
    with pytest.raises(QueryError):
        parse_query(text)


def operation(service, name):
    return service_model(service).operation_model(name)


def test_a_member_that_the_shape_does_not_know_is_an_error_both_ways():
    describe = operation("sagemaker", "DescribeEndpoint")
    with pytest.raises(WireError, match="Nonsense"):
        parse_request("json", describe, b'{"EndpointName":"demo","Nonsense":1}')
    with pytest.raises(ShapeError, match="Nonsense"):
        render_response("json", describe, {"EndpointName": "demo", "Nonsense": 1}, "id")


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"EndpointName":3}'])
def test_a_request_that_does_not_fit_is_refused(body):
    with pytest.raises(WireError):
        parse_request("json", operation("sagemaker", "DescribeEndpoint"), body)


def test_a_query_request_is_read_by_its_shape():
    pairs = {
        "Action": "GetMetricData",
        "MetricDataQueries.member.1.Id": "a",
        "MetricDataQueries.member.1.MetricStat.Metric.Dimensions.member.1.Name": "EndpointName",
        "MetricDataQueries.member.1.MetricStat.Metric.Dimensions.member.1.Value": "demo",
        "MetricDataQueries.member.1.MetricStat.Period": "10",
        "MetricDataQueries.member.1.MetricStat.Stat": "Maximum",
        "StartTime": "2026-06-01T00:00:00Z",
        "EndTime": "2026-06-01T01:00:00Z",
    }
    from urllib.parse import urlencode

    found = parse_request("query", operation("cloudwatch", "GetMetricData"), urlencode(pairs).encode())
    stat = found["MetricDataQueries"][0]["MetricStat"]
    assert stat["Period"] == 10
    assert stat["Metric"]["Dimensions"] == [{"Name": "EndpointName", "Value": "demo"}]
    assert found["EndTime"].hour == 1


def test_state_is_json():
    from loadgen.emulator.config import EmulatorConfig
    from loadgen.emulator.model import Model

    assert msgspec.json.encode(Model(EmulatorConfig(), 0, 1_780_000_000 * S).state())
