"""Readers of logs and exports: each format's quirks, on the made-up samples and on rows made for them."""

from __future__ import annotations

import json

import pytest

from traces.errors import BadInputError
from traces.lint import lint
from traces.readers import Options, open_trace
from traces.readers.base import NO_OPTIONS

COLUMNS = ("row_id", "arrival_us", "input_tokens", "output_tokens")


@pytest.fixture
def sample(shared_traces):
    return lambda name, options=NO_OPTIONS: open_trace(str(shared_traces / "madeup" / name), None, options)


@pytest.fixture
def written(tmp_path):
    def write(*rows, fmt=None, options=NO_OPTIONS):
        path = tmp_path / "given"
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return open_trace(str(path), fmt, options)

    return write


def codes(loaded):
    return {finding.code: finding for finding in lint(loaded.scan(), loaded.account())}


# --- SageMaker Data Capture


def test_capture_reads_json_and_base64_and_says_what_was_not_captured(sample):
    loaded = sample("sagemaker_capture.jsonl", Options(sampling_percent=20))
    kept = loaded.scan().collect()
    assert kept.select(*COLUMNS, "session_id").rows() == [
        (2, 0, None, None, "s3"),
        (0, 1_000_000, 9, 3, "s1"),
        (1, 1_000_000, 10, 3, "s2"),
    ]
    report = loaded.account()
    assert (report.remarks, report.remark_examples, report.sampling_percent) == ({"no_output": 1}, {"no_output": 3}, 20)
    assert report.first_arrival == "2026-04-29T00:03:17+00:00"
    found = codes(loaded)
    assert "5 times" in found["sampling"].message
    assert found["order"].severity == "info"
    assert "hello" not in str(kept.rows())


def test_sampling_stays_with_the_file_that_was_made(sample, tmp_path):
    sample("sagemaker_capture.jsonl", Options(sampling_percent=12.5)).write(tmp_path / "t.parquet")
    again = open_trace(str(tmp_path / "t.parquet"))
    assert again.account().sampling_percent == 12.5
    assert "sampling" in codes(again)


@pytest.mark.parametrize(
    ("data", "encoding"),
    [("not base64!", "BASE64"), ("1,2,3", "CSV"), ("[1]", "JSON"), ("{", "JSON"), (None, "JSON"), ("[" * 5000, "JSON")],
)
def test_data_that_is_no_chat_leaves_lengths_unknown(written, data, encoding):
    side = {"data": data, "encoding": encoding}
    meta = {"inferenceTime": "2026-04-29T00:03:17Z", "customAttributes": "tier=1,session=s9"}
    loaded = written({"captureData": {"endpointInput": side, "endpointOutput": side}, "eventMetadata": meta})
    assert loaded.scan().select("input_tokens", "output_tokens", "session_id").collect().row(0) == (None, None, "s9")


def test_lengths_of_captured_text_are_estimated_when_asked(sample):
    kept = sample("sagemaker_capture.jsonl", Options(chars_per_token=2)).scan().collect()
    assert kept["input_tokens"].to_list() == [4, 9, 10]


# --- access logs


def test_alb_arrival_is_creation_and_failures_are_offered_load(sample):
    loaded = sample("alb.log")
    assert loaded.scan().select("arrival_us", "source_status", "source_latency_us").collect().rows() == [
        (0, 200, 2_086_211),
        (2_667_000, 503, 1_104),
    ]
    assert loaded.account().first_arrival == "2026-04-29T00:03:18.332000+00:00"
    assert (codes(loaded)["source-failures"].count, codes(loaded)["source-failures"].row) == (1, 2)


def test_alb_health_checks_and_odd_requests_are_counted_out(sample, shared_traces, written):
    good = (shared_traces / "madeup" / "alb.log").read_text().splitlines()[0]
    loaded = written(
        good,
        good.replace('"python/3"', '"ELB-HealthChecker/2.0"'),
        good.replace("/v1/chat/completions", "/health"),
        good.replace("POST", "GET"),
        good.replace('"POST https://api.example.com:443/v1/chat/completions HTTP/1.1"', '"- http://a:80- -"'),
        good.replace('"python/3"', r'"say \"hi\" there"'),
        good.replace("2026-04-29T00:03:18.332000Z", "yesterday"),
        "https 2026-04-29T00:03:20.418211Z",
    )
    report = loaded.account()
    assert report.dropped == {"health_check": 2, "not_inference": 2, "bad_timestamp": 1, "malformed_row": 1}
    assert report.rows_kept == 2
    assert codes(loaded)["dropped-health-check"].severity == "info"


def test_nginx_arrival_is_the_end_minus_the_request_time_in_any_zone(sample):
    loaded = sample("nginx.log")
    assert loaded.scan().select("row_id", "arrival_us", "source_status").collect().rows() == [
        (1, 0, 499),
        (0, 27_915_000, 200),
    ]
    assert loaded.account().first_arrival == "2026-04-29T00:02:49.999000+00:00"
    assert loaded.account().dropped == {"health_check": 1}


def test_nginx_patterns_by_name_and_by_expression(written):
    combined = '1.2.3.4 - bob [29/Apr/2026:00:03:20 +0000] "POST /v1 HTTP/2.0" 429 3 "-" "x"'
    exact = written(f"{combined} 1777421000.250 0.125", fmt="nginx", options=Options(pattern="combined-msec"))
    assert exact.account().first_arrival == "2026-04-29T00:03:20.125000+00:00"
    timed = written(f"{combined} 1.5", fmt="nginx", options=Options(pattern="combined-time"))
    assert timed.account().first_arrival == "2026-04-29T00:03:18.500000+00:00"
    own = (
        r"^(?P<msec>\d+\.\d+)\|(?P<method>\w+)\|(?P<path>\S+)\|(?P<status>\d+)\|(?P<request_time>\S+)\|(?P<model>\S+)$"
    )
    given = written("1777421000.250|POST|/v1|200|0.25|llama", "junk", fmt="nginx", options=Options(pattern=own))
    assert given.scan().select("source_status", "source_latency_us", "model").collect().row(0) == (
        200,
        250_000,
        "llama",
    )
    assert given.account().dropped == {"malformed_row": 1}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("combined-tr", 'no pattern "combined-tr".*did you mean "combined-rt"'),
        ("(?P<status>", "no regular expression"),
        ("^(?P<status>x) y", "lacks the groups method, path, request_time"),
        (r"(?P<status>.)(?P<method>.)(?P<path>.)(?P<request_time>.)", "lacks the groups time_local or msec"),
        (r"(?P<msec>.)(?P<status>.)(?P<method>.)(?P<path>.)(?P<request_time>.)(?=x)", "no regular expression"),
    ],
)
def test_a_wrong_pattern_is_one_clear_error(written, pattern, message):
    with pytest.raises(BadInputError, match=message) as caught:
        written("anything", fmt="nginx", options=Options(pattern=pattern))
    assert "\n" not in str(caught.value)


# --- gateways


def test_a_gateway_log_without_a_declared_unit_asks_for_it(sample, written):
    with pytest.raises(BadInputError, match=r"partly numbers, partly text.*--time-unit s\|ms"):
        sample("openai_access.jsonl")
    row = {"ts": 1777420998.25, "prompt_tokens": 1, "completion_tokens": 2}
    with pytest.raises(BadInputError, match="numbers without a unit"):
        written(row)
    # Further down than anybody looks beforehand.
    dated = {**row, "ts": "2026-04-29T00:03:18Z"}
    with pytest.raises(BadInputError, match="numbers without a unit"):
        written(*[dated] * 3000, row, fmt="gateway").account()


def test_a_mixed_gateway_log_is_read_when_declared_so(sample):
    loaded = sample("openai_access.jsonl", Options(time_unit="mixed"))
    assert loaded.scan().select(
        "row_id", "arrival_us", "input_tokens", "output_tokens", "source_status"
    ).collect().rows() == [
        (2, 0, 9, 0, 200),
        (0, 7_200_000_000, 120, 33, 200),
        (1, 7_200_000_000, None, None, 429),
    ]
    assert codes(loaded)["source-failures"].count == 1


def test_the_declared_unit_holds_and_a_number_in_another_is_refused(sample):
    report = sample("openai_access.jsonl", Options(time_unit="s")).account()
    assert (report.rows_kept, report.dropped, report.examples) == (2, {"bad_timestamp": 1}, {"bad_timestamp": 2})
    report = sample("openai_access.jsonl", Options(time_unit="iso")).account()
    assert (report.rows_kept, report.dropped) == (1, {"bad_timestamp": 2})


@pytest.mark.parametrize(("unit", "stamp"), [("s", 2), ("ms", 2000), ("us", 2_000_000), ("ns", 2_000_000_000)])
def test_each_unit(written, unit, stamp):
    loaded = written(
        {"ts": stamp, "usage": {"prompt_tokens": 1, "completion_tokens": 1}}, options=Options(time_unit=unit)
    )
    assert loaded.account().first_arrival == "1970-01-01T00:00:02+00:00"


def test_retries_are_counted_and_kept(written):
    row = {"ts": "2026-04-29T00:03:18Z", "request_id": "r", "prompt_tokens": 5, "completion_tokens": 1}
    loaded = written({**row, "status": 500}, row, {**row, "request_id": "q"}, row)
    assert (loaded.account().rows_kept, loaded.account().remarks) == (4, {"retry": 2})
    assert (codes(loaded)["retry"].severity, codes(loaded)["retry"].row) == ("info", 2)


# --- spans and exports


def test_spans_of_old_and_new_names_and_others_counted_out(sample):
    loaded = sample("otlp_genai.jsonl")
    assert loaded.scan().select(*COLUMNS, "model", "session_id", "source_latency_us").collect().rows() == [
        (0, 0, 120, 33, "m", "c1", 2_100_000),
        (1, 3_000_000, 160, 12, "m", None, 1_000_000),
    ]
    assert (loaded.account().dropped, loaded.account().examples) == ({"not_llm_span": 1}, {"not_llm_span": 3})
    assert loaded.account().first_arrival == "2026-04-29T00:03:18+00:00"


def test_spans_of_inference_perf_spread_over_lines(tmp_path):
    usage = {"gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 3}
    spans = [
        {
            "trace_id": "t",
            "name": "chat m",
            "start_time": "2026-01-01T00:00:00.5Z",
            "end_time": None,
            "attributes": usage,
        },
        {"trace_id": "t", "name": "execute_tool", "start_time": "2026-01-01T00:00:01Z", "attributes": {}},
        {
            "trace_id": "t",
            "name": "chat m",
            "start_time": "2026-01-01T00:00:02",
            "status": {"code": 2},
            "attributes": {},
        },
        "not a span",
    ]
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"spans": spans}, indent=2))
    loaded = open_trace(str(path))
    assert loaded.scan().select("arrival_us", "input_tokens", "session_id").collect().rows() == [
        (0, 7, "t"),
        (1_500_000, None, "t"),
    ]
    assert loaded.account().dropped == {"not_llm_span": 2}
    assert loaded.account().remarks == {"failed": 1}


def test_an_invoked_agents_sum_is_no_request_of_its_own(written):
    def span(operation):
        attributes = [
            {"key": "gen_ai.operation.name", "value": {"stringValue": operation}},
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "5"}},
        ]
        return {"startTimeUnixNano": "1777420998000000000", "attributes": attributes}

    spans = [span(name) for name in ("chat", "invoke_agent", "embeddings", "text_completion")]
    loaded = written({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    assert (loaded.account().rows_kept, loaded.account().dropped) == (2, {"not_llm_span": 2})


def test_langfuse_keeps_generations_and_unfinished_ones_with_unknown_lengths(sample):
    loaded = sample("langfuse_observations.jsonl")
    assert loaded.scan().select(*COLUMNS, "session_id", "source_latency_us").collect().rows() == [
        (0, 0, 120, 33, "s1", 1_880_000),
        (2, 880_000, None, None, None, None),
    ]
    assert loaded.account().dropped == {"not_generation": 1}
    assert loaded.account().remarks == {"unfinished": 1}
    assert loaded.account().first_arrival == "2026-04-29T00:03:18.120000+00:00"


def test_langfuse_array_with_camel_case_and_split_usage(tmp_path):
    usage = {"input": 10, "input_cached_tokens": 90, "output": 5, "output_reasoning_tokens": 20, "total": 125}
    known = {"type": "GENERATION", "traceId": "t", "usageDetails": usage, "model": "m"}
    rows = [
        {**known, "startTime": "2026-04-29T00:03:18.120Z", "endTime": "2026-04-29T00:03:19.120Z"},
        {**known, "startTime": "2026-04-29T00:03:20Z", "endTime": "2026-04-29T00:03:20Z", "level": "ERROR"},
    ]
    path = tmp_path / "l.json"
    path.write_text(json.dumps(rows, indent=1))
    loaded = open_trace(str(path))
    assert loaded.scan().select("input_tokens", "output_tokens", "model").collect().rows() == [(100, 25, "m")] * 2
    assert loaded.account().remarks == {"failed": 1}


def test_helicone_as_json_with_sessions_and_failures(written):
    row = {"request_created_at": "2026-04-29T00:03:18.5Z", "prompt_tokens": 0, "completion_tokens": 0, "delay_ms": 25}
    loaded = written(
        {**row, "response_status": 429, "properties": {"Helicone-Session-Id": "h"}, "request_model": "m"},
        {**row, "response_status": 200, "prompt_tokens": "12"},
    )
    kept = loaded.scan().select("input_tokens", "source_status", "session_id", "model", "source_latency_us").collect()
    assert kept.rows() == [(None, 429, "h", "m", 25_000), (12, 200, None, None, 25_000)]


def test_helicone_csv_with_ragged_and_empty_rows(tmp_path):
    path = tmp_path / "h.csv"
    body = '"a ""quoted"" body,\nwith a line"'
    good = f"r,2026-04-29T00:03:18Z,{body},5,6\n"
    path.write_text(
        f"id,request_created_at,request_body,prompt_tokens,completion_tokens\n{good}\nr,x\nr,,b,1,1\n{good}"
    )
    report = open_trace(str(path)).account()
    assert (report.rows_read, report.rows_kept) == (5, 2)
    assert report.dropped == {"blank_line": 1, "malformed_row": 1, "missing_field": 1}


# --- conversations


def test_conversations_without_times_are_not_given_any(sample):
    with pytest.raises(BadInputError, match=r"have no time, and none is invented; state .*--rate, or .*trace synth"):
        sample("sharegpt.json").account()


def test_conversations_at_a_stated_rate(tmp_path):
    turns = [
        {"from": "gpt", "value": "before anybody asked"},
        {"from": "human", "value": "hi"},
        {"from": "gpt", "value": "hello"},
        {"from": "human", "value": ""},
        {"from": "gpt", "value": ""},
    ]
    rows = [
        {"id": "a", "conversations": turns},
        {"id": "b", "conversations": turns[1:2]},
        {"id": "c", "conversations": 5},
    ]
    path = tmp_path / "s.json"
    path.write_text(json.dumps(rows * 2))
    options = Options(rate_per_s=10, chars_per_token=1, seed=3)
    loaded = open_trace(str(path), None, options)
    kept = loaded.scan().collect()
    assert kept.select("input_tokens", "output_tokens", "session_id", "turn").rows()[:3] == [
        (0, 20, "a", 1),
        (22, 5, "a", 2),
        (27, 0, "a", 3),
    ]
    assert loaded.account().dropped == {"missing_field": 2, "malformed_row": 2}
    assert loaded.account().first_arrival is None
    assert kept.equals(open_trace(str(path), None, options).scan().collect())
    assert not kept.equals(
        open_trace(str(path), None, Options(rate_per_s=10, chars_per_token=1, seed=4)).scan().collect()
    )


def test_conversations_in_parquet_with_times_of_their_turns(tmp_path):
    import datetime as dt

    import polars as pl

    stamp = dt.datetime(2024, 5, 1, 12, 0, 3, tzinfo=dt.UTC)
    turns = [
        {"role": "user", "content": "abcd", "timestamp": None},
        {"role": "assistant", "content": "ef", "timestamp": stamp},
    ]
    later = [{**turn, "timestamp": None} for turn in turns]
    frame = pl.DataFrame(
        {
            "conversation_hash": ["x", "y", "z"],
            "conversation": [turns, later, [*later, *later]],
            "timestamp": [stamp, stamp + dt.timedelta(seconds=2), stamp],
            "hashed_ip": ["1", "2", "3"],
        }
    )
    path = tmp_path / "w.parquet"
    frame.write_parquet(path)
    loaded = open_trace(str(path), None, Options(chars_per_token=2))
    assert loaded.scan().select(*COLUMNS, "session_id").collect().rows() == [
        (0, 0, 2, 1, "x"),
        (1, 2_000_000, 2, 1, "y"),
    ]
    # A conversation of several turns with one time for all says nothing of when each was sent.
    assert loaded.account().dropped == {"no_time": 2}
    assert loaded.account().first_arrival == "2024-05-01T12:00:03+00:00"
