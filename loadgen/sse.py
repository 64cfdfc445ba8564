"""Server-sent events out of bytes that arrive in arbitrary pieces (WHATWG HTML, "Interpreting an event stream").

Lines end with LF, CR or CRLF, also when the two bytes of a CRLF arrive apart. A CR ends its line at once: waiting for
a possible LF would date a token by the packet after it.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""An event longer than this is an error: a server that never ends a line must not fill the memory."""

_QUIET_FIELDS = (b"", b"id", b"retry")  # the empty one is a comment
_BOM = b"\xef\xbb\xbf"
_LF = 10


class SseEvent(NamedTuple):
    """One event: its type (empty for the default one) and its data lines joined by LF."""

    name: bytes
    data: bytes


_new = tuple.__new__  # half the time of the class's own


class SseOverflowError(ValueError):
    """An event grew beyond `MAX_EVENT_BYTES`."""


class SseSplitter:
    r"""Splits a byte stream into events, incrementally.

    `strays` counts the lines since the last event that the standard does not know, and has ignored.

    >>> splitter = SseSplitter()
    >>> splitter.feed(b"data: a"), splitter.feed(b"b\r"), splitter.feed(b"\n\r\ndata: [DONE]\n")
    ([], [], [SseEvent(name=b'', data=b'ab')])
    >>> splitter.close()
    [SseEvent(name=b'', data=b'[DONE]')]
    """

    __slots__ = ("_at_start", "_data", "_held_bytes", "_is_between", "_name", "_skip_lf", "_tail", "strays")

    def __init__(self) -> None:
        self._tail = bytearray()
        self._at_start = True
        self._skip_lf = False
        self._name = b""
        self._data: list[bytes] = []
        self._held_bytes = 0
        self._is_between = False
        self.strays = 0

    def feed(self, piece: bytes) -> list[SseEvent]:
        """Return the events that this piece of the stream completes."""
        # Nearly every piece of a token stream is one event of one data line: a third of the time of the way below.
        if (
            self._is_between
            and piece.find(b"\n") == len(piece) - 2 > 6
            and piece[-1] == _LF
            and piece[:6] == b"data: "
            and b"\r" not in piece
        ):
            self.strays = 0
            return [_new(SseEvent, (b"", piece[6:-2]))]
        events = self._split(piece)
        self._is_between = not (self._tail or self._data or self._name or self._skip_lf or self._at_start)
        return events

    def _split(self, piece: bytes) -> list[SseEvent]:
        if self._skip_lf and piece:
            self._skip_lf = False
            piece = piece.removeprefix(b"\n")
        if self._at_start:
            piece = bytes(self._tail) + piece
            self._tail.clear()
            if len(piece) < len(_BOM) and _BOM.startswith(piece):
                self._tail += piece
                return []
            self._at_start = False
            piece = piece.removeprefix(_BOM)
        events: list[SseEvent] = []
        if b"\n" in piece or b"\r" in piece:
            if self._tail:
                piece = bytes(self._tail) + piece
                self._tail.clear()
            lines = piece.splitlines()
            if piece.endswith((b"\n", b"\r")):
                self._skip_lf = piece.endswith(b"\r")
            else:
                self._tail += lines.pop()
            for line in lines:
                self._take(line, events)
        else:
            self._tail += piece
        if self._held_bytes + len(self._tail) > MAX_EVENT_BYTES:
            raise SseOverflowError(f"an event is longer than {MAX_EVENT_BYTES} bytes")
        return events

    def close(self) -> list[SseEvent]:
        """Return the event that the stream's end left without its closing blank line, if there is one.

        The standard drops it; here it counts, because some servers end right after `data: [DONE]`.
        """
        events: list[SseEvent] = []
        if self._tail:
            tail = bytes(self._tail)
            self._tail.clear()
            self._take(tail.removeprefix(_BOM) if self._at_start else tail, events)
        self._take(b"", events)
        return events

    def _take(self, line: bytes, events: list[SseEvent]) -> None:
        if not line:
            if self._data:
                events.append(SseEvent(self._name, self._data[0] if len(self._data) == 1 else b"\n".join(self._data)))
                self._data = []
                self._held_bytes = self.strays = 0
            self._name = b""
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._held_bytes += len(value)
        elif field == b"event":
            self._name = value.removeprefix(b" ")
        elif field not in _QUIET_FIELDS:
            self.strays += 1


class LineSplitter:
    r"""Splits a byte stream into lines, each an event (JSON lines).

    >>> splitter = LineSplitter()
    >>> [event.data for event in splitter.feed(b'{"a": 1}\r\n\n{"b')], [event.data for event in splitter.close()]
    ([b'{"a": 1}'], [b'{"b'])
    """

    __slots__ = ("_tail", "strays")

    def __init__(self) -> None:
        self._tail = bytearray()
        self.strays = 0

    def feed(self, piece: bytes) -> list[SseEvent]:
        """Return the lines that this piece completes; empty ones are left out."""
        if b"\n" not in piece:
            lines: list[bytes] = []
            self._tail += piece
        else:
            *lines, rest = (bytes(self._tail) + piece).split(b"\n")
            self._tail = bytearray(rest)
        if len(self._tail) > MAX_EVENT_BYTES:
            raise SseOverflowError(f"a line is longer than {MAX_EVENT_BYTES} bytes")
        return [SseEvent(b"", line) for line in map(bytes.strip, lines) if line]

    def close(self) -> list[SseEvent]:
        """Return the line that the stream's end left without its line feed, if there is one."""
        tail = bytes(self._tail).strip()
        self._tail.clear()
        return [SseEvent(b"", tail)] if tail else []
