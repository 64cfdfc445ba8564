"""Cutting JSON text into its values in bounded memory, where a file is an array or spreads values over lines.

Only strings and brackets are looked at; a value is decoded, and found wrong, by whoever reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

MAX_VALUE_BYTES: Final = 1 << 26

# A string that runs to the end of what we have is matched whole: its end is in the next piece.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{},]', re.DOTALL)
_CLOSED: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_COLON: Final = re.compile(rb"\s*:")
_OPENING: Final = b"{["
_CLOSING: Final = b"}]"


class ValueTooLongError(Exception):
    """A value does not end within `MAX_VALUE_BYTES`."""


def split_json(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    r"""Yield the text of each element of an array, or of each of several values, and whether the text broke off in it.

    >>> list(split_json([b'[{"a": "]', b'"}, 2]']))
    [(b'{"a": "]"}', False), (b'2', False)]
    >>> list(split_json([b'{"a": [1,\n2]}\n{"b"']))
    [(b'{"a": [1,\n2]}', False), (b'{"b"', True)]
    """
    cutter = _Cutter()
    for piece in pieces:
        for value in cutter.feed(piece):
            yield value, False
    if rest := cutter.rest():
        yield rest, True


class _Cutter:
    def __init__(self) -> None:
        self._text = b""
        self._at = self._depth = 0
        self._base: int | None = None
        """How deep the values lie: 1 inside an array, 0 otherwise."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._text += piece
        if self._base is None and not self._begin():
            return
        start = 0
        for token in _TOKEN.finditer(self._text, self._at):
            word = token[0]
            if word.startswith(b'"'):
                if token.end() == len(self._text) and not _CLOSED.fullmatch(word):
                    self._at = token.start()
                    break
                continue
            end, following = self._cut(word, token)
            if end is not None:
                value = self._text[start:end].strip()
                start = following
                # Nothing stands between the last comma, or the bracket that opens, and the one that closes an array.
                if value or word == b",":
                    yield value
        else:
            self._at = len(self._text)
        self._text, self._at = self._text[start:], self._at - start
        if len(self._text) > MAX_VALUE_BYTES:
            raise ValueTooLongError

    def _begin(self) -> bool:
        lead = self._text.lstrip()
        if lead:
            self._base = self._depth = 1 if lead.startswith(b"[") else 0
            self._text = lead[self._base :]
        return bool(lead)

    def _cut(self, word: bytes, token: re.Match[bytes]) -> tuple[int | None, int]:
        """Return where the value before this token ends (None inside a value) and where the next begins."""
        if word in _OPENING:
            self._depth += 1
        elif word in _CLOSING:
            self._depth = max(self._depth - 1, 0)
            if self._depth == 0:
                ends_array, self._base = self._base == 1, 0
                # What follows an array's end is cut off as a value of its own, and found to be none.
                return (token.start() if ends_array else token.end()), token.end()
        elif self._depth == self._base == 1:
            return token.start(), token.end()
        return None, token.end()

    def rest(self) -> bytes:
        """Return what was begun and did not end."""
        return self._text.strip()


def visible_keys(text: bytes) -> set[str]:
    """Return the keys at the top of the object that `text` begins with, as far as it goes.

    >>> sorted(visible_keys(b'{"a": {"b": 1}, "c": [{"d"'))
    ['a', 'c']
    """
    keys, depth = set(), 0
    body = text.lstrip()
    for token in _TOKEN.finditer(body):
        word = token[0]
        if word in _OPENING:
            depth += 1
        elif word in _CLOSING:
            depth -= 1
        elif depth == 1 and word.startswith(b'"') and _COLON.match(body, token.end()):
            try:
                keys.add(msgspec.json.decode(word, type=str))
            except msgspec.DecodeError:
                continue
    return keys
