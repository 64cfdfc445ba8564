"""The proxy: passes requests to one upstream and answers back, byte for byte and as they come, and keeps a row of each.

Inference requests are recorded; everything else only passes. A row is kept when the exchange has ended, in whichever
way: 502 when the upstream could not be reached or broke off, 499 when the client went away (nginx's number for it).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from loadgen.record.meter import Asked, Collected, Meter, Usage, asked

RECORDED_PATHS: Final = ("/chat/completions", "/completions", "/responses")
BAD_GATEWAY: Final = 502
CLIENT_GONE: Final = 499

_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers about one connection (RFC 9110, 7.6.1), besides those that `Connection` names."""

_OURS: Final = frozenset({"host", "expect"})
"""Set anew towards the upstream: its own name; and 100-continue was already answered here."""

_CONNECT_S: Final = 10.0
_KEEP_ALIVE_S: Final = 2.0
"""Shorter than servers' own (uvicorn: 5 s), so that no request meets a connection that is just being closed."""
Row = dict[str, Any]


class Exchange:
    """One request under way, as it will be recorded."""

    def __init__(self, row_id: int, arrival_us: int) -> None:
        self.row_id = row_id
        self.arrival_us = arrival_us
        self.status: int | None = None
        self.sent = Collected()
        self._meter: Meter | None = None

    def answered(self, answer: aiohttp.ClientResponse) -> None:
        """Note the answer's head."""
        self.status = answer.status
        self._meter = Meter(answer.headers.get("Content-Type", ""), answer.headers.get("Content-Encoding", ""))

    def received(self, piece: bytes) -> None:
        """Note a piece of the answer, once it has been passed on."""
        if self._meter is not None:
            self._meter.feed(piece)

    def row(self, now_us: int) -> tuple[Row, bytes | None, int]:
        """Return the trace row, the request's body, if it is known whole, and the chunks of a streamed answer."""
        body = self.sent.content()
        wanted: Asked = asked(body)
        usage = self._meter.usage() if self._meter is not None and self.status != BAD_GATEWAY else Usage()
        return (
            {
                "row_id": self.row_id,
                "arrival_us": self.arrival_us,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "model": wanted.model,
                "images": wanted.images,
                "source_status": self.status,
                "source_latency_us": max(0, now_us - self.arrival_us),
            },
            body,
            0 if self._meter is None else self._meter.chunks,
        )


class _ClientGoneError(Exception):
    """Whoever asked cannot be written to any more."""


class Proxy:
    """An application for aiohttp's server. `record` gets what `Exchange.row` returns, `now_us` is time since start.

    Serve it with `handler_cancellation=True`: only then does a client that goes away end the upstream request.
    """

    def __init__(
        self, upstream: URL, *, now_us: Callable[[], int], record: Callable[[Row, bytes | None, int], None]
    ) -> None:
        self._upstream = str(upstream).rstrip("/")
        self._now_us = now_us
        self._record = record
        self._numbers = itertools.count()
        self._stopping = False
        self._session: aiohttp.ClientSession

    def application(self) -> web.Application:
        """Return the application; its client lives as long as it is served."""
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", self._handle)
        application.cleanup_ctx.append(self._client)
        application.on_shutdown.append(self._stop)
        return application

    async def _client(self, _application: web.Application) -> AsyncIterator[None]:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )
        yield
        await self._session.close()

    async def _stop(self, _application: web.Application) -> None:
        self._stopping = True

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if not request.raw_path.startswith("/"):
            # The absolute form is for proxies to anywhere; this one has one upstream.
            return web.Response(status=400, text="ramptrace record: ask for a path, as of any server\n")
        if request.method != "POST" or not request.path.endswith(RECORDED_PATHS):
            return await self._pass(request, None)
        exchange = Exchange(next(self._numbers), self._now_us())
        try:
            return await self._pass(request, exchange)
        except asyncio.CancelledError:
            # When the recording ends, how the exchange would have ended is not known.
            exchange.status = None if self._stopping else CLIENT_GONE
            raise
        finally:
            self._record(*exchange.row(self._now_us()))

    async def _pass(self, request: web.Request, exchange: Exchange | None) -> web.StreamResponse:
        response: web.StreamResponse | None = None
        try:
            async with self._session.request(
                request.method,
                URL(self._upstream + request.raw_path, encoded=True),
                headers=_end_to_end(request.headers, _OURS),
                data=_body(request, exchange) if request.can_read_body else None,
                allow_redirects=False,
            ) as answer:
                if exchange is not None:
                    exchange.answered(answer)
                response = web.StreamResponse(
                    status=answer.status, reason=answer.reason, headers=_end_to_end(answer.headers, ())
                )
                await _towards_client(response.prepare(request))
                async for piece in answer.content.iter_any():
                    await _towards_client(response.write(piece))
                    if exchange is not None:
                        exchange.received(piece)
                await _towards_client(response.write_eof())
        except _ClientGoneError:
            _ended(exchange, CLIENT_GONE)
        except (aiohttp.ClientError, OSError) as error:
            _ended(exchange, BAD_GATEWAY)
            if response is None:
                return _unreachable(error)
            # The head is out: only a connection that breaks off tells the client that the answer did, too.
            if request.transport is not None:
                request.transport.abort()
        assert response is not None
        return response


async def _towards_client(sending: Awaitable[Any]) -> None:
    try:
        await sending
    except ConnectionError as error:
        raise _ClientGoneError from error


def _end_to_end(headers: CIMultiDictProxy[str], besides: Iterable[str]) -> CIMultiDict[str]:
    named = {name.strip().lower() for value in headers.getall("Connection", []) for name in value.split(",")}
    left_out = _HOP_BY_HOP | named | set(besides)
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in left_out)


async def _body(request: web.Request, exchange: Exchange | None) -> AsyncIterator[bytes]:
    async for piece in request.content.iter_any():
        if exchange is not None:
            exchange.sent.feed(piece)
        yield piece


def _ended(exchange: Exchange | None, status: int) -> None:
    if exchange is not None:
        exchange.status = status


def _unreachable(error: BaseException) -> web.Response:
    message = f"ramptrace record: the upstream did not answer ({type(error).__name__})"
    body = json.dumps({"error": {"type": "upstream_unreachable", "message": message}})
    return web.Response(status=BAD_GATEWAY, text=body, content_type="application/json")


def quiet_logs() -> None:
    """Keep aiohttp's own log still: it names paths, and says of each aborted connection that it was one."""
    for name in ("aiohttp.access", "aiohttp.server", "aiohttp.web"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
