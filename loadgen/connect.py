"""Connections: made without name lookups or exceptions on the way, through TLS or a proxy where the target wants it.

Names are resolved once, before the start. (gevent resolves even a literal address in its thread pool for each new
connection, which alone took the p99 lag at 500 streams/s from 1.0 to 2.4 ms.)
"""

from __future__ import annotations

import _socket
import errno
import os
import re
import socket
import ssl
from typing import Any

import gevent
import gevent.socket
import msgspec

from loadgen.sockets import WRITABLE, Connection, PlainSocket, TlsSocket, wait_for

_PROXY_HEAD_BYTES = 16 * 1024
_PROXY_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")


class TransportError(Exception):
    """The exchange failed below HTTP. `kind` is machine-readable; the text holds no request or response content."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class ConnectFailedError(TransportError):
    """No connection could be made: no byte of the request was written."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where to connect: the name for TLS, and what it resolved to, or what the proxy's name did.

    `tunnel` is what is said to a proxy before TLS begins; empty without one.
    """

    host: str
    port: int
    tls: bool
    sockaddrs: tuple[tuple[int, Any], ...]
    tunnel: bytes = b""


def connect(
    address: Address, family: int, sockaddr: Any, *, context: ssl.SSLContext | None, timeout_s: float
) -> Connection:
    """Return a connected socket, its handshakes done. Raises `ConnectFailedError`."""
    limit = gevent.Timeout(timeout_s, ConnectFailedError("connect_timeout", "connecting took too long"))
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
        if context is None:
            return PlainSocket(raw)
        sock = gevent.socket.socket(family, socket.SOCK_STREAM, 0, fileno=raw.detach())
        if address.tunnel:
            _open_tunnel(sock, address.tunnel)
        # An end without TLS's own farewell is told from a complete one (RFC 9112, 9.8): no ragged ends are hidden.
        return TlsSocket(context.wrap_socket(sock, server_hostname=address.host, suppress_ragged_eofs=False))
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise ConnectFailedError("tls_verification", error.verify_message) from None
    except OSError as error:
        sock.close()
        raise ConnectFailedError("tls" if context else "connect", error.strerror or "failed") from None
    except BaseException:
        sock.close()
        raise
    finally:
        limit.close()


def whole_address(wire: bytes, before_path: bytes, after_line: bytes) -> bytes:
    """Return a request for a proxy that takes whole addresses: with what goes before its path and after its line."""
    method, _, rest = wire.partition(b" ")
    line, end, rest = rest.partition(b"\r\n")
    return b"".join((method, b" ", before_path, line, end, after_line, rest))


def _open_tunnel(sock: Any, request: bytes) -> None:
    """Ask a proxy for a way through (RFC 9110, 9.3.6). The target speaks first only after us, so nothing is lost."""
    try:
        sock.sendall(request)
        head = b""
        while b"\r\n\r\n" not in head:
            data = sock.recv(4096)
            if not data or len(head) > _PROXY_HEAD_BYTES:
                raise ConnectFailedError("proxy", "the proxy closed the connection, or does not speak HTTP")
            head += data
    except OSError as error:
        raise ConnectFailedError("proxy", f"the proxy closed the connection ({error.strerror})") from None
    status = _PROXY_STATUS.match(head)
    if status is None:
        raise ConnectFailedError("proxy", "the proxy does not speak HTTP")
    if not status[1].startswith(b"2"):
        raise ConnectFailedError("proxy", f"the proxy refused with HTTP {status[1].decode()}")


def _connect_kind(code: int) -> str:
    return {errno.ECONNREFUSED: "refused", errno.ETIMEDOUT: "connect_timeout"}.get(code, "unreachable")
