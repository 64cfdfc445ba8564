"""One HTTP/1.1 answer as its bytes come: its instants, its body into a decoder, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from geventhttpclient.response import HTTPParseError

from loadgen.connect import TransportError
from loadgen.response import ResponseParser

_MOST_OVERHEAD_BYTES = 64 * 1024
"""So much may come before the final head, and between two pieces of a body: headers, interim answers, trailers."""


class CutError(TransportError):
    """The connection ended before the response did; `unread` when the server cannot have read the request."""

    def __init__(self, kind: str, text: str, *, unread: bool = False) -> None:
        super().__init__(kind, text)
        self.unread = unread


class ProtocolError(TransportError):
    """What arrived is not HTTP/1.1, or not within its bounds."""


class Decoder(Protocol):
    """Takes a response's body as it arrives."""

    def feed(self, data: bytes, at_us: int) -> None:
        """Take a piece of the body, read from the socket at `at_us`. Called in the event loop: it must not wait."""


OpenDecoder = Callable[[int, ResponseParser], Decoder]
"""Returns the decoder for an answer with this status and head."""


class Stamps:
    """Client instants (µs) and sizes of one exchange, filled in as it happens, so that a failure keeps them.

    `on_sending` is called when the first byte is about to be written, `on_sent` once, with the instant of that.
    """

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connect_us",
        "headers_us",
        "on_sending",
        "on_sent",
        "sent_us",
        "status",
    )

    def __init__(self) -> None:
        self.sent_us: int | None = None
        self.headers_us: int | None = None
        self.status: int | None = None
        self.connect_us: int | None = None
        self.bytes_sent = 0
        self.bytes_received = 0
        self.on_sending: Callable[[], None] | None = None
        self.on_sent: Callable[[int], None] | None = None


class Receiving:
    """Takes one response from its first byte to its end, or to the connection's."""

    __slots__ = ("_feed", "_now_us", "_open_decoder", "_overhead_bytes", "_parser", "_pieces", "_stamps", "_take")

    def __init__(self, stamps: Stamps, open_decoder: OpenDecoder, now_us: Callable[[], int]) -> None:
        self._stamps, self._open_decoder, self._now_us = stamps, open_decoder, now_us
        self._parser = ResponseParser()
        self._feed, self._pieces = self._parser.feed, self._parser.pieces
        self._take: Callable[[bytes, int], None] | None = None
        self._overhead_bytes = 0

    @property
    def is_over(self) -> bool:
        """Whether all of the response has come."""
        return self._parser.is_over

    @property
    def cut_kind(self) -> str:
        """What a connection that ends now has cut off."""
        return "closed_early" if self._parser.message_begun else "closed_before_response"

    def keep_s(self) -> float:
        """Return for how long (s) the connection may be used again, by the response's word."""
        return self._parser.keep_s()

    def take(self, data: bytes) -> bool:
        """Take what was read just now, nothing at the connection's end; tells whether that was the last of it.

        Raises `ProtocolError`, and what the decoder raises.
        """
        at_us = self._now_us()
        failure = None
        try:
            self._feed(data)
        except HTTPParseError as error:
            failure = error
        if self._take is None and self._parser.has_final_head:
            self._stamps.headers_us = at_us
            status = self._stamps.status = self._parser.get_code()
            self._take = self._open_decoder(status, self._parser).feed
        if self._pieces:
            self._overhead_bytes = 0
            for piece in self._pieces:
                self._stamps.bytes_received += len(piece)
                self._take(piece, at_us)  # type: ignore[misc] # a body comes after its head
            self._pieces.clear()
            if failure is None and data and not self._parser.is_over:
                return False
        self._overhead_bytes += len(data)
        if failure is not None and data:
            raise _not_http(self._parser) from failure
        if self._parser.is_over or not data:
            return True
        if self._overhead_bytes > _MOST_OVERHEAD_BYTES:
            raise ProtocolError("too_much_overhead", f"over {_MOST_OVERHEAD_BYTES} bytes of headers or framing")
        return False


def _not_http(parser: ResponseParser) -> ProtocolError:
    if parser.is_over:
        return ProtocolError("surplus_bytes", "the server sent more than the length that it stated")
    return ProtocolError("bad_http", "the answer is not HTTP/1.1")
