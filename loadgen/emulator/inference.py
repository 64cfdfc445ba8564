"""The serving surface over HTTP: OpenAI chat completions, and SageMaker's two invocation operations."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
from aiohttp import web

from loadgen.emulator.chat import BadRequestError, ChatAnswer, ChatRequest, parse_chat_request
from loadgen.emulator.driver import Driver, Exchange
from loadgen.emulator.eventstream import payload_parts, stream_exception
from loadgen.emulator.platform import Gatekeeper
from loadgen.emulator.signature import SignatureError
from loadgen.emulator.startup import Timeline

UNIT_HEADER = "x-ramptrace-unit"


class Inference:
    """Handlers of requests for tokens. Which streams break half-way, if any do, is drawn from the seed."""

    def __init__(self, driver: Driver, gatekeeper: Gatekeeper, seed: int) -> None:
        self._driver = driver
        self._gatekeeper = gatekeeper
        self._config = driver.model.config
        self._random = random.Random(f"{seed}:broken-streams")

    async def chat_completions(self, request: web.Request) -> web.StreamResponse:
        """Answer `POST /v1/chat/completions`."""
        try:
            wanted = parse_chat_request(await request.read())
        except BadRequestError as error:
            return _openai_error(400, str(error), "invalid_request_error")
        exchange = self._driver.submit(wanted.input_tokens, wanted.output_tokens)
        try:
            unit_id = await exchange.admitted
            if unit_id is None:
                return _openai_error(503, "no capacity: the request waited too long in the queue", "overloaded_error")
            answer = self._answer(wanted, exchange)
            headers = {UNIT_HEADER: unit_id}
            if not wanted.stream:
                await self._wait(exchange)
                return web.Response(body=answer.body(), content_type="application/json", headers=headers)
            response = web.StreamResponse(headers={**headers, "Cache-Control": "no-cache"})
            response.content_type = "text/event-stream"
            response.charset = "utf-8"
            await self._stream(request, response, exchange, answer=answer, encode=bytes, failure=answer.broken("500"))
            return response
        finally:
            self._driver.cancel(exchange)

    async def invoke(self, request: web.Request) -> web.StreamResponse:
        """Answer SageMaker's InvokeEndpoint."""
        return await self._invoke(request, streaming=False)

    async def invoke_with_response_stream(self, request: web.Request) -> web.StreamResponse:
        """Answer SageMaker's InvokeEndpointWithResponseStream."""
        return await self._invoke(request, streaming=True)

    async def models(self, _request: web.Request) -> web.Response:
        """Answer `GET /v1/models`."""
        card = {"id": self._config.model_name, "object": "model", "created": 0, "owned_by": "ramptrace-emulator"}
        return web.json_response({"object": "list", "data": [card]})

    async def unit_health(self, request: web.Request) -> web.Response:
        """Answer as one unit's own server does: not at all before its engine is ready."""
        start = self._start(request.match_info["unit"])
        if start.ready_us > self._driver.now_us():
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        return web.Response(text="")

    async def unit_metrics(self, request: web.Request) -> web.Response:
        """Answer with the counter of one unit's answers, as vLLM exposes it."""
        name = request.match_info["unit"]
        start = self._start(name)
        if start.ready_us > self._driver.now_us():
            return web.Response(status=503)
        served = any(row.unit_id == name and row.anchor == "first_served" for row in self._driver.sync().truth())
        label = f'model_name="{self._config.model_name}",finished_reason="stop"'
        return web.Response(text=f"vllm:request_success_total{{{label}}} {float(served)}\n")

    def _start(self, unit: str) -> Timeline:
        for instance in self._driver.sync().fleet.instances:
            if instance.unit_id == unit:
                return instance.timeline
        raise web.HTTPNotFound

    async def _invoke(self, request: web.Request, *, streaming: bool) -> web.StreamResponse:
        try:
            await self._gatekeeper.check(request, "sagemaker")
        except SignatureError as error:
            return _runtime_error(403, error.code, str(error))
        name = request.match_info["name"]
        if name != self._config.endpoint_name:
            return _runtime_error(400, "ValidationError", f"Endpoint {name} of account 123456789012 not found.")
        try:
            wanted = parse_chat_request(await request.read())
        except BadRequestError as error:
            message = f"Received client error (400) from primary with message {error}"
            return _runtime_error(424, "ModelError", message, original_status=400)
        exchange = self._driver.submit(wanted.input_tokens, wanted.output_tokens)
        try:
            unit_id = await exchange.admitted
            if exchange.refused:
                return _runtime_error(400, "ValidationError", _NO_CAPACITY)
            if unit_id is None:
                message = "Your invocation timed out while waiting for a response from container primary."
                return _runtime_error(424, "ModelError", message, original_status=0)
            answer = self._answer(wanted, exchange)
            headers = {
                "x-Amzn-Invoked-Production-Variant": self._config.variant,
                "X-Amzn-SageMaker-Custom-Attributes": f"unit_id={unit_id}",
            }
            if not streaming:
                await self._wait(exchange)
                return web.Response(body=answer.body(), content_type="application/json", headers=headers)
            headers["X-Amzn-SageMaker-Content-Type"] = "text/event-stream"
            response = web.StreamResponse(headers=headers)
            response.content_type = "application/vnd.amazon.eventstream"
            await self._stream(
                request, response, exchange, answer=answer, encode=payload_parts, failure=self._exception()
            )
            return response
        finally:
            self._driver.cancel(exchange)

    def _exception(self) -> bytes:
        body = {"Message": "The model container closed the stream.", "ErrorCode": "ModelInvocationTimeExceeded"}
        return stream_exception("ModelStreamError", msgspec.json.encode(body))

    def _answer(self, wanted: ChatRequest, exchange: Exchange) -> ChatAnswer:
        created_s = self._driver.now_us() // 1_000_000
        return ChatAnswer(wanted, exchange.request_id, created_s, wanted.model or self._config.model_name)

    async def _wait(self, exchange: Exchange) -> None:
        self._driver.stream(exchange, lambda _first, _end: None)
        await exchange.finished

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        exchange: Exchange,
        *,
        answer: ChatAnswer,
        encode: Callable[[bytes], bytes],
        failure: bytes,
    ) -> None:
        """Send the head, the role, each token as it comes, and the end.

        Chunks go straight to the transport: aiohttp's own `write` is a coroutine, and waking a task for every write of
        every stream costs several times as much as the write.
        """
        breaks = self._config.faults.broken_stream_share > self._random.random()
        break_at = max(1, exchange.output_tokens // 2) if breaks else exchange.output_tokens + 1
        response.enable_chunked_encoding()
        await response.prepare(request)
        transport = request.transport
        if transport is None:
            return

        def sink(first: int, end: int) -> None:
            if transport.is_closing() or first >= break_at:
                return
            transport.write(_chunk(encode(answer.tokens(first, min(end, break_at)))))
            if end >= break_at:
                transport.write(_chunk(failure))
                exchange.finished.set_result(None)

        transport.write(_chunk(encode(answer.opening())))
        self._driver.stream(exchange, sink)
        await exchange.finished
        if not breaks:
            transport.write(_chunk(encode(answer.closing())))
        await response.write_eof()


_NO_CAPACITY = "Inference Component has no capacity to process this request. ApplicationAutoScaling may be in progress."


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _openai_error(status: int, message: str, kind: str) -> web.Response:
    body = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    headers = {"Retry-After": "1"} if status == 503 else None
    return web.json_response(body, status=status, headers=headers)


def _runtime_error(status: int, kind: str, message: str, original_status: int | None = None) -> web.Response:
    body: dict[str, str | int] = {"Message": message}
    if original_status is not None:
        body |= {
            "OriginalMessage": message,
            "OriginalStatusCode": original_status,
            "ErrorCode": "CLIENT_ERROR_FROM_MODEL",
        }
    return web.json_response(body, status=status, headers={"x-amzn-errortype": kind})
