"""Triton's generate extension (vLLM and TensorRT-LLM back ends): `POST /v2/models/MODEL/generate_stream`, `/generate`.

An answer has no end marker and no usage: it is complete when HTTP says that its body is, after at least one event.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from loadgen.endpoints.answers import EventStream, WholeBody, error_in, is_whole
from loadgen.endpoints.base import Body, Reply
from loadgen.endpoints.dialect import Asking
from loadgen.plan import PlannedRequest


class _Event(msgspec.Struct):
    text_output: object = None
    error: object = None


_EVENT = msgspec.json.Decoder(_Event)


class TritonDialect(Asking):
    """Asks with `text_input`, and further fields that the back ends take as inputs or as parameters."""

    def path(self, base: str) -> str:
        """Return the operation's path under a base address, which may already name it."""
        operation = "generate_stream" if self.section.stream else "generate"
        return base if base.endswith(operation) else f"{base}/v2/models/{quote(self.model or '', safe='')}/{operation}"

    def body(self, request: PlannedRequest) -> bytes:
        """Return the JSON body that asks for one answer."""
        document: dict[str, Any] = {
            "text_input": self.prompts.text(request),
            "max_tokens": request.output_tokens,
            "stream": self.section.stream,
        }
        if self.section.min_tokens:
            document["min_tokens"] = request.output_tokens
        return msgspec.json.encode(document | self.length_options() | self.section.extra_body)

    def decoder(self, reply: Reply, content_type: str) -> Body:
        """Return the decoder for a successful answer."""
        return TritonBody(reply) if is_whole(content_type) or not self.section.stream else TritonStream(reply)


class TritonStream(EventStream):
    """Decodes one event per response of the model."""

    def take(self, data: bytes, at_us: int) -> None:
        """Take one event."""
        try:
            event = _EVENT.decode(data)
        except msgspec.MsgspecError:
            self.reply.fail("malformed_event", "a stream event is not a Triton response")
            return
        if event.error:
            self.reply.fail(*error_in(data))
        elif event.text_output:
            self.reply.token(at_us, visible=True)

    def close(self) -> None:
        """Take the stream's end."""
        super().close()
        if self.reply.complete and self.reply.chunks:
            self.reply.finished = True


class TritonBody(WholeBody):
    """Decodes a whole answer."""

    def take(self, data: bytes) -> None:
        """Take the whole body."""
        try:
            event = _EVENT.decode(data)
        except msgspec.MsgspecError:
            return  # cut or not JSON: not finished
        if event.error:
            self.reply.fail(*error_in(data))
        elif event.text_output is not None:
            self.reply.finished = True
