"""Chat completions as bytes: what a request asks for, and the events or the body that answer it."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

CHARACTERS_PER_TOKEN = 4
DEFAULT_MAX_TOKENS = 16
MOST_TOKENS = 1_000_000

_WORDS = (" the", " load", " rose", " and", " one", " more", " unit", " came", " up", " to", " serve", " it")


class BadRequestError(Exception):
    """A request body that is not a chat completion request; the message says why."""


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asks for."""

    model: str | None
    input_tokens: int
    output_tokens: int
    stream: bool
    include_usage: bool


def parse_chat_request(body: bytes) -> ChatRequest:
    """Return the request; the prompt's tokens are estimated at four characters each."""
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise BadRequestError(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(messages := document.get("messages"), list) or not messages:
        raise BadRequestError("expected an object with a non-empty list of messages")
    limit = document.get("max_completion_tokens", document.get("max_tokens"))
    limit = DEFAULT_MAX_TOKENS if limit is None else limit
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_TOKENS:
        raise BadRequestError(f"max_tokens must be a whole number from 1 to {MOST_TOKENS}")
    options = document.get("stream_options")
    model = document.get("model")
    characters = sum(_characters(message) for message in messages)
    return ChatRequest(
        model=model if isinstance(model, str) else None,
        input_tokens=max(1, characters // CHARACTERS_PER_TOKEN),
        output_tokens=limit,
        stream=document.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _characters(message: Any) -> int:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return len(content)
    if isinstance(content, list):
        return sum(
            len(part["text"]) for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return 0


class ChatAnswer:
    """The bytes that answer one request; token events are put together from parts made once."""

    def __init__(self, request: ChatRequest, request_id: str, created_s: int, model: str) -> None:
        self._request = request
        self._head = {"id": f"chatcmpl-{request_id}", "created": created_s, "model": model}
        marker = "\x01"
        before, after = self._event({"content": marker}).split(msgspec.json.encode(marker)[1:-1])
        self._token_events = [before + msgspec.json.encode(word)[1:-1] + after for word in _WORDS]

    def opening(self) -> bytes:
        """Return the first event: a role, and no content yet."""
        return self._event({"role": "assistant", "content": ""})

    def tokens(self, first: int, end: int) -> bytes:
        """Return the events of the tokens `[first, end)`."""
        start = first % len(_WORDS)
        return b"".join(itertools.islice(itertools.cycle(self._token_events), start, start + end - first))

    def closing(self) -> bytes:
        """Return what follows the last token: the reason it ended, the usage if asked for, and the end mark."""
        usage = b""
        if self._request.include_usage:
            document = {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": self._usage()}
            usage = _sse(document)
        return self._event({}, "length") + usage + b"data: [DONE]\n\n"

    def broken(self, code: str) -> bytes:
        """Return the event that vLLM sends when generation fails after the response began."""
        error = {"message": "generation failed", "type": "InternalServerError", "param": None, "code": code}
        return _sse({"error": error})

    def body(self) -> bytes:
        """Return the whole answer as one document."""
        text = "".join(itertools.islice(itertools.cycle(_WORDS), self._request.output_tokens))
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "length"}
        document = {**self._head, "object": "chat.completion", "choices": [choice], "usage": self._usage()}
        return msgspec.json.encode(document)

    def _usage(self) -> dict[str, int]:
        request = self._request
        return {
            "prompt_tokens": request.input_tokens,
            "completion_tokens": request.output_tokens,
            "total_tokens": request.input_tokens + request.output_tokens,
        }

    def _event(self, delta: dict[str, str], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _sse({**self._head, "object": "chat.completion.chunk", "choices": [choice]})


def _sse(document: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(document) + b"\n\n"
