"""One recording: the proxy served, rows flushed to disk each second, and the trace closed at the end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from aiohttp import web
from yarl import URL

from loadgen.record.proxy import Proxy, Row, quiet_logs
from loadgen.record.shards import ShardStore, recover
from traces.clock import ClientClock
from traces.errors import BadInputError, RamptraceError

_FLUSH_S: Final = 1.0
_STOP_PATIENCE_S: Final = 5.0


class Recording(msgspec.Struct, kw_only=True):
    """How a recording went. The chunks are those of the streams that reported no usage."""

    output: str
    rows: int = 0
    without_usage: int = 0
    streams_without_usage: int = 0
    chunks_without_usage: int = 0
    statuses: dict[str, int] = {}


class Listen(msgspec.Struct, frozen=True):
    """Where to listen."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_listen(text: str) -> Listen:
    """Return the address that `HOST:PORT` states (an IPv6 host in brackets).

    >>> parse_listen("127.0.0.1:8088"), parse_listen("[::1]:0").is_loopback
    (Listen(host='127.0.0.1', port=8088), True)
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise BadInputError(f'--listen "{text}": expected HOST:PORT, such as 127.0.0.1:8088')
    return Listen(host.strip("[]"), int(port))


def parse_upstream(text: str) -> URL:
    """Return the upstream's base address; credentials in it are refused, for clients send their own."""
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host or url.user or url.query_string or url.fragment:
        raise BadInputError("--upstream: expected the server's base address, such as http://127.0.0.1:8000")
    return url


async def record(
    upstream: URL,
    listen: Listen,
    output: Path,
    *,
    content: Path | None = None,
    duration_s: float | None = None,
    say: Callable[[str], None],
) -> Recording:
    """Serve the proxy until SIGINT, SIGTERM or the duration's end; write the trace and return how it went.

    `content` is a file that gets each request's body as a JSON line; without one nothing of contents is kept.
    """
    clock = ClientClock()
    start_us = clock.now_us()
    found = Recording(output=str(output))
    statuses: Counter[str] = Counter()
    with _Contents(content) as contents:
        store = ShardStore(output, start_us, str(upstream.origin()))

        def keep(row: Row, body: bytes | None, chunks: int) -> None:
            statuses[str(row["source_status"])] += 1
            if row["output_tokens"] is None:
                found.without_usage += 1
                found.streams_without_usage += chunks > 0
                found.chunks_without_usage += chunks
            row["payload_ref"] = contents.keep(row["row_id"], body)
            store.add(row)

        proxy = Proxy(upstream, now_us=lambda: clock.now_us() - start_us, record=keep)
        runner = web.AppRunner(
            proxy.application(), handler_cancellation=True, access_log=None, shutdown_timeout=_STOP_PATIENCE_S
        )
        quiet_logs()
        try:
            await runner.setup()
            await _serve(runner, listen, store, duration_s, say)
        finally:
            await runner.cleanup()
            await asyncio.to_thread(_close, store, empty=not statuses)
    found.statuses = dict(sorted(statuses.items()))
    if statuses:
        found.rows = await asyncio.to_thread(recover, output)
    return found


def _close(store: ShardStore, *, empty: bool) -> None:
    try:
        store.flush()
    except OSError as error:
        raise RamptraceError(f"{store.folder}: the last rows cannot be written ({error.strerror})") from error
    if empty:
        store.folder.rmdir()


async def _serve(
    runner: web.AppRunner, listen: Listen, store: ShardStore, duration_s: float | None, say: Callable[[str], None]
) -> None:
    site = web.TCPSite(runner, listen.host, listen.port)
    try:
        await site.start()
    except OSError as error:
        raise BadInputError(f"--listen {listen.host}:{listen.port}: {error.strerror}; choose another port") from error
    host, port = runner.addresses[0][:2]
    say(f"recording on http://{f'[{host}]' if ':' in host else host}:{port}; Ctrl-C ends it")
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    flusher = asyncio.create_task(_flush(store, say))
    try:
        await asyncio.wait_for(stopped.wait(), duration_s)
    except TimeoutError:
        pass
    finally:
        flusher.cancel()
        await asyncio.gather(flusher, return_exceptions=True)


async def _flush(store: ShardStore, say: Callable[[str], None]) -> None:
    """Write rows each second. A full disk is said once, and traffic passes on: rows wait in memory."""
    failing = False
    while True:
        await asyncio.sleep(_FLUSH_S)
        try:
            await asyncio.to_thread(store.flush)
            failing = False
        except OSError as error:
            if not failing:
                say(f"{store.folder}: rows cannot be written ({error.strerror}); they wait in memory, make room")
            failing = True


class _Contents:
    """The file of request bodies, readable by its owner only; nothing without a path."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: Any = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except OSError as error:
                raise BadInputError(f"{self._path}: cannot be made ({error.strerror}); choose another place") from error
            self._file = os.fdopen(descriptor, "wb", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def keep(self, row_id: int, body: bytes | None) -> str | None:
        """Append a body and return where it lies."""
        if self._file is None or self._path is None or body is None:
            return None
        line = msgspec.json.encode({"row_id": row_id, "body": body.decode("utf-8", "replace")})
        self._file.write(line + b"\n")
        return f"{self._path.name}#{row_id}"
