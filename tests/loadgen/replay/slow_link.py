"""A slow link where the kernel has no netem: a relay that holds back what goes towards the given address.

`slow_link.py PORT ADDRESS PORT SECONDS`, until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    while data := await reader.read(65536):
        loop.call_later(delay_s, writer.write, data)
    loop.call_later(delay_s, writer.close)


async def main() -> None:
    listen, address, port, delay_s = sys.argv[1:5]

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(address, int(port))
        await asyncio.gather(pass_on(reader, there_writer, float(delay_s)), pass_on(there_reader, writer, 0.0))

    await asyncio.start_server(relay, "127.0.0.1", int(listen))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
