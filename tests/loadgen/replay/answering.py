"""The HTTP client over a connection that plays given bytes: for fuzzing without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loadgen.connect import Address, TransportError
from loadgen.endpoints.base import Reply
from loadgen.endpoints.chat import ChatStream
from loadgen.httpclient import HttpClient
from loadgen.receiving import Stamps


class Played:
    """Gives the pieces one after another, and then the end."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece][::-1]

    def read(self, take: Callable[[bytes], bool]) -> bool:
        while not take(data := self._pieces.pop() if self._pieces else b""):
            pass
        return not data

    def fileno(self) -> int:
        raise OSError


class Body:
    """Keeps a body, and decodes it as a chat stream."""

    def __init__(self) -> None:
        self.reply, self.data = Reply(), b""
        self._stream = ChatStream(self.reply)

    def feed(self, data: bytes, at_us: int) -> None:
        self.data += data
        self._stream.feed(data, at_us)

    def close(self) -> None:
        self._stream.close()


def received(pieces: Sequence[bytes]) -> tuple[str, int | None, bytes, Reply]:
    """Return how receiving ended ("" for well), the status, the body and what it said. Raises for a bug only."""
    address = Address(host="a", port=1, tls=False, sockaddrs=())
    client = HttpClient(address, context=None, connect_timeout_s=1, now_us=lambda: 0)
    stamps, body, ended = Stamps(), Body(), ""
    try:
        client._receive(Played(pieces), stamps, lambda _status, _headers: body)
    except TransportError as error:
        ended = error.kind
    body.close()
    return ended, stamps.status, body.data, body.reply
