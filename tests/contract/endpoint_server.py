"""One server for all protocols of the endpoints' contract, written from their public descriptions.

The first part of the path is the behaviour, the rest tells the protocol. Every request is appended to the log named as
the script's argument, with its headers and its body; so is every connection that a client gave up.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import zlib
from pathlib import Path

WORD = " tok"


def frame(payload: bytes, **headers: str) -> bytes:
    head = b""
    for name, value in headers.items():
        key = (":" + name.replace("_", "-")).encode()
        head += bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    return prelude + head + payload + struct.pack(">I", zlib.crc32(prelude + head + payload))


def dump(document: object) -> bytes:
    return json.dumps(document).encode()


class Protocol:
    """Events of one answer: `opening`, one per token, `closing`; the whole document; and an error event."""

    content_type = "text/event-stream"

    def __init__(self, name: str, tokens: int) -> None:
        self.name, self.tokens = name, tokens

    def opening(self) -> list[bytes]:
        if self.name == "chat":
            return [dump({"choices": [{"delta": {"role": "assistant", "content": ""}}]})]
        return []

    def token(self, index: int) -> bytes:
        last = index == self.tokens - 1
        if self.name == "chat":
            return dump({"choices": [{"delta": {"content": WORD}, "finish_reason": None}]})
        if self.name == "completions":
            return dump({"choices": [{"text": WORD, "finish_reason": None}]})
        if self.name in {"tgi", "tgi-lines"}:
            end = {"finish_reason": "length", "generated_tokens": self.tokens, "input_length": 7}
            text = WORD * self.tokens if last else None
            return dump({"token": {"text": WORD}, "generated_text": text, "details": end if last else None})
        if self.name == "triton":
            return dump({"model_name": "m", "text_output": WORD})
        return dump({"t": WORD})

    def closing(self) -> list[bytes]:
        usage = {"prompt_tokens": 7, "completion_tokens": self.tokens}
        if self.name == "chat":
            return [
                dump({"choices": [{"delta": {}, "finish_reason": "length"}]}),
                dump({"choices": [], "usage": usage}),
                b"[DONE]",
            ]
        if self.name == "completions":
            return [dump({"choices": [{"text": "", "finish_reason": "length"}], "usage": usage}), b"[DONE]"]
        return []

    def error(self) -> bytes:
        if self.name in {"chat", "completions"}:
            return dump({"error": {"type": "engine_dead", "message": "SECRET"}})
        if self.name in {"tgi", "tgi-lines"}:
            return dump({"error": "SECRET request failed", "error_type": "generation"})
        return dump({"error": "SECRET failed"})

    def whole(self) -> bytes:
        usage = {"prompt_tokens": 7, "completion_tokens": self.tokens}
        text = WORD * self.tokens
        if self.name == "chat":
            return dump({"choices": [{"message": {"content": text}, "finish_reason": "length"}], "usage": usage})
        if self.name == "completions":
            return dump({"choices": [{"text": text, "finish_reason": "length"}], "usage": usage})
        if self.name in {"tgi", "tgi-lines"}:
            return dump([{"generated_text": text, "details": {"finish_reason": "length", "generated_tokens": 6}}])
        return dump({"text_output": text})

    def encode(self, event: bytes) -> bytes:
        return event + b"\n" if "lines" in self.name else b"data: " + event + b"\n\n"


def protocol_of(path: str, asked: dict) -> tuple[Protocol, bool]:
    """The protocol, and whether to stream: from the path and, behind SageMaker, from the body."""
    if path.endswith("/chat/completions"):
        return Protocol("chat", asked["max_tokens"]), asked["stream"]
    if path.endswith("/completions"):
        return Protocol("completions", asked["max_tokens"]), asked["stream"]
    if "/v2/models/" in path:
        return Protocol("triton", asked["max_tokens"]), path.endswith("_stream")
    if path.endswith(("/generate", "/generate_stream")):
        return Protocol("tgi", asked["parameters"]["max_new_tokens"]), path.endswith("_stream")
    if "/invocations" in path:
        streams = path.endswith("-response-stream")
        if "inputs" in asked:
            return Protocol("tgi-lines", asked["parameters"]["max_new_tokens"]), streams
        return Protocol("chat" if "messages" in asked else "completions", asked["max_tokens"]), streams
    return Protocol(f"template-{asked.get('as', 'whole')}", asked["n"]), asked.get("as", "whole") != "whole"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, log) -> None:
    def note(**entry: object) -> None:
        log.write(json.dumps(entry) + "\n")
        log.flush()

    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            path = head[0].split(" ")[1]
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            asked = json.loads(body)
            note(path=path, headers=headers, body=asked)
            if not await answer(path, asked, writer):
                break
    except asyncio.IncompleteReadError:
        pass
    except ConnectionError:
        note(left=True)
    finally:
        writer.close()


async def answer(path: str, asked: dict, writer: asyncio.StreamWriter) -> bool:
    behaviour = path.split("/")[1]
    protocol, streams = protocol_of(path, asked)
    framed = path.endswith("-response-stream")
    if behaviour == "503":
        document(writer, 503, dump({"error": {"type": "overloaded", "message": "SECRET"}}))
        return True
    if behaviour == "whole" or not streams:
        body = protocol.whole()
        if behaviour == "cut":
            writer.write(b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body[:-3])
            return False
        document(writer, 200, body)
        return True
    inner = "application/jsonlines" if "lines" in protocol.name else "text/event-stream"
    outer = "application/vnd.amazon.eventstream" if framed else inner
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {outer}\r\nTransfer-Encoding: chunked\r\n".encode())
    writer.write(f"x-ramptrace-unit: i-7\r\nX-Amzn-SageMaker-Content-Type: {inner}\r\n\r\n".encode())

    async def send(event: bytes) -> None:
        piece = protocol.encode(event)
        if framed:
            # A part may end anywhere inside an event.
            halves = (piece[:5], piece[5:])
            piece = b"".join(frame(half, message_type="event", event_type="PayloadPart") for half in halves)
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
        await asyncio.sleep(0.003)

    for event in protocol.opening():
        await send(event)
    # Long where the instants are looked at: a busy machine may read the headers late.
    await asyncio.sleep(0.4 if behaviour == "ok" else 0.02)
    for index in range(protocol.tokens):
        if index == protocol.tokens // 2:
            if behaviour == "cut":
                return False
            if behaviour == "cleancut":
                writer.write(b"0\r\n\r\n")
                return True
            if behaviour == "error":
                await send(protocol.error())
                writer.write(b"0\r\n\r\n")
                return True
        await send(protocol.token(index))
    for event in protocol.closing():
        await send(event)
    writer.write(b"0\r\n\r\n")
    return True


def document(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    writer.write(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body)))
    writer.write(body)


async def main() -> None:
    with Path(sys.argv[1]).open("a") as log:
        server = await asyncio.start_server(lambda r, w: serve(r, w, log), "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
