"""The platform's operations in virtual time: the collector's own sources ask the model, with nothing in between.

A call is sent when its poll begins (or when the call before it was answered), sees the platform half a `CALL_US` later
and is received another half later, as over a network. Chance decides which calls are throttled.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from email.utils import format_datetime
from typing import Any, Protocol, TypeVar

from loadgen.collect.aws import PROMQL, Api, kind_of, retry_after_s
from loadgen.collect.base import Answer, SourceError
from loadgen.collect.offsets import Offsets
from loadgen.collect.pacing import CALLS_PER_S, Limiter
from loadgen.collect.redaction import said
from loadgen.emulator import api_cloudwatch, api_events, api_logs, api_sagemaker, api_scaling, promql
from loadgen.emulator.api import ApiError, Handler
from loadgen.emulator.config import to_us
from loadgen.emulator.faults import Injector
from loadgen.emulator.model import EndpointModel
from traces.clock import EndpointClock, to_datetime
from traces.units import US_PER_S

CALL_US = 40_000

T = TypeVar("T")

_OPERATIONS: dict[str, Mapping[str, Handler]] = {
    "sagemaker": api_sagemaker.OPERATIONS,
    "application-autoscaling": api_scaling.OPERATIONS,
    "cloudwatch": api_cloudwatch.OPERATIONS,
    "logs": api_logs.OPERATIONS,
    "sqs": api_events.SQS_OPERATIONS,
    "cloudtrail": api_events.CLOUDTRAIL_OPERATIONS,
    "ecr": api_events.ECR_OPERATIONS,
}


class Advancing(Protocol):
    """Something that lets the model's time pass up to an instant, unless it is there already."""

    def __call__(self, to_us: int) -> None:
        """Advance."""
        ...


class VirtualPlatform:
    """Every service of one model; `begin` sets the instant at which the next call is sent."""

    def __init__(self, model: EndpointModel, advance: Advancing, seed: int) -> None:
        self.model = model
        self.advance = advance
        self.offsets = Offsets(EndpointClock())
        self.limiter = Limiter(CALLS_PER_S, sleep=self._sleep, now=lambda: self._now_us / US_PER_S)
        self._injector = Injector(model.config.faults, seed, model.now_us)
        self._skew_us = to_us(model.config.faults.clock_skew_s)
        self._now_us = model.now_us

    @property
    def now_us(self) -> int:
        """The client's present, by its own clock."""
        return self._now_us - self._skew_us

    @property
    def instant_us(self) -> int:
        """The present by the platform's clock."""
        return self._now_us

    def begin(self, at_us: int) -> None:
        """Set the present; what another source's calls took meanwhile does not delay this one's."""
        self._now_us = at_us

    def api(self, service: str) -> VirtualApi:
        """Return a service's client."""
        return VirtualApi(self, service)

    def answer(self, service: str, operation: str, parameters: Mapping[str, Any]) -> Answer:
        """Return the answer to one call; raises `SourceError`."""
        camel = "".join(word.capitalize() for word in operation.split("_"))

        def handle() -> dict[str, Any]:
            return _OPERATIONS[service][camel](self.model, parameters)

        try:
            return self._call(service, handle)
        except ApiError as error:
            raise _typed(error, f"{service} {operation}") from error

    def query(self, path: str, parameters: Mapping[str, str]) -> Answer:
        """Return the answer of the PromQL interface to one GET; raises `SourceError`."""
        samples = self.model.fleet.operation_samples

        def handle() -> dict[str, Any]:
            if path.endswith("/values"):
                return {"data": promql.names(samples, self.model.now_us)}
            at_us = round(float(parameters["time"]) * US_PER_S)
            return {"data": promql.evaluate(promql.parse_query(parameters["query"]), samples, at_us, self.model.now_us)}

        try:
            return self._call(PROMQL, handle)
        except ApiError as error:
            raise _typed(error, f"promql {path}") from error

    async def _sleep(self, seconds: float) -> None:
        self._now_us += round(seconds * US_PER_S)

    def _call(self, service: str, handle: Callable[[], dict[str, Any]]) -> Answer:
        sent_us = self._now_us
        trouble = self._injector.trouble(service, sent_us)
        self.advance(sent_us + CALL_US // 2)
        # Another source's call may have brought the model further already.
        asked_us = max(self.model.now_us, sent_us + CALL_US // 2)
        received_us = self._now_us = asked_us + CALL_US // 2 + trouble.wait_us
        if trouble.error is not None:
            raise trouble.error
        answer = Answer(handle(), sent_us - self._skew_us, received_us - self._skew_us)
        self.offsets.read(
            service, format_datetime(to_datetime(asked_us), usegmt=True), answer.sent_us, answer.received_us
        )
        return answer


class VirtualApi(Api):
    """One service's client, as the sources use it."""

    def __init__(self, platform: VirtualPlatform, service: str) -> None:
        self.service = service
        self._platform = platform

    async def call(self, operation: str, **parameters: Any) -> Answer:
        """Return the answer to one call; raises `SourceError`."""
        api = f"{self.service}.{operation}"
        return await self._platform.limiter.calling(api, lambda: self._answer(operation, parameters))

    async def _answer(self, operation: str, parameters: Mapping[str, Any]) -> Answer:
        return self._platform.answer(self.service, operation, parameters)


class VirtualProm:
    """The PromQL client, as its source uses it."""

    def __init__(self, platform: VirtualPlatform) -> None:
        self._platform = platform

    async def get(self, path: str, **parameters: str) -> Answer:
        """Return the `data` of an answer under the key `data`; raises `SourceError`."""
        return await self._platform.limiter.calling(f"{PROMQL}.{path}", lambda: self._answer(path, parameters))

    async def _answer(self, path: str, parameters: Mapping[str, str]) -> Answer:
        return self._platform.query(path, parameters)


def _typed(error: ApiError, call: str) -> SourceError:
    kind = kind_of(error.code, error.status)
    found = kind(f"{call}: " + said(f"An error occurred ({error.code}): {error}"))
    found.retry_s = retry_after_s(kind, error.status, None)
    return found


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("a source waited for something in virtual time")
