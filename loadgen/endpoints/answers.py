"""What decoders of all protocols share: event streams, whole bodies, and errors of which only a word is kept."""

from __future__ import annotations

from typing import Protocol

import msgspec

from loadgen.endpoints.base import Reply, safe_word
from loadgen.receiving import ProtocolError
from loadgen.sse import SseEvent, SseOverflowError, SseSplitter

MAX_BODY_BYTES = 64 * 1024 * 1024


class Splitter(Protocol):
    """Splits a byte stream into events (`loadgen.sse`).

    `strays` counts the lines since the last event that mean nothing.
    """

    strays: int

    def feed(self, piece: bytes) -> list[SseEvent]:
        """Return the events that this piece completes."""

    def close(self) -> list[SseEvent]:
        """Return the event that the end left open, if there is one."""


class EventStream:
    """Decodes a stream of events; a protocol says in `take` what one of them means."""

    def __init__(self, reply: Reply, splitter: Splitter | None = None) -> None:
        self.reply = reply
        self._splitter = splitter or SseSplitter()
        self._is_done = False

    def feed(self, data: bytes, at_us: int) -> None:
        """Take a piece of the stream. Raises `ProtocolError` for one that never ends an event."""
        try:
            events = self._splitter.feed(data)
        except SseOverflowError as error:
            raise ProtocolError("event_too_long", str(error)) from None
        for name, payload in events:
            if self._is_done:
                self.reply.fail("data_after_done", "the server sent more after [DONE]")
            elif payload == b"[DONE]":
                self._end()
            elif name == b"error":
                self.reply.fail(*error_in(payload))
            elif payload:
                self.take(payload, at_us)

    def take(self, data: bytes, at_us: int) -> None:
        """Take one event's data."""
        raise NotImplementedError

    def close(self) -> None:
        """Take the stream's end. An event cut off by it may finish the answer, but dates no token."""
        for event in self._splitter.close():
            if event.data == b"[DONE]":
                self._end()
        if self._is_done and self._splitter.strays:
            self.reply.fail("data_after_done", "the server sent more after [DONE]")

    def _end(self) -> None:
        self.reply.finished = self._is_done = True


class WholeBody:
    """Gathers a body; a protocol says in `take` what it means. When its tokens were generated is not observable."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self._body = bytearray()

    def feed(self, data: bytes, _at_us: int) -> None:
        """Take a piece of the body. Raises `ProtocolError` for one that is too long."""
        if len(self._body) + len(data) > MAX_BODY_BYTES:
            raise ProtocolError("body_too_long", f"the body is longer than {MAX_BODY_BYTES} bytes")
        self._body += data

    def take(self, data: bytes) -> None:
        """Take the whole body, which may have been cut."""
        raise NotImplementedError

    def close(self) -> None:
        """Take the body's end."""
        self.take(bytes(self._body))


class ErrorBody:
    """Takes the body of an HTTP error and keeps nothing of it but a machine-readable error type."""

    _KEPT_BYTES = 16 * 1024

    def __init__(self, reply: Reply, status: int, error_type: str | None = None) -> None:
        self._reply = reply
        self._status = status
        self._error_type = error_type
        self._body = bytearray()

    def feed(self, data: bytes, _at_us: int) -> None:
        """Take a piece of the body."""
        self._body += data[: max(0, self._KEPT_BYTES - len(self._body))]

    def close(self) -> None:
        """Take the body's end."""
        kind = self._error_type or error_in(bytes(self._body))[1]
        self._reply.fail(f"http_{self._status}", kind)


class AnyBody:
    """Takes a body of unknown format: that it ended is all that is known."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def feed(self, data: bytes, at_us: int) -> None:
        """Take a piece of the body."""

    def close(self) -> None:
        """Take the body's end."""
        self._reply.finished = self._reply.complete


def error_in(data: bytes) -> tuple[str, str | None]:
    """Return kind and machine-readable type of an error that a server reports in JSON; its message is not kept."""
    try:
        document = msgspec.json.decode(data)
    except msgspec.MsgspecError:
        return "server_error", None
    error = document.get("error", document) if isinstance(document, dict) else document
    if isinstance(error, dict):
        for key in ("type", "code", "__type"):
            if word := safe_word(error.get(key)):
                return "server_error", word
    if isinstance(document, dict) and (word := safe_word(document.get("error_type"))):
        return "server_error", word
    return "server_error", safe_word(error)


def is_whole(content_type: str) -> bool:
    """Tell whether a content type is one JSON document, which a server may send instead of the stream asked for.

    >>> is_whole("application/json; charset=utf-8"), is_whole("application/jsonlines"), is_whole("text/event-stream")
    (True, False, False)
    """
    return content_type.partition(";")[0].strip().lower() == "application/json"
