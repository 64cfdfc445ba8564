"""OpenTelemetry spans of model calls: OTLP JSON, and inference-perf's `{"spans": […]}`.

Only spans of a generation are requests; others are counted as `not_llm_span`. Both generations of attribute names are
read: `gen_ai.usage.input_tokens` and `output_tokens`, and before them `prompt_tokens` and `completion_tokens`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from traces.readers.base import Batch, Format, Options
from traces.readers.head import Head
from traces.readers.json_rows import Row, json_batches
from traces.readers.values import (
    BadRowError,
    first_of,
    iso_us,
    mapping,
    required,
    span_us,
    status,
    text,
    time_us,
    tokens,
)

_GENERATIONS: Final = {"chat", "text_completion", "generate_content", "completion"}
_INPUT: Final = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT: Final = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
_ERROR: Final = (2, "STATUS_CODE_ERROR", "ERROR")
_NS_PER_US: Final = 1000


def _sniff(head: Head) -> bool:
    return any({"resourceSpans", "resource_spans", "spans"} & keys for keys in head.keys)


def _batches(path: Path, _options: Options) -> Iterator[Batch]:
    return json_batches(path, _parse, explode=_spans)


def _spans(document: Any) -> list[Any]:
    """Return the spans of a document: OTLP nests them in resources and scopes."""
    if not isinstance(document, dict):
        raise BadRowError("malformed_row")
    if "spans" in document:
        return [{**mapping(span), "flat": True} for span in _list(document["spans"])]
    resources = _list(first_of(document, "resourceSpans", "resource_spans"))
    scopes = [each for found in resources for each in _list(first_of(mapping(found), "scopeSpans", "scope_spans"))]
    return [span for scope in scopes for span in _list(mapping(scope).get("spans"))]


def _parse(span: Any, _row_id: int) -> Row:
    if not isinstance(span, dict):
        raise BadRowError("malformed_row")
    attributes = _attributes(span.get("attributes"))
    if not _is_generation(span, attributes):
        raise BadRowError("not_llm_span")
    start_us = _instant_us(first_of(span, "startTimeUnixNano", "start_time_unix_nano", "start_time"))
    ended = first_of(span, "endTimeUnixNano", "end_time_unix_nano", "end_time")
    http_status = status(attributes.get("http.response.status_code"))
    failed = mapping(span.get("status")).get("code") in _ERROR
    return {
        "arrival_us": start_us,
        "input_tokens": tokens(_whole(first_of(attributes, *_INPUT))),
        "output_tokens": tokens(_whole(first_of(attributes, *_OUTPUT))),
        "model": text(first_of(attributes, "gen_ai.request.model", "gen_ai.response.model")),
        "session_id": _session(span, attributes),
        "source_status": http_status,
        "source_latency_us": None if ended is None else span_us(_instant_us(ended) - start_us, 1),
        "remark": "failed" if failed and http_status is None else None,
    }


def _is_generation(span: dict[str, Any], attributes: dict[str, Any]) -> bool:
    operation = attributes.get("gen_ai.operation.name")
    if operation is not None:
        return operation in _GENERATIONS
    usage = first_of(attributes, *_INPUT, *_OUTPUT) is not None
    return usage or (span.get("flat") is True and str(span.get("name", "")).startswith("chat "))


def _session(span: dict[str, Any], attributes: dict[str, Any]) -> str | None:
    conversation = text(first_of(attributes, "gen_ai.conversation.id", "session.id"))
    # One trace of inference-perf is one session.
    return conversation or (text(span.get("trace_id")) if span.get("flat") else None)


def _attributes(found: Any) -> dict[str, Any]:
    """Return attributes by key: OTLP writes them as a list of keys with typed values."""
    if isinstance(found, dict):
        return found
    named = (mapping(entry) for entry in _list(found))
    return {str(entry.get("key")): next(iter(mapping(entry.get("value")).values()), None) for entry in named}


def _instant_us(value: Any) -> int:
    """Return µs since 1970 of ISO text, or of nanoseconds, which OTLP writes as a string."""
    required(value)
    if isinstance(value, str) and not value.isdecimal():
        return iso_us(value)
    return time_us(_whole(value) // _NS_PER_US, 1)


def _whole(value: Any) -> Any:
    """Return a whole number that is written as a string, as OTLP writes 64-bit integers; other values as they are."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        return int(value)
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


FORMAT: Final = Format(
    name="otel",
    expected='OTLP JSON with "resourceSpans", or inference-perf\'s {"spans": […]}',
    time_text="the spans' start: nanoseconds since 1970, or ISO times (UTC unless a zone is stated)",
    sniff=_sniff,
    batches=_batches,
    unordered=True,
)
