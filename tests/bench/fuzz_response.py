"""Fuzz the response parser with coverage guidance, by hand: `python -m tests.bench.fuzz_response -max_total_time=300`.

Needs `pip install atheris`, which is not among the development dependencies. What it finds becomes an example in
`tests/loadgen/replay/test_replay_http_fuzz.py`.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["loadgen.receiving", "loadgen.response", "loadgen.sse", "loadgen.endpoints"]):
    from tests.loadgen.replay.answering import received


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
_HEADS = (b"", _HEAD + b"Transfer-Encoding: chunked\r\n\r\n", _HEAD + b"Content-Length: 300\r\n\r\n", _HEAD + b"\r\n")


def one(data: bytes) -> None:
    """Play one input: its first byte says how long the pieces are, its second which head goes before it."""
    if len(data) < 2:
        return
    step, head, rest = 1 + data[0], _HEADS[data[1] % len(_HEADS)], data[2:]
    if data[1] & 4:  # well framed, so that what is in the frames is reached
        rest = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in rest.split(b"|") if piece) + b"0\r\n\r\n"
    whole = head + rest
    received([whole[at : at + step] for at in range(0, len(whole), step)])


def main() -> None:
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
