"""A small forward proxy on loopback, for tests: every host that it is asked for is 127.0.0.1.

Prints its port and serves until its standard input ends; the first line and the credentials of each request go to the
log named as its argument. It understands whole addresses and CONNECT, one request per connection to the target.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from urllib.parse import urlsplit


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, log) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:])}
            log.write(json.dumps({"line": lines[0], "authorization": headers.get("proxy-authorization")}) + "\n")
            log.flush()
            method, address, version = lines[0].split(" ")
            if method == "CONNECT":
                there, back = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await asyncio.gather(pipe(reader, back), pipe(there, writer))
                return
            parts = urlsplit(address)
            there, back = await asyncio.open_connection("127.0.0.1", parts.port or 80)
            kept = [line for line in lines[1:-2] if not line.lower().startswith(("proxy-", "connection"))]
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            back.write("\r\n".join([f"{method} {parts.path} {version}", *kept, "Connection: close", "", ""]).encode())
            back.write(body)
            while data := await there.read(65536):
                writer.write(data)
                await writer.drain()
                if data.endswith(b"0\r\n\r\n"):
                    break
            back.close()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    with Path(sys.argv[1]).open("a") as log:
        server = await asyncio.start_server(lambda r, w: serve(r, w, log), "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
