"""The same recording, written in each format that can hold one."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from traces.readers import Options
from traces.schema import Trace

Row = tuple[int, int, int]
"""Milliseconds of arrival and two lengths."""

# Out of order, with a tie and a row of no tokens.
ROWS: list[Row] = [(500, 10, 5), (0, 20, 6), (2000, 0, 0), (2000, 40, 8), (3_600_000, 50, 9)]
BEGIN = datetime(2024, 5, 10, 10, tzinfo=UTC)


class Sample(NamedTuple):
    """How a format is written, and what it can hold: `grid_ms` is its finest time, `lengths` whether it has tokens."""

    write: Callable[[Path, list[Row]], None]
    grid_ms: int = 1
    lengths: bool = True
    options: Options = Options()

    def expected(self) -> list[tuple[int, int, int | None, int | None]]:
        """Return row_id, arrival_us from the first, and lengths, in order of arrival."""
        arrivals = [ms // self.grid_ms * self.grid_ms for ms, _, _ in ROWS]
        rows = [
            (row_id, (arrival - min(arrivals)) * 1000, *((i, o) if self.lengths else (None, None)))
            for row_id, (arrival, (_, i, o)) in enumerate(zip(arrivals, ROWS, strict=True))
        ]
        return sorted(rows, key=lambda row: row[1])


def at(ms: int) -> datetime:
    return BEGIN + timedelta(milliseconds=ms)


def iso(ms: int) -> str:
    return at(ms).isoformat().replace("+00:00", "Z")


def json_lines(row: Callable[[int, int, int], dict[str, Any]]) -> Callable[[Path, list[Row]], None]:
    def write(path: Path, rows: list[Row]) -> None:
        path.write_text("".join(json.dumps(row(*each)) + "\n" for each in rows))

    return write


def delimited(header: str, row: Callable[[int, int, int], str]) -> Callable[[Path, list[Row]], None]:
    def write(path: Path, rows: list[Row]) -> None:
        path.write_text("".join(f"{line}\n" for line in (header, *(row(*each) for each in rows))))

    return write


def lines(row: Callable[[int, int, int], str]) -> Callable[[Path, list[Row]], None]:
    def write(path: Path, rows: list[Row]) -> None:
        path.write_text("".join(f"{row(*each)}\n" for each in rows))

    return write


def capture(ms: int, i: int, o: int) -> dict[str, Any]:
    usage = json.dumps({"usage": {"prompt_tokens": i, "completion_tokens": o}})
    output = {"encoding": "JSON", "data": usage}
    if ms == 2000:
        output = {"encoding": "BASE64", "data": base64.b64encode(usage.encode()).decode()}
    sides = {"endpointInput": {"encoding": "JSON", "data": "{}"}, "endpointOutput": output}
    return {
        "captureData": sides,
        "eventMetadata": {"inferenceTime": f"{at(ms):%Y-%m-%dT%H:%M:%SZ}"},
        "eventVersion": "0",
    }


def otlp(path: Path, rows: list[Row]) -> None:
    def span(ms: int, i: int, o: int) -> dict[str, Any]:
        counts = {"gen_ai.usage.input_tokens": i, "gen_ai.usage.output_tokens": o}
        attributes = [{"key": key, "value": {"intValue": str(count)}} for key, count in counts.items()]
        start_ns = (round(BEGIN.timestamp() * 1000) + ms) * 1_000_000
        return {"startTimeUnixNano": str(start_ns), "endTimeUnixNano": str(start_ns + 7), "attributes": attributes}

    document = {"resourceSpans": [{"scopeSpans": [{"spans": [span(*row) for row in rows]}]}]}
    path.write_text(json.dumps(document, indent=1))


def alb(ms: int, _i: int, _o: int) -> str:
    request = '"POST https://api.example.com:443/v1/chat/completions HTTP/1.1" "python/3" - -'
    target = 'arn:aws:tg "Root=1" "api.example.com" "-" 0'
    head = f"https {at(ms + 900):%Y-%m-%dT%H:%M:%S.%fZ} app/llm/1 10.0.0.7:1 10.0.3.4:8000 0.001 0.1 0.8 200 200 1 2"
    return (
        f'{head} {request} {target} {at(ms):%Y-%m-%dT%H:%M:%S.%fZ} "forward" "-" "-" "10.0.3.4:8000" "200" "-" "-" TID'
    )


def nginx(ms: int, _i: int, _o: int) -> str:
    ended = at(ms) + timedelta(milliseconds=1250 if ms % 1000 == 750 else 1000 - ms % 1000)
    lasted = (ended - at(ms)).total_seconds()
    return f'10.0.0.7 - - [{ended:%d/%b/%Y:%H:%M:%S} +0000] "POST /v1 HTTP/1.1" 200 1 "-" "python/3" rt={lasted:.3f}'


def helicone(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["request_id", "request_created_at", "prompt_tokens", "completion_tokens", "request_body"])
        writer.writerows([n, iso(ms), i, o, 'said "no",\nthen left'] for n, (ms, i, o) in enumerate(rows))


def chat(ms: int, i: int, o: int) -> dict[str, Any]:
    turns = [{"role": "user", "content": "a" * i, "timestamp": iso(ms)}, {"role": "assistant", "content": "b" * o}]
    return {"conversation_hash": f"c{ms}{i}", "conversation": turns}


def own(path: Path, rows: list[Row]) -> None:
    schema = pl.Schema(Trace)
    columns: dict[str, Any] = dict.fromkeys(schema, [None] * len(rows))
    columns |= {
        "row_id": list(range(len(rows))),
        "arrival_us": [ms * 1000 for ms, _, _ in rows],
        "input_tokens": [i for _, i, _ in rows],
        "output_tokens": [o for _, _, o in rows],
    }
    pl.DataFrame(columns, schema=schema).write_parquet(path)


def _lengths(i: int, o: int) -> dict[str, int]:
    return {"input_length": i, "output_length": o}


SAMPLES: dict[str, Sample] = {
    "azure": Sample(
        delimited(
            "TIMESTAMP,ContextTokens,GeneratedTokens", lambda ms, i, o: f"{at(ms):%Y-%m-%d %H:%M:%S.%f+00:00},{i},{o}"
        )
    ),
    "burstgpt": Sample(
        delimited(
            "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
            lambda ms, i, o: f"{19_440_110 + ms / 1000},,2,GPT-4,{i},{o},{i + o},API log",
        )
    ),
    "mooncake": Sample(json_lines(lambda ms, i, o: {"timestamp": ms, **_lengths(i, o), "hash_ids": []})),
    "bailian": Sample(
        json_lines(
            lambda ms, i, o: {
                "chat_id": ms + i,
                "parent_chat_id": -1,
                "timestamp": ms / 1000,
                **_lengths(i, o),
                "turn": 1,
            }
        )
    ),
    "ragpulse": Sample(
        json_lines(lambda ms, i, o: {"timestamp": str(ms // 1000), **_lengths(i, o), "hash_ids": {"user_input": [i]}}),
        1000,
    ),
    "vidur": Sample(
        delimited("arrived_at,num_prefill_tokens,num_decode_tokens", lambda ms, i, o: f"{ms / 1000},{i},{o}")
    ),
    "splitwise-sim": Sample(
        delimited(
            "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size",
            lambda ms, i, o: f"{ms},2,0,{ms / 1000},1,{i},{o}",
        )
    ),
    "guidellm": Sample(json_lines(lambda ms, i, o: {"timestamp": ms / 1000, **_lengths(i, o)})),
    "otel": Sample(otlp),
    "sagemaker": Sample(json_lines(capture), 1000),
    "alb": Sample(lines(alb), lengths=False),
    "nginx": Sample(lines(nginx), lengths=False),
    "gateway": Sample(
        json_lines(
            lambda ms, i, o: {
                "ts": iso(ms),
                "request_id": f"{ms}{i}",
                "prompt_tokens": i,
                "completion_tokens": o,
                "status": 200,
            }
        )
    ),
    "langfuse": Sample(
        json_lines(
            lambda ms, i, o: {
                "id": f"{ms}{i}",
                "trace_id": "t",
                "type": "GENERATION",
                "start_time": f"{at(ms):%Y-%m-%d %H:%M:%S.%f}",
                "end_time": f"{at(ms + 5):%Y-%m-%d %H:%M:%S.%f}",
                "usage_details": {"input": i, "output": o},
            }
        )
    ),
    "helicone": Sample(helicone),
    "conversations": Sample(json_lines(chat), options=Options(chars_per_token=1)),
    "own": Sample(own),
}
"""All formats but ServeGen's, which describes arrivals and does not list them."""
