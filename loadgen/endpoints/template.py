"""Any server that takes JSON: the scenario gives the body as a template, and says how the answer comes.

`${prompt}`, `${messages}`, `${max_tokens}`, `${input_tokens}`, `${model}`, `${session_id}` and `${row_id}` stand for
the row's values. A text that is nothing but one of them becomes the value itself, a number for instance; where the row
has no such value the field is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from loadgen.endpoints.answers import AnyBody, EventStream
from loadgen.endpoints.base import Body, Reply
from loadgen.endpoints.dialect import Asking
from loadgen.plan import PlannedRequest
from loadgen.sse import LineSplitter
from traces.errors import BadInputError, did_you_mean

_PLACEHOLDER = re.compile(r"\$\{([a-z_]*)\}")
_DEFAULT: dict[str, Any] = {"prompt": "${prompt}", "max_tokens": "${max_tokens}", "model": "${model}"}
_VALUES: dict[str, Callable[[Asking, PlannedRequest], Any]] = {
    "prompt": lambda asking, request: asking.prompts.text(request),
    "messages": lambda asking, request: asking.prompts.messages(request),
    "max_tokens": lambda _, request: request.output_tokens,
    "input_tokens": lambda _, request: request.input_tokens,
    "model": lambda asking, request: asking.model or request.model,
    "session_id": lambda _, request: request.session_id,
    "row_id": lambda _, request: request.row_id,
}


class TemplateDialect(Asking):
    """Asks with the scenario's `[target.body]`; success is a complete answer with a 2xx status."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._template = _DEFAULT if self.section.body is None else self.section.body
        for name in _PLACEHOLDER.findall(msgspec.json.encode(self._template).decode()):
            if name not in _VALUES:
                known = list(_VALUES)
                hint = did_you_mean(name, known) or f"; known: {', '.join(known)}"
                raise BadInputError(f'target.body: unknown placeholder "${{{name}}}"{hint}')

    def path(self, base: str) -> str:
        """Return the address's own path."""
        return base

    def body(self, request: PlannedRequest) -> bytes:
        """Return the JSON body for one row."""
        return msgspec.json.encode(self._filled(self._template, request) | self.section.extra_body)

    def decoder(self, reply: Reply, _content_type: str) -> Body:
        """Return the decoder for a successful answer."""
        if self.section.answer == "whole":
            return AnyBody(reply)
        return TemplateStream(reply, LineSplitter() if self.section.answer == "lines" else None)

    def _filled(self, part: Any, request: PlannedRequest) -> Any:
        if isinstance(part, dict):
            filled = {key: self._filled(value, request) for key, value in part.items()}
            return {key: value for key, value in filled.items() if value is not None}
        if isinstance(part, list):
            return [self._filled(item, request) for item in part]
        if not isinstance(part, str):
            return part
        alone = _PLACEHOLDER.fullmatch(part)
        if alone:
            return _VALUES[alone[1]](self, request)
        return _PLACEHOLDER.sub(lambda found: str(_VALUES[found[1]](self, request) or ""), part)


class TemplateStream(EventStream):
    """Decodes a stream of unknown events: each one is taken for a token."""

    def take(self, data: bytes, at_us: int) -> None:  # noqa: ARG002 - what it says is not known
        """Take one event."""
        self.reply.token(at_us, visible=True)

    def close(self) -> None:
        """Take the stream's end."""
        super().close()
        self.reply.finished = self.reply.finished or self.reply.complete
