"""Text Generation Inference's own protocol: `POST /generate_stream` and `/generate`.

SageMaker's TGI and LMI containers speak it too, LMI with JSON lines instead of server-sent events.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loadgen.endpoints.answers import EventStream, WholeBody, error_in, is_whole
from loadgen.endpoints.base import Body, Reply
from loadgen.endpoints.dialect import Asking
from loadgen.plan import PlannedRequest
from loadgen.sse import LineSplitter


class _Token(msgspec.Struct, gc=False):
    text: object = None


class _Details(msgspec.Struct, gc=False):
    finish_reason: object = None
    generated_tokens: object = None
    input_length: object = None


class _Event(msgspec.Struct, gc=False):
    token: _Token | None = None
    generated_text: object = None
    details: _Details | None = None
    error: object = None


_EVENT = msgspec.json.Decoder(_Event)
_WHOLE = msgspec.json.Decoder(_Event | list[_Event])


class TgiDialect(Asking):
    """Asks with `inputs` and `parameters`; `in_body` tells in the body whether to stream, as on SageMaker."""

    def __init__(self, *arguments: Any, in_body: bool = False) -> None:
        super().__init__(*arguments)
        self._in_body = in_body

    def path(self, base: str) -> str:
        """Return the operation's path under a base address."""
        operation = "/generate_stream" if self.section.stream else "/generate"
        return base if base.endswith(operation) else base + operation

    def body(self, request: PlannedRequest) -> bytes:
        """Return the JSON body that asks for one answer."""
        parameters = {"max_new_tokens": request.output_tokens, "details": True, **self.section.extra_body}
        document: dict[str, Any] = {"inputs": self.prompts.text(request), "parameters": parameters}
        if self._in_body:
            document["stream"] = self.section.stream
        return msgspec.json.encode(document)

    def decoder(self, reply: Reply, content_type: str) -> Body:
        """Return the decoder for a successful answer."""
        if is_whole(content_type) or not self.section.stream:
            return TgiBody(reply)
        return TgiStream(reply, LineSplitter() if "jsonlines" in content_type else None)


class TgiStream(EventStream):
    """Decodes one event per token; the last one carries the whole text and the details."""

    def take(self, data: bytes, at_us: int) -> None:
        """Take one event."""
        try:
            event = _EVENT.decode(data)
        except msgspec.MsgspecError:
            self.reply.fail("malformed_event", "a stream event is not a TGI token")
            return
        if event.error:
            self.reply.fail(*error_in(data))
            return
        if event.token is not None and event.token.text:
            self.reply.token(at_us, visible=True)
        _note_end(event, self.reply)


class TgiBody(WholeBody):
    """Decodes a whole answer: an object, or a list of one."""

    def take(self, data: bytes) -> None:
        """Take the whole body."""
        try:
            found = _WHOLE.decode(data)
        except msgspec.MsgspecError:
            return  # cut or not JSON: not finished
        for event in found if isinstance(found, list) else [found]:
            if event.error:
                self.reply.fail(*error_in(data))
            _note_end(event, self.reply)


def _note_end(event: _Event, reply: Reply) -> None:
    if event.generated_text is not None:
        reply.finished = True
    details = event.details
    if details is None:
        return
    if details.finish_reason:
        reply.finished = True
    if isinstance(details.generated_tokens, int):
        reply.output_tokens = details.generated_tokens
    if isinstance(details.input_length, int):
        reply.input_tokens = details.input_length
