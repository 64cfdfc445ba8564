"""OpenAI's chat completions and completions (vLLM, SGLang, TGI, Triton's front end, LMI, gateways).

Each chunk goes through a typed decoder that builds only the few fields below: measured 0.4 µs per 250-byte chunk,
less than searching it for two markers (1.2 µs) and a tenth of a general JSON parse (4.1 µs), and never fooled by text
that looks like a marker.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loadgen.endpoints.answers import EventStream, WholeBody, error_in, is_whole
from loadgen.endpoints.base import Body, Reply
from loadgen.endpoints.dialect import Asking
from loadgen.plan import PlannedRequest


class _Delta(msgspec.Struct, gc=False):
    content: object = None
    refusal: object = None
    tool_calls: object = None
    function_call: object = None
    audio: object = None
    reasoning_content: object = None
    reasoning: object = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: object = None
    finish_reason: object = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: object = None
    completion_tokens: object = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: object = None


_CHUNK = msgspec.json.Decoder(_Chunk)


class CompletionsDialect(Asking):
    """`POST /v1/completions` with the prompt as one text."""

    operation = "/completions"

    def path(self, base: str) -> str:
        """Return the operation's path under a base, which may already end with `/v1` or with the operation."""
        return operation_path(base, self.operation)

    def models_path(self, base: str) -> str | None:
        """Return the path that lists the models."""
        place, mark, query = self.path(base).partition("?")
        return place.removesuffix(self.operation) + "/models" + mark + query

    def body(self, request: PlannedRequest) -> bytes:
        """Return the JSON body that asks for one completion."""
        section = self.section
        document = self.prompt(request)
        document |= {section.max_tokens_field: request.output_tokens, "stream": section.stream}
        if section.min_tokens:
            document["min_tokens"] = request.output_tokens
        if name := self.model or request.model:
            document["model"] = name
        if section.stream and section.stream_usage:
            document["stream_options"] = {"include_usage": True}
        return msgspec.json.encode(document | self.length_options() | section.extra_body)

    def prompt(self, request: PlannedRequest) -> dict[str, Any]:
        """Return the fields that hold the prompt."""
        return {"prompt": self.prompts.text(request)}

    def decoder(self, reply: Reply, content_type: str) -> Body:
        """Return the decoder for a successful answer; a server may send one document where a stream was asked for."""
        return ChatBody(reply) if is_whole(content_type) or not self.section.stream else ChatStream(reply)


class ChatDialect(CompletionsDialect):
    """`POST /v1/chat/completions`, with images where the row has some."""

    operation = "/chat/completions"

    def prompt(self, request: PlannedRequest) -> dict[str, Any]:
        """Return the fields that hold the prompt."""
        return {"messages": self.prompts.messages(request)}


def operation_path(base: str, operation: str) -> str:
    """Return an operation's path under a base address, which may already end with `/v1` or with the operation.

    >>> operation_path("", "/completions"), operation_path("/gateway/v1", "/completions")
    ('/v1/completions', '/gateway/v1/completions')
    >>> operation_path("/v1/chat/completions", "/chat/completions")
    '/v1/chat/completions'
    >>> operation_path("/v1?api-version=3", "/completions")
    '/v1/completions?api-version=3'
    """
    place, mark, query = base.partition("?")
    place = place.rstrip("/")
    if not place.endswith(operation):
        place += operation if place.endswith("/v1") else "/v1" + operation
    return place + mark + query


class ChatStream(EventStream):
    """Decodes a stream of chat-completion or completion chunks.

    The first token is the first generated one of any channel: a delta with a role only, or with empty content, is
    not one; a reasoning delta is, but it is not visible.
    """

    def take(self, data: bytes, at_us: int) -> None:
        """Take one chunk."""
        reply = self.reply
        try:
            chunk = _CHUNK.decode(data)
        except msgspec.MsgspecError:
            reply.fail("malformed_event", "a stream event is not a completion chunk")
            return
        if chunk.error:
            reply.fail(*error_in(data))
            return
        if chunk.usage is not None:
            _note_usage(chunk.usage, reply)
        generated = visible = False
        for choice in chunk.choices or ():
            if choice.finish_reason:
                reply.finished = True
            delta = choice.delta
            if choice.text or (
                delta and (delta.content or delta.tool_calls or delta.function_call or delta.refusal or delta.audio)
            ):
                generated = visible = True
            elif delta and (delta.reasoning_content or delta.reasoning):
                generated = True
        if generated:
            reply.token(at_us, visible=visible)


class ChatBody(WholeBody):
    """Decodes a whole (not streamed) completion."""

    def take(self, data: bytes) -> None:
        """Take the whole body."""
        try:
            chunk = _CHUNK.decode(data)
        except msgspec.MsgspecError:
            return  # cut or not JSON: not finished
        if chunk.error:
            self.reply.fail(*error_in(data))
        elif chunk.choices is not None:
            self.reply.finished = True
        if chunk.usage is not None:
            _note_usage(chunk.usage, self.reply)


def _note_usage(usage: _Usage, reply: Reply) -> None:
    if isinstance(usage.prompt_tokens, int):
        reply.input_tokens = usage.prompt_tokens
    if isinstance(usage.completion_tokens, int):
        reply.output_tokens = usage.completion_tokens
