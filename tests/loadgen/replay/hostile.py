"""A server that breaks HTTP, TLS and SSE byte by byte: the path of a request names the fault.

Run as a script it prints its port and serves until its standard input ends; with `--tls CERT` it speaks TLS. Each
request that it has read whole is appended to the log named as its argument. Nothing else is sent.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import struct
import sys
from pathlib import Path

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def delta(text: str, finish: str | None = None) -> bytes:
    return b"data: %b\n\n" % json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": finish}]}).encode()


BODY = delta("a") + delta("b") + delta("", "length") + b"data: [DONE]\n\n"
ERROR = b'data: {"error": {"type": "engine_dead", "message": "SECRET"}}\n\n'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


WHOLE = CHUNKED + chunk(BODY) + b"0\r\n\r\n"


def sized(body: bytes, length: int, more: bytes = b"") -> bytes:
    return HEAD + more + b"Content-Length: %d\r\n\r\n" % length + body


# What is written before the connection is closed in good order. A fault that needs more than that is in `misbehave`.
WRITTEN = {
    "truncated-chunk": CHUNKED + chunk(BODY)[:-20],
    "no-last-chunk": CHUNKED + chunk(BODY[: len(BODY) // 2]),
    "bad-chunk-size": CHUNKED + b"zz\r\n" + BODY,
    "huge-chunk-size": CHUNKED + b"ffffffffffffffffff\r\n" + BODY,
    "length-too-long": sized(BODY, len(BODY) + 50),
    "length-too-short": sized(BODY, len(BODY) - 30),
    "length-and-garbage": sized(BODY, len(BODY)) + b"GARBAGE",
    "two-lengths": sized(BODY, len(BODY), b"Content-Length: 7\r\n"),
    "length-and-chunks": HEAD + b"Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(BODY) + b"0\r\n\r\n",
    "head-cut": b"HTTP/1.1 200 OK\r\nContent-Ty",
    "nothing": b"",
    "not-http": b"SSH-2.0-SECRET\r\n",
    "two-answers": WHOLE + WHOLE,
    "interim-only": b"HTTP/1.1 100 Continue\r\n\r\n",
    "switching": b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + BODY,
    "garbage-after-done": CHUNKED + chunk(BODY + b"\x00\xffGARBAGE\n") + b"0\r\n\r\n",
    "event-after-done": CHUNKED + chunk(BODY + delta("c")) + b"0\r\n\r\n",
    "error-event": CHUNKED + chunk(delta("a") + ERROR) + b"0\r\n\r\n",
    "error-after-done": CHUNKED + chunk(BODY + ERROR) + b"0\r\n\r\n",
    "gzip": HEAD + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzip.compress(BODY),
    "says-gzip": HEAD + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + BODY,
    "gzip-transfer": HEAD + b"Transfer-Encoding: gzip\r\n\r\n" + gzip.compress(BODY),
    "no-end-marker": HEAD + b"Connection: close\r\n\r\n" + delta("a"),
    "binary-event": CHUNKED + chunk(b"data: \x00\xff{\n\n" + BODY) + b"0\r\n\r\n",
    # and what only looks odd
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + WHOLE,
    "trailers": CHUNKED + chunk(BODY) + b"0\r\nContent-Type: text/plain\r\nX-Sum: 1\r\n\r\n",
    "http10": b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + BODY,
    "close": HEAD + b"Connection: close\r\n\r\n" + BODY,
    "spaced": CHUNKED + b"".join(chunk(BODY[i : i + 1]) for i in range(len(BODY))) + b"0;ext=1\r\n\r\n",
    "comment-after-done": CHUNKED + chunk(BODY + b": bye\n\n") + b"0\r\n\r\n",
}


async def misbehave(fault: str, writer: asyncio.StreamWriter) -> bool:
    """Do what a fault says; tells whether the connection stays open."""

    async def write(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    if fault == "header-flood":
        await write(b"HTTP/1.1 200 OK\r\n")
        for _ in range(400):
            await write(b"".join(b"X-%d: %b\r\n" % (i, b"y" * 50) for i in range(100)))
    elif fault == "interim-flood":
        for _ in range(4000):
            await write(b"HTTP/1.1 102 Processing\r\n\r\n" * 10)
    elif fault == "trailer-flood":
        await write(CHUNKED + chunk(BODY) + b"0\r\n")
        for _ in range(400):
            await write(b"X-Trailer: y\r\n" * 100)
    elif fault == "slow-body":
        await write(HEAD + b"Content-Length: 100000\r\n\r\n")
        while True:
            await write(b":")
            await asyncio.sleep(0.05)
    elif fault == "slow-head":
        for letter in HEAD * 100:
            await write(bytes([letter]))
            await asyncio.sleep(0.05)
    elif fault == "silence":
        await asyncio.sleep(3600)
    elif fault == "reset":
        await write(CHUNKED + chunk(delta("a")))
        await asyncio.sleep(0.05)
        abort(writer)
    elif fault == "reset-at-once":
        abort(writer)
    elif fault == "half-closed":
        await write(CHUNKED + chunk(delta("a")))
        writer.write_eof()
        await asyncio.sleep(3600)
    elif fault == "half-closed-at-once":
        writer.write_eof()
        await asyncio.sleep(3600)
    elif fault == "flood":
        await write(HEAD + b"\r\n")
        while True:  # one event without end
            await write(b"data: " + b"x" * 1_000_000)
    elif fault == "keep":
        await write(WHOLE)
        return True
    elif fault == "keep-then-say-something":
        await write(WHOLE)
        await asyncio.sleep(0.05)
        await write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        return True
    elif fault == "keep-for-no-time":
        await write(WHOLE.replace(HEAD, HEAD + b"Keep-Alive: timeout=0\r\n"))
        return True
    else:
        await write(WRITTEN[fault])
    return False


def abort(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, log) -> None:
    try:
        answered = 0
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:])}
            fault = lines[0].split(" ")[1].split("/")[1]
            if fault == "keep-and-reset-unread" and answered:
                abort(writer)  # with the body unread: the request was not had
                return
            await reader.readexactly(int(headers.get("content-length", 0)))
            log.write(json.dumps({"line": lines[0], "headers": headers}) + "\n")
            log.flush()
            if fault == "keep-and-close" and answered:
                return  # after it has read the request
            answered += 1
            if not await misbehave("keep" if fault.startswith("keep-and") else fault, writer):
                return
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    with Path(sys.argv[1]).open("a") as log:
        context = None
        if "--tls" in sys.argv:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(sys.argv[sys.argv.index("--tls") + 1])
        host = "::1" if "--ipv6" in sys.argv else "127.0.0.1"
        server = await asyncio.start_server(lambda r, w: serve(r, w, log), host, 0, ssl=context)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
