"""The platform's front door: which service and protocol a request speaks, its signature, its answer or its error."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec
from aiohttp import web

from loadgen.emulator import (
    api_cloudwatch,
    api_ec2,
    api_ecs,
    api_events,
    api_logs,
    api_sagemaker,
    api_scaling,
    promql,
)
from loadgen.emulator.api import ApiError, Handler
from loadgen.emulator.driver import Driver
from loadgen.emulator.faults import Injector
from loadgen.emulator.signature import Received, SignatureError, verify
from loadgen.emulator.wire import (
    QUERY_VERSIONS,
    Protocol,
    WireError,
    content_type,
    parse_request,
    render_error,
    render_response,
    service_model,
)
from traces.errors import BadInputError
from traces.units import US_PER_S

_OPERATIONS: dict[str, dict[str, Handler]] = {
    "sagemaker": api_sagemaker.OPERATIONS,
    "application-autoscaling": api_scaling.OPERATIONS,
    "cloudwatch": api_cloudwatch.OPERATIONS,
    "logs": api_logs.OPERATIONS,
    "ecs": api_ecs.OPERATIONS,
    "elbv2": api_ecs.BALANCER_OPERATIONS,
    "autoscaling": api_ec2.OPERATIONS,
    "ec2": api_ec2.INSTANCE_OPERATIONS,
    "sqs": api_events.SQS_OPERATIONS,
    "sts": api_events.STS_OPERATIONS,
    "cloudtrail": api_events.CLOUDTRAIL_OPERATIONS,
    "ecr": api_events.ECR_OPERATIONS,
}
_SERVED: dict[str, frozenset[str]] = {
    "sagemaker": frozenset(_OPERATIONS) - {"ecs", "elbv2", "autoscaling", "ec2"},
    "ecs": frozenset({"ecs", "elbv2", "application-autoscaling", "cloudwatch", "logs", "sts"}),
    "ec2": frozenset({"autoscaling", "ec2", "elbv2", "cloudwatch", "sts"}),
    "kubernetes": frozenset(),
}
"""Which services there are on each platform."""


def operations(platform: str) -> dict[str, dict[str, Handler]]:
    """Return the operations of each service that there is on a platform."""
    return {service: _OPERATIONS[service] for service in _SERVED[platform]}


_QUERY_CODES = {
    "ThrottlingException": "Throttling",
    "ValidationException": "ValidationError",
    "UnknownOperationException": "InvalidAction",
    "InvalidSignatureException": "SignatureDoesNotMatch",
    "UnrecognizedClientException": "InvalidClientTokenId",
    "MissingAuthenticationTokenException": "MissingAuthenticationToken",
    "IncompleteSignatureException": "IncompleteSignature",
}
"""What CloudWatch calls, since it once spoke XML only, the errors that other services name otherwise."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an operation, as far as its request tells before the body is read by its shape."""

    service: str
    operation: str
    protocol: Protocol


class Gatekeeper:
    """Checks signatures against one pair of credentials; without a pair everything may pass."""

    def __init__(self, credentials: tuple[str, str] | None) -> None:
        self._credentials = credentials

    async def check(self, request: web.Request, *services: str) -> None:
        """Raise SignatureError unless the request is signed for one of the services, by the client's clock."""
        if self._credentials is None:
            return
        received = Received(
            method=request.method, target=request.raw_path, headers=request.headers, body=await request.read()
        )
        verify(received, *self._credentials, frozenset(services), time.time_ns() // 1000)


class Platform:
    """Handlers of the control planes and of PromQL."""

    def __init__(self, driver: Driver, gatekeeper: Gatekeeper, seed: int) -> None:
        self._driver = driver
        self._gatekeeper = gatekeeper
        self._served = _SERVED[driver.model.config.platform]
        self._injector = Injector(driver.model.config.faults, seed, driver.model.now_us)

    async def call(self, request: web.Request) -> web.Response:
        """Answer a call at `/`: JSON when a target header names the operation, query otherwise."""
        target = request.headers.get("X-Amz-Target")
        if target is not None:
            prefix, _, operation = target.rpartition(".")
            service = next((s for s in self._served if service_model(s).metadata.get("targetPrefix") == prefix), None)
            if service is None:
                return _json_error(400, "UnknownOperationException", f"Unknown service in target {target}.")
            return await self._answer(request, Call(service=service, operation=operation, protocol="json"))
        form = parse_qs((await request.read()).decode(errors="replace"))
        service = QUERY_VERSIONS.get(form.get("Version", [""])[0])
        if service not in self._served:
            return _json_error(400, "UnknownOperationException", "Neither a target header nor a known query version.")
        operation = form.get("Action", [""])[0]
        protocol: Protocol = "ec2" if service == "ec2" else "query"
        return await self._answer(request, Call(service=service, operation=operation, protocol=protocol))

    async def call_cbor(self, request: web.Request) -> web.Response:
        """Answer a call at `/service/.../operation/...`."""
        operation = request.match_info["operation"]
        return await self._answer(request, Call(service="cloudwatch", operation=operation, protocol="cbor"))

    async def query(self, request: web.Request) -> web.Response:
        """Answer PromQL's instant query."""
        refusal = await self._refuse_promql(request)
        if refusal is not None:
            return refusal
        parameters: Mapping[str, Any] = await request.post() if request.method == "POST" else {}
        parameters = {**request.query, **parameters}
        model = self._driver.sync()
        try:
            selector = promql.parse_query(str(parameters.get("query", "")))
            stated = parameters.get("time")
            at_us = model.now_us if stated is None else round(float(stated) * US_PER_S)
        except (promql.QueryError, BadInputError, ValueError) as error:
            return _promql_error(400, "bad_data", str(error))
        data = promql.evaluate(selector, model.fleet.operation_samples, at_us, model.now_us)
        return web.json_response({"status": "success", "data": data})

    async def metric_names(self, request: web.Request) -> web.Response:
        """Answer PromQL's list of metric names."""
        refusal = await self._refuse_promql(request)
        if refusal is not None:
            return refusal
        model = self._driver.sync()
        return web.json_response(
            {"status": "success", "data": promql.names(model.fleet.operation_samples, model.now_us)}
        )

    async def _answer(self, request: web.Request, call: Call) -> web.Response:
        request_id = str(uuid.uuid4())
        try:
            service = service_model(call.service)
            await self._gatekeeper.check(request, service.signing_name)
            await self._suffer(call.service, call.operation)
            handler = _OPERATIONS[call.service].get(call.operation)
            if handler is None:
                raise ApiError("UnknownOperationException", f"The emulator does not know {call.operation}.")
            operation = service.operation_model(call.operation)
            members = parse_request(call.protocol, operation, await request.read())
            answer = handler(self._driver.sync(), members)
        except SignatureError as error:
            return _error(call, error.code, str(error), 403, request_id)
        except WireError as error:
            return _error(call, "ValidationException", str(error), 400, request_id)
        except ApiError as error:
            return _error(call, error.code, str(error), error.status, request_id)
        body = render_response(call.protocol, operation, answer, request_id)
        return web.Response(body=body, headers=_headers(call, request_id))

    async def _suffer(self, service: str, operation: str = "") -> None:
        """Wait or fail as the faults will have it."""
        wait_us, error = self._injector.trouble(service, self._driver.now_us(), operation)
        if wait_us:
            await asyncio.sleep(wait_us / US_PER_S / self._driver.clock.time_scale)
        if error is not None:
            raise error

    async def _refuse_promql(self, request: web.Request) -> web.Response | None:
        try:
            await self._gatekeeper.check(request, "monitoring")
            await self._suffer("monitoring")
        except SignatureError as error:
            return _promql_error(403, "access_denied", str(error))
        except ApiError as error:
            status = 429 if error.code == "ThrottlingException" else error.status
            return _promql_error(status, error.code, str(error))
        return None


def _error(call: Call, code: str, message: str, status: int, request_id: str) -> web.Response:
    headers = _headers(call, request_id)
    stated = code
    if call.service in QUERY_VERSIONS.values():
        stated = _QUERY_CODES.get(code, code)
        headers["x-amzn-query-error"] = f"{stated};Sender"
    body = render_error(call.protocol, stated if call.protocol in {"query", "ec2"} else code, message, request_id)
    return web.Response(body=body, status=status, headers=headers)


def _headers(call: Call, request_id: str) -> dict[str, str]:
    version = service_model(call.service).metadata.get("jsonVersion", "1.1")
    headers = {"Content-Type": content_type(call.protocol, version), "x-amzn-RequestId": request_id}
    if call.protocol == "cbor":
        headers["smithy-protocol"] = "rpc-v2-cbor"
    return headers


def _json_error(status: int, code: str, message: str) -> web.Response:
    body = json.dumps({"__type": code, "message": message})
    return web.Response(text=body, status=status, content_type="application/x-amz-json-1.1")


def _promql_error(status: int, kind: str, message: str) -> web.Response:
    return web.json_response({"status": "error", "errorType": kind, "error": message}, status=status)
