"""A small, real chat-completions server on loopback, with the faults that a load generator meets.

The behaviour is in the path: `/<behaviour>/v1/chat/completions`. Run as a script it prints its port and serves until
its standard input ends. Every request that it begins to read is appended to the log file named as its argument.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from functools import partial
from pathlib import Path


def chunk(delta: dict, finish: str | None = None, **more: object) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}).encode()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, log) -> None:
    patience = None
    try:
        while True:
            head = await head_within(reader, patience)
            lines = head.decode("latin-1").split("\r\n")
            method, path, _ = lines[0].split(" ")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:])}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if method == "POST":
                log.write(json.dumps({"at": time.time(), "path": path, "bytes": len(body)}) + "\n")
                log.flush()
            if not await answer(method, path, body, writer):
                break
            await writer.drain()
            patience = 0.03 if path.startswith("/impatient/") else None
    except ConnectionError:
        log.write(json.dumps({"left": True}) + "\n")
        log.flush()
    except (asyncio.IncompleteReadError, TimeoutError):
        pass
    finally:
        writer.close()


async def head_within(reader: asyncio.StreamReader, patience: float | None) -> bytes:
    """Read a request's head. Only what is still in the kernel when patience ends is left unread: as real servers do,
    this one answers what it has taken in."""
    reading = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
    await asyncio.wait({reading}, timeout=patience)
    for _ in range(3):
        await asyncio.sleep(0)
    if not reading.done():
        reading.cancel()
        raise TimeoutError
    return reading.result()


async def answer(method: str, path: str, body: bytes, writer: asyncio.StreamWriter) -> bool:
    behaviour = path.split("/")[1]
    if path == "/_ramptrace/clock" and "--clock" in sys.argv:
        now = time.time_ns() // 1000
        whole(writer, 200, {"emulated": True, "endpoint_us": now * 20, "client_us": now, "time_scale": 20.0})
        return True
    if method == "GET":
        known = path.endswith("/models")
        whole(writer, 200 if known else 404, {"data": [{"id": "served-model"}]} if known else {})
        return True
    asked = json.loads(body)
    if behaviour in {"503", "429"}:
        whole(writer, int(behaviour), {"error": {"type": "overloaded", "message": "prompt was SECRET"}})
        return True
    if behaviour == "closed":
        return False
    if behaviour == "garbage":
        writer.write(b"SECRET this is not HTTP\r\n\r\n")
        return False
    if behaviour == "hang":
        await asyncio.sleep(3600)
    if not asked.get("stream"):
        await asyncio.sleep(0.02)
        usage = {"prompt_tokens": 5, "completion_tokens": asked["max_tokens"]}
        whole(writer, 200, {"choices": [{"message": {"content": "hi"}, "finish_reason": "length"}], "usage": usage})
        return True
    return await stream(behaviour, asked, writer)


def whole(writer: asyncio.StreamWriter, status: int, document: dict) -> None:
    body = json.dumps(document).encode()
    writer.write(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
    writer.write(body)


async def stream(behaviour: str, asked: dict, writer: asyncio.StreamWriter) -> bool:
    end = b"\r\n\r\n" if behaviour == "crlf" else b"\n\n"
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n")
    writer.write(b"x-ramptrace-unit: i-0123\r\n\r\n")

    async def send(data: bytes, event: bytes = b"") -> None:
        piece = (b"event: " + event + end[: len(end) // 2] if event else b"") + b"data: " + data + end
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()

    await send(chunk({"role": "assistant", "content": ""}))
    await asyncio.sleep(0.5 if behaviour == "slow" else 0.03)
    if behaviour == "reasoning":
        await send(chunk({"reasoning_content": "hm"}))
        await asyncio.sleep(0.05)
    tokens = asked["max_tokens"]
    for number in range(tokens):
        if behaviour == "truncated" and number == tokens // 2:
            return False
        if behaviour == "cleancut" and number == tokens // 2:
            writer.write(b"0\r\n\r\n")
            return True
        if behaviour == "error" and number == tokens // 2:
            await send(json.dumps({"error": {"type": "engine_dead", "message": "SECRET"}}).encode(), b"error")
            writer.write(b"0\r\n\r\n")
            return True
        await send(chunk({"content": f" t{number}"}))
        await asyncio.sleep(0.002)
    await send(chunk({}, "length"))
    await send(json.dumps({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": tokens}}).encode())
    await send(b"[DONE]")
    writer.write(b"0\r\n\r\n")
    return True


async def main() -> None:
    with Path(sys.argv[1]).open("a") as log:
        context = None
        if "--tls" in sys.argv:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(sys.argv[sys.argv.index("--tls") + 1])
        port = int(sys.argv[sys.argv.index("--port") + 1]) if "--port" in sys.argv else 0
        handler = partial(serve, log=log)
        server = await asyncio.start_server(handler, "127.0.0.1", port, backlog=4096, ssl=context)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
