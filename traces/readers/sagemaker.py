"""SageMaker Data Capture: JSON lines with the request, the response and whole-second times.

Files of a prefix are unordered. Data are JSON in a string, BASE64, or CSV; of chat and completion requests the usage is
read, of others nothing. The answers of streamed requests are not captured. What a request says is never kept.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from traces.readers.base import Batch, Format, Options
from traces.readers.content import characters
from traces.readers.head import Head
from traces.readers.json_rows import Parse, Row, json_batches
from traces.readers.values import BadRowError, estimated_tokens, first_of, iso_us, mapping, required, text, tokens

_SESSION_KEYS: Final = {"session", "session_id", "sessionid", "session-id", "conversation", "conversation_id"}


class _Line(msgspec.Struct):
    captureData: dict[str, Any]  # noqa: N815 - the format's names
    eventMetadata: dict[str, Any]  # noqa: N815


_DECODER: Final = msgspec.json.Decoder(_Line)


def _sniff(head: Head) -> bool:
    return any("captureData" in keys for keys in head.keys)


def _batches(path: Path, options: Options) -> Iterator[Batch]:
    return json_batches(path, _parser(options), decoder=_DECODER)


def _parser(options: Options) -> Parse:
    def parse(line: _Line, _row_id: int) -> Row:
        asked = _body(line.captureData.get("endpointInput"))
        output = line.captureData.get("endpointOutput")
        answered = _body(output)
        usage = mapping(answered.get("usage"))
        sent = tokens(first_of(usage, "prompt_tokens", "input_tokens"))
        got = tokens(first_of(usage, "completion_tokens", "output_tokens"))
        ratio = options.chars_per_token
        return {
            "arrival_us": iso_us(required(line.eventMetadata.get("inferenceTime"))),
            "input_tokens": estimated_tokens(characters(asked), ratio) if sent is None else sent,
            "output_tokens": estimated_tokens(characters(answered), ratio) if got is None else got,
            "model": _name(asked.get("model")),
            "session_id": _session(line.eventMetadata.get("customAttributes")),
            "remark": "no_output" if not output else None,
        }

    return parse


def _body(side: Any) -> dict[str, Any]:
    """Return the JSON object that was sent or answered; an empty one where it was something else."""
    data = mapping(side).get("data")
    if not isinstance(data, str):
        return {}
    try:
        content = base64.b64decode(data, validate=True) if mapping(side).get("encoding") == "BASE64" else data.encode()
        found = msgspec.json.decode(content)
    except (binascii.Error, msgspec.DecodeError, UnicodeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _session(attributes: Any) -> str | None:
    """Return the session that custom attributes name, as `session=…` in a text or a list of them."""
    texts = attributes if isinstance(attributes, list) else [attributes]
    for part in (part for each in texts if isinstance(each, str) for part in each.split(",")):
        key, stated, value = part.partition("=")
        if stated and key.strip().lower() in _SESSION_KEYS:
            return text(value.strip())
    return None


def _name(value: Any) -> str | None:
    try:
        return text(value)
    except BadRowError:
        return None


FORMAT: Final = Format(
    name="sagemaker",
    expected='JSON lines of SageMaker Data Capture, with "captureData" and "eventMetadata"',
    time_text="whole seconds, UTC",
    sniff=_sniff,
    batches=_batches,
    options=frozenset({"chars_per_token"}),
    notes=(
        "the requests of one second share its stamp: replayed as they are, they come in bursts",
        "only a sampled share of requests may have been captured: state it with --sampling-percent",
    ),
    unordered=True,
)
