"""Images of a wanted size in pixels, each different from its first tile on, and small in bytes.

What an image costs a vision model depends on its size in pixels; its content has to differ, or the server would
answer from a cache.
"""

from __future__ import annotations

import base64
import struct
import zlib
from hashlib import blake2b

from traces.errors import BadInputError

_TILE = 32
_LARGEST = 8192


def parse_size(text: str) -> tuple[int, int]:
    """Return width and height of a size like `512x512`. Raises `BadInputError`.

    >>> parse_size("640x480")
    (640, 480)
    """
    width, height = (int(part) if part.isdecimal() else 0 for part in text.partition("x")[::2])
    if min(width, height) >= 1 and max(width, height) <= _LARGEST:
        return width, height
    raise BadInputError(f'not an image size: "{text}"; expected WIDTHxHEIGHT in pixels, such as 512x512')


def image_url(key: str, size: tuple[int, int]) -> str:
    """Return a data URL of the PNG image that belongs to `key`."""
    return "data:image/png;base64," + base64.b64encode(png(key, size)).decode("ascii")


def png(key: str, size: tuple[int, int]) -> bytes:
    """Return a PNG image of grey tiles that depend on `key` (PNG specification, third edition; 8-bit greyscale)."""
    width, height = size
    across, down = -(-width // _TILE), -(-height // _TILE)
    shades = _shades(key, across * down)
    rows = []
    for tile_row in range(down):
        line = b"".join(shades[i : i + 1] * _TILE for i in range(tile_row * across, (tile_row + 1) * across))
        rows.append((b"\0" + line[:width]) * min(_TILE, height - tile_row * _TILE))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows), 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _shades(key: str, count: int) -> bytes:
    blocks = (blake2b(f"{key}:{i}".encode()).digest() for i in range(-(-count // 64)))
    return b"".join(blocks)[:count]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
