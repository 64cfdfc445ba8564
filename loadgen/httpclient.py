"""A lean HTTP/1.1 client on gevent sockets that stamps bytes at the instant they are read.

Why an own one: a first token must not wait for a block to fill, a cut answer must not count as a success, no pool may
close the loop, and names are resolved once. Parsing is geventhttpclient's C parser.

There are no retries, with one exception that is not one: when a connection that had been *idle* turns out to have been
closed by the server before it read the request, the request goes out once on a new connection, and is counted in
`resent`. That is how HTTP/1.1 keep-alive ends (RFC 9112, 9.6). "Before it read the request" means: no response byte,
and either a reset (a closed or unread socket answers with one) or an orderly close while the peer has not acknowledged
all bytes. An orderly close after it acknowledged them may mean that it had the request. That is recorded as a failure,
`stale_connection`; to make it rare, a connection is looked at just before it is used again, and none is used longer
than the server's own `Keep-Alive` header allows.
"""

from __future__ import annotations

import math
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import gevent

from loadgen.connect import Address, ConnectFailedError, connect, whole_address
from loadgen.receiving import CutError, OpenDecoder, Receiving, Stamps
from loadgen.sockets import Connection, ReadError, is_stale, unacknowledged_bytes

_STALE_S = 1.0
_SURPLUS_S = 30.0
_OPEN_AT_ONCE, _OPEN_PAUSE_S = 4, 0.001


class DeadlineError(Exception):
    """The request's absolute deadline passed."""


class _Idle(NamedTuple):
    """A connection that waits: until when (monotonic s) it may be used, and whether it has served a request."""

    sock: Connection
    until_s: float = math.inf
    is_used: bool = False


class HttpClient:
    """Exchanges requests with one address over as many kept-alive connections as there are requests in flight.

    `through` replaces the start of each request for a proxy that takes whole addresses: what goes before the path, and
    what goes after the request line.
    """

    def __init__(
        self,
        address: Address,
        *,
        context: ssl.SSLContext | None,
        connect_timeout_s: float,
        now_us: Callable[[], int],
        through: tuple[bytes, bytes] | None = None,
    ) -> None:
        self._address = address
        self._context = context
        self._connect_timeout_s = connect_timeout_s
        self._now_us = now_us
        self._through = through
        self._idle: deque[_Idle] = deque()
        self._opening = 0
        self._wanted = 0
        self._opener: gevent.Greenlet | None = None
        self._turn = 0
        self._surplus = 0
        self._counted_s = time.monotonic()
        self.resent = 0

    def exchange(self, wire: bytes, stamps: Stamps, deadline_s: float, open_decoder: OpenDecoder) -> None:
        """Send one whole request (head and body) and feed the response's body to the decoder that its head opens.

        `deadline_s` bounds all of it, from now. Raises `TransportError` or `DeadlineError`; `stamps` holds what was
        reached by then.
        """
        if self._through is not None:
            wire = whole_address(wire, *self._through)
        timeout = gevent.Timeout(deadline_s, DeadlineError("deadline"))
        timeout.start()
        try:
            idle = self._take_idle()
            if idle is not None:
                started = time.monotonic()
                try:
                    self._converse(idle.sock, wire, stamps, open_decoder)
                except CutError as error:
                    if error.kind == "closed_early" or time.monotonic() - started > _STALE_S:
                        raise
                    if not error.unread and not idle.is_used:
                        raise
                    if not error.unread:
                        text = "an idle connection was closed as the request went out; it may have been read"
                        raise CutError("stale_connection", text) from None
                    stamps.bytes_sent, stamps.sent_us = 0, None
                    self.resent += 1
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
                self._idle.popleft().sock.close()
            self._counted_s, self._surplus = time.monotonic(), len(self._idle)
        self._wanted = count
        if self._missing > 0 and not self._opener:
            self._opener = gevent.spawn(self._open_missing)

    def check(self) -> None:
        """Open one connection and keep it for use. Raises `ConnectFailedError`."""
        self._idle.append(_Idle(self._connect()))

    def close(self) -> None:
        """Close the idle connections."""
        self._wanted = 0
        while self._idle:
            self._idle.pop().sock.close()

    @property
    def _missing(self) -> int:
        return self._wanted - len(self._idle) - self._opening

    def _open_missing(self) -> None:
        """Open connections, a few at a time: hundreds at once hold up the loop for 15 ms."""
        while self._missing > 0:
            for _ in range(min(_OPEN_AT_ONCE, self._missing)):
                self._opening += 1
                gevent.spawn(self._open_idle)
            gevent.sleep(_OPEN_PAUSE_S)

    def _open_idle(self) -> None:
        try:
            self._idle.appendleft(_Idle(self._connect()))
        except ConnectFailedError:
            pass  # the request that needs a connection will fail itself, and say so
        finally:
            self._opening -= 1

    def _take_idle(self) -> _Idle | None:
        while self._idle:
            idle = self._idle.pop()
            if not is_stale(idle.sock) and time.monotonic() < idle.until_s:
                return idle
            idle.sock.close()
        return None

    def _connect(self) -> Connection:
        family, sockaddr = self._address.sockaddrs[self._turn % len(self._address.sockaddrs)]
        self._turn += 1
        return connect(self._address, family, sockaddr, context=self._context, timeout_s=self._connect_timeout_s)

    def _converse(self, sock: Connection, wire: bytes, stamps: Stamps, open_decoder: OpenDecoder) -> None:
        keep_s = 0.0
        try:
            if stamps.on_sending is not None:
                stamps.on_sending()
            stamps.sent_us = self._now_us()
            if stamps.on_sent is not None:
                stamps.on_sent(stamps.sent_us)
                stamps.on_sent = None
            try:
                sock.sendall(wire)
            except OSError as error:
                self._receive_refusal(sock, stamps, open_decoder, error)
                return
            stamps.bytes_sent = len(wire)
            keep_s = self._receive(sock, stamps, open_decoder)
        finally:
            if keep_s > 0:
                self._idle.append(_Idle(sock, time.monotonic() + keep_s, is_used=True))
            else:
                sock.close()

    def _receive_refusal(self, sock: Connection, stamps: Stamps, open_decoder: OpenDecoder, error: OSError) -> None:
        """Take the answer of a server that closed before it had the whole request; without one, it is a cut."""
        try:
            self._receive(sock, stamps, open_decoder)
        except CutError as cut:
            if cut.kind == "closed_early":
                raise
            raise CutError("closed_while_sending", error.strerror or "closed", unread=True) from None

    def _receive(self, sock: Connection, stamps: Stamps, open_decoder: OpenDecoder) -> float:
        """Read one response to its end; returns for how long (s) the connection can serve another request."""
        receiving = Receiving(stamps, open_decoder, self._now_us)
        try:
            is_closed = sock.read(receiving.take)
        except ReadError as error:
            raise CutError(receiving.cut_kind, error.text, unread=error.was_reset) from None
        if not receiving.is_over:
            raise CutError(receiving.cut_kind, "closed by the server", unread=unacknowledged_bytes(sock) > 0)
        return 0.0 if is_closed else receiving.keep_s()
