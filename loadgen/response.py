"""One HTTP/1.1 response as its bytes come, parsed by geventhttpclient's C parser."""

from __future__ import annotations

import math
import re

from geventhttpclient.response import HTTPParseError, HTTPResponse, HTTPResponseParser

_KEEP_ALIVE = re.compile(r"timeout=(\d{1,6})", re.IGNORECASE)


class ResponseParser(HTTPResponse):  # type: ignore[misc] # untyped base
    """The C parser, handing out body pieces instead of gathering them, and stopping after the final response."""

    def __init__(self) -> None:
        super().__init__(method="POST")
        self.pieces: list[bytes] = []
        self.has_final_head = False
        self.is_over = False

    feed = HTTPResponseParser.feed  # the class above forgives bodies that answer a HEAD, which is never asked

    def _on_body(self, buf: bytearray) -> None:
        if not self.has_final_head:
            raise HTTPParseError("a body without an answer")
        self.pieces.append(bytes(buf))

    def _on_headers_complete(self) -> int | bool | None:
        skip: int | bool | None = super()._on_headers_complete()
        self.has_final_head = self.get_code() >= 200
        return skip

    def _flush_header(self) -> None:
        if not self.has_final_head:  # a trailer is not a header, and must not change one (RFC 9110, 6.5.1)
            super()._flush_header()

    def _on_message_begin(self) -> None:
        if self.is_over:
            raise HTTPParseError("another response follows")
        super()._on_message_begin()

    def _on_message_complete(self) -> None:
        super()._on_message_complete()
        self.is_over = self.has_final_head

    def keep_s(self) -> float:
        """Return for how long (s) the connection may be used again: not to the end, where the server's close races."""
        if self.should_close():
            return 0.0
        stated = self.get("keep-alive")
        limit = _KEEP_ALIVE.search(stated) if isinstance(stated, str) else None
        if limit is None:
            return math.inf
        return max(0.0, int(limit[1]) - max(0.5, int(limit[1]) / 10))
