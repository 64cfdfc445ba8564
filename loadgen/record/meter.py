"""What a recording keeps of a request and its answer: lengths and names, read from a copy of the bytes passing by.

Nothing here touches what is passed on, and nothing that cannot be read is guessed.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import msgspec

from loadgen.sse import SseOverflowError, SseSplitter
from traces.readers.base import MAX_TOKENS

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Of a longer body nothing is read: a recording must not fill the memory."""


class Asked(msgspec.Struct, frozen=True):
    """What a request asks for."""

    model: str | None = None
    images: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """Tokens as the server reports them."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class _Request(msgspec.Struct):
    model: Any = None
    messages: Any = None


class _UsageFields(msgspec.Struct):
    """Chat completions call them prompt and completion tokens, responses input and output tokens."""

    prompt_tokens: Any = None
    completion_tokens: Any = None
    input_tokens: Any = None
    output_tokens: Any = None


class _Inner(msgspec.Struct):
    usage: _UsageFields | None = None


class _Answer(msgspec.Struct):
    usage: _UsageFields | None = None
    response: _Inner | None = None


_END_MARK: Final = b"[DONE]"
_REQUEST: Final = msgspec.json.Decoder(_Request)
_ANSWER: Final = msgspec.json.Decoder(_Answer)


class Collected:
    """A copy of a body up to `MAX_BODY_BYTES`; None once it is longer."""

    def __init__(self) -> None:
        self._bytes: bytearray | None = bytearray()

    def feed(self, piece: bytes) -> None:
        """Take a piece."""
        if self._bytes is not None:
            self._bytes += piece
            if len(self._bytes) > MAX_BODY_BYTES:
                self._bytes = None

    def content(self) -> bytes | None:
        """Return the body, or None when it was too long."""
        return None if self._bytes is None else bytes(self._bytes)


def asked(body: bytes | None) -> Asked:
    """Return what a request's body asks for; what it does not say, or says in no known way, is None."""
    if body is None:
        return Asked()
    try:
        found = _REQUEST.decode(body)
    except msgspec.MsgspecError:
        return Asked()
    model = found.model if isinstance(found.model, str) else None
    return Asked(model, _images(found.messages) if isinstance(found.messages, list) else None)


class Meter:
    """Reads the usage that an answer reports, streamed or whole, from a copy of its bytes."""

    def __init__(self, content_type: str, content_encoding: str) -> None:
        self._events = SseSplitter() if content_type.lower().startswith("text/event-stream") else None
        self._body = Collected()
        self._inflate = _inflater(content_encoding.lower().strip())
        self._lost = self._inflate is None
        self._usage = Usage()
        self.chunks = 0
        """Events of a stream so far, but for its end mark; 0 for an answer in one piece."""

    def feed(self, piece: bytes) -> None:
        """Take a piece of the answer as it passed by."""
        if self._lost:
            return
        try:
            plain = piece if self._inflate is True else self._inflate.decompress(piece)
            if self._events is None:
                self._body.feed(plain)
                return
            for event in self._events.feed(plain):
                self._take(event.data)
        except (zlib.error, SseOverflowError):
            self._lost = True

    def usage(self) -> Usage:
        """Return what was reported by the answer's end."""
        if self._events is not None and not self._lost:
            for event in self._events.close():
                self._take(event.data)
        elif self._events is None and (body := self._body.content()):
            self._take(body)
        return self._usage

    def _take(self, document: bytes) -> None:
        self.chunks += self._events is not None and document != _END_MARK
        # Most events of a stream are tokens; only those that name a usage are worth reading.
        if b'"usage"' not in document:
            return
        try:
            found = _ANSWER.decode(document)
        except msgspec.MsgspecError:
            return
        fields = found.usage or (found.response.usage if found.response else None)
        if fields is not None:
            self._usage = Usage(
                _count(fields.prompt_tokens, fields.input_tokens),
                _count(fields.completion_tokens, fields.output_tokens),
            )


def _count(*stated: Any) -> int | None:
    for value in stated:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS:
            return value
    return None


def _images(messages: list[Any]) -> int:
    parts = [message.get("content") for message in messages if isinstance(message, dict)]
    return sum(
        isinstance(part, dict) and part.get("type") in {"image_url", "input_image"}
        for content in parts
        if isinstance(content, list)
        for part in content
    )


def _inflater(encoding: str) -> Any:
    """Return what undoes the encoding: True for none, a decompressor, or None for one that is not known."""
    if encoding in {"", "identity"}:
        return True
    # 47: zlib and gzip headers are told apart by themselves.
    return zlib.decompressobj(47) if encoding in {"gzip", "x-gzip", "deflate"} else None
