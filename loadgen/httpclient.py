"""A lean HTTP/1.1 client on gevent sockets that stamps bytes at the instant they are read.

Why an own one: a first token must not wait for a block to fill, a cut answer must not count as a success, no pool may
close the loop, and names are resolved once. (gevent resolves even a literal address in its thread pool for each new
connection, which alone took the p99 lag at 500 streams/s from 1.0 to 2.4 ms.) Parsing is geventhttpclient's C parser.

There are no retries, with one exception that is not one: when a connection that had been *idle* turns out to have been
closed by the server before it read the request, the request goes out once on a new connection. That is how HTTP/1.1
keep-alive ends (RFC 9112, 9.6). "Before it read the request" means: no response byte, and either a reset (a closed or
unread socket answers with one) or an orderly close while the peer has not acknowledged all bytes. An orderly close
after it acknowledged them means that it had the request, and that is recorded as the failure that it is.
"""

from __future__ import annotations

import _socket
import errno
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import gevent
import gevent.socket
import msgspec
from geventhttpclient.response import HTTPParseError, HTTPResponse

from loadgen.sockets import WRITABLE, PlainSocket, closed_by_peer, unacknowledged_bytes, wait_for

_RECV_BYTES = 16 * 1024
_STALE_S = 1.0
_SURPLUS_S = 30.0


class TransportError(Exception):
    """The exchange failed below HTTP. `kind` is machine-readable; the text holds no request or response content."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class ConnectFailedError(TransportError):
    """No connection could be made: no byte of the request was written."""


class CutError(TransportError):
    """The connection ended before the response did; `unread` when the server cannot have read the request."""

    def __init__(self, kind: str, text: str, *, unread: bool = False) -> None:
        super().__init__(kind, text)
        self.unread = unread


class ProtocolError(TransportError):
    """What arrived is not HTTP/1.1."""


class DeadlineError(Exception):
    """The request's absolute deadline passed."""


class Decoder(Protocol):
    """Takes a response's body as it arrives."""

    def feed(self, data: bytes, at_us: int) -> None:
        """Take a piece of the body, read from the socket at `at_us`."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where to connect: the name for TLS, and what it resolved to."""

    host: str
    port: int
    tls: bool
    sockaddrs: tuple[tuple[int, Any], ...]


class Stamps:
    """Client instants (µs) and sizes of one exchange, filled in as it happens, so that a failure keeps them.

    `on_sent` is called once, with the instant at which the first byte goes.
    """

    __slots__ = ("bytes_received", "bytes_sent", "connect_us", "headers_us", "on_sent", "sent_us", "status")

    def __init__(self) -> None:
        self.sent_us: int | None = None
        self.on_sent: Callable[[int], None] | None = None
        self.headers_us: int | None = None
        self.status: int | None = None
        self.connect_us: int | None = None
        self.bytes_sent = 0
        self.bytes_received = 0


class _Parser(HTTPResponse):  # type: ignore[misc] # untyped base
    """The C parser, handing out body pieces instead of gathering them."""

    def __init__(self) -> None:
        super().__init__(method="POST")
        self.pieces: list[bytes] = []

    def _on_body(self, buf: bytearray) -> None:
        self.pieces.append(bytes(buf))

    @property
    def has_final_head(self) -> bool:
        return bool(self.headers_complete) and self.get_code() >= 200


class HttpClient:
    """Exchanges requests with one address over as many kept-alive connections as there are requests in flight."""

    def __init__(
        self, address: Address, *, context: ssl.SSLContext | None, connect_timeout_s: float, now_us: Callable[[], int]
    ) -> None:
        self._address = address
        self._context = context
        self._connect_timeout_s = connect_timeout_s
        self._now_us = now_us
        self._idle: deque[Any] = deque()
        self._opening = 0
        self._turn = 0
        self._surplus = 0
        self._counted_s = time.monotonic()

    def exchange(
        self, wire: bytes, stamps: Stamps, deadline_s: float, open_decoder: Callable[[int, HTTPResponse], Decoder]
    ) -> None:
        """Send one whole request (head and body) and feed the response's body to the decoder that its head opens.

        `deadline_s` bounds all of it, from now. Raises `TransportError` or `DeadlineError`; `stamps` holds what was
        reached by then.
        """
        timeout = gevent.Timeout(deadline_s, DeadlineError("deadline"))
        timeout.start()
        try:
            idle = self._take_idle()
            if idle is not None:
                started = time.monotonic()
                try:
                    self._converse(idle, wire, stamps, open_decoder)
                except CutError as error:
                    if (
                        not error.unread
                        or stamps.bytes_received
                        or stamps.status
                        or time.monotonic() - started > _STALE_S
                    ):
                        raise
                    stamps.bytes_sent, stamps.sent_us = 0, None
                else:
                    return
            before = self._now_us()
            fresh = self._connect()
            stamps.connect_us = self._now_us() - before
            self._converse(fresh, wire, stamps, open_decoder)
        finally:
            timeout.close()

    def ensure(self, count: int) -> None:
        """Open connections in the background until `count` are idle, so that a due request need not wait for one.

        Those that nothing asked for in the last half minute are closed: after one stall a week's run would keep all
        that it opened to catch up. (The least recently used are at the left.)
        """
        self._surplus = min(self._surplus, len(self._idle) - count)
        if time.monotonic() - self._counted_s > _SURPLUS_S:
            for _ in range(self._surplus):
                self._idle.popleft().close()
            self._counted_s, self._surplus = time.monotonic(), len(self._idle)
        for _ in range(count - len(self._idle) - self._opening):
            self._opening += 1
            gevent.spawn(self._open_idle)

    def check(self) -> None:
        """Open one connection and keep it for use. Raises `ConnectFailedError`."""
        self._idle.append(self._connect())

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _open_idle(self) -> None:
        try:
            self._idle.appendleft(self._connect())
        except ConnectFailedError:
            pass  # the request that needs a connection will fail itself, and say so
        finally:
            self._opening -= 1

    def _take_idle(self) -> Any | None:
        while self._idle:
            sock = self._idle.pop()
            if not closed_by_peer(sock):
                return sock
            sock.close()
        return None

    def _connect(self) -> Any:
        family, sockaddr = self._address.sockaddrs[self._turn % len(self._address.sockaddrs)]
        self._turn += 1
        limit = gevent.Timeout(
            self._connect_timeout_s, ConnectFailedError("connect_timeout", "connecting took too long")
        )
        limit.start()
        raw = _socket.socket(family, _socket.SOCK_STREAM)
        sock: Any = raw
        try:
            raw.setblocking(False)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = raw.connect_ex(sockaddr)
            if code == errno.EINPROGRESS:
                wait_for(raw.fileno(), WRITABLE)
                code = raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise ConnectFailedError(_connect_kind(code), os.strerror(code))
            if self._context is None:
                return PlainSocket(raw)
            sock = gevent.socket.socket(family, socket.SOCK_STREAM, 0, fileno=raw.detach())
            return self._context.wrap_socket(sock, server_hostname=self._address.host)
        except ssl.SSLCertVerificationError as error:
            sock.close()
            raise ConnectFailedError("tls_verification", error.verify_message) from None
        except OSError as error:
            sock.close()
            raise ConnectFailedError("tls" if self._context else "connect", error.strerror or "failed") from None
        except BaseException:
            sock.close()
            raise
        finally:
            limit.close()

    def _converse(
        self, sock: Any, wire: bytes, stamps: Stamps, open_decoder: Callable[[int, HTTPResponse], Decoder]
    ) -> None:
        reusable = False
        try:
            stamps.sent_us = self._now_us()
            if stamps.on_sent is not None:
                stamps.on_sent(stamps.sent_us)
                stamps.on_sent = None
            try:
                sock.sendall(wire)
            except OSError as error:
                raise CutError("closed_while_sending", error.strerror or "closed", unread=True) from None
            stamps.bytes_sent = len(wire)
            reusable = self._receive(sock, stamps, open_decoder)
        finally:
            if reusable:
                self._idle.append(sock)
            else:
                sock.close()

    def _receive(self, sock: Any, stamps: Stamps, open_decoder: Callable[[int, HTTPResponse], Decoder]) -> bool:
        """Read one response to its end; tells whether the connection can serve another request."""
        parser = _Parser()
        decoder: Decoder | None = None
        while True:
            try:
                data = sock.recv(_RECV_BYTES)
            except OSError as error:
                raise CutError(_cut_kind(parser), error.strerror or "reset", unread=True) from None
            at_us = self._now_us()
            try:
                parser.feed(data)
            except HTTPParseError as error:
                if data:
                    raise ProtocolError("bad_http", "the answer is not HTTP/1.1") from error
                raise self._closed(sock, parser) from None
            if decoder is None and parser.has_final_head:
                stamps.headers_us = at_us
                stamps.status = parser.get_code()
                decoder = open_decoder(stamps.status, parser)
            if decoder is not None:
                for piece in parser.pieces:
                    stamps.bytes_received += len(piece)
                    decoder.feed(piece, at_us)
            parser.pieces.clear()
            if parser.message_complete and parser.has_final_head:
                return bool(data) and not parser.should_close()
            if not data:
                raise self._closed(sock, parser)

    @staticmethod
    def _closed(sock: Any, parser: _Parser) -> CutError:
        return CutError(_cut_kind(parser), "closed by the server", unread=unacknowledged_bytes(sock) > 0)


def _cut_kind(parser: _Parser) -> str:
    return "closed_early" if parser.headers_complete else "closed_before_response"


def _connect_kind(code: int) -> str:
    return {errno.ECONNREFUSED: "refused", errno.ETIMEDOUT: "connect_timeout"}.get(code, "unreachable")
