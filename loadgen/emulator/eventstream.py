"""Frames of `application/vnd.amazon.eventstream`.

A frame is: total length and header length (4 bytes each, big-endian), CRC-32 of those eight bytes, the headers,
the payload, CRC-32 of all before. A string header is: name length (1 byte), name, type 7, value length (2 bytes),
value.
Source: the AWS event stream encoding as Smithy documents it.
"""

from __future__ import annotations

import struct
import zlib

_STRING = 7


def encode_frame(headers: dict[str, str], payload: bytes) -> bytes:
    """Return one frame."""
    encoded = b"".join(_string_header(name, value) for name, value in headers.items())
    prelude = struct.pack("!II", 16 + len(encoded) + len(payload), len(encoded))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + encoded + payload
    return message + struct.pack("!I", zlib.crc32(message))


def payload_part(data: bytes) -> bytes:
    """Return a `PayloadPart` event of SageMaker's response stream."""
    headers = {
        ":message-type": "event",
        ":event-type": "PayloadPart",
        ":content-type": "application/octet-stream",
    }
    return encode_frame(headers, data)


def payload_parts(data: bytes) -> bytes:
    """Return the data as two events, cut where no line or document ends.

    Clients must not take a part for an event of the stream inside: the real service cuts anywhere. The place follows
    from the data alone, so that a replay gives the same bytes.
    """
    cut = zlib.crc32(data) % len(data) if data else 0
    return payload_part(data[:cut]) + payload_part(data[cut:]) if cut else payload_part(data)


def stream_exception(kind: str, body: bytes) -> bytes:
    """Return an exception frame, the way a stream fails after its 200."""
    headers = {":message-type": "exception", ":exception-type": kind, ":content-type": "application/json"}
    return encode_frame(headers, body)


def _string_header(name: str, value: str) -> bytes:
    encoded_name, encoded_value = name.encode(), value.encode()
    return (
        struct.pack("!B", len(encoded_name))
        + encoded_name
        + struct.pack("!BH", _STRING, len(encoded_value))
        + encoded_value
    )
