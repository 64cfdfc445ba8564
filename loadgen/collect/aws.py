"""AWS clients: one call at a time through a limiter, its instants kept, its failures typed, its Date header read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    TokenRetrievalError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)
from botocore.parsers import ResponseParserError

from loadgen.collect.base import (
    Answer,
    DeniedError,
    ExpiredError,
    MalformedError,
    SourceError,
    SourceUnreachableError,
    ThrottledError,
)
from loadgen.collect.offsets import Offsets
from loadgen.collect.pacing import CALLS_PER_S, Limiter
from loadgen.collect.redaction import redact, said
from traces.clock import ClientClock, EndpointClock
from traces.errors import BadInputError

PROMQL = "monitoring"
"""The service of the signed PromQL interface, which botocore does not know."""

_THROTTLED = {
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequests",
    "TooManyRequestsException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "BandwidthLimitExceeded",
}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
_DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "NotAuthorized",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "OptInRequired",
}
_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 10
_PAGES_AT_MOST = 200


class Permission(NamedTuple):
    """One operation that a source calls; no other is ever called, and the printed policy is made from these.

    `service` and `operation` are botocore's words. `resources` are ARN patterns: `{region}`, `{account}` and the names
    that the platform fills in. `purpose` says what is not seen without it.
    """

    service: str
    operation: str
    actions: tuple[str, ...]
    purpose: str
    resources: tuple[str, ...] = ("*",)
    optional: bool = False


class Api:
    """One service's client, once it is opened; it calls the `permitted` operations only."""

    def __init__(self, service: str, clock: ClientClock, limiter: Limiter, offsets: Offsets) -> None:
        self.client: Any = None
        self.permitted: set[str] = set()
        self.outcomes: dict[str, SourceError | None] = {}
        """How the newest call of each operation ended."""
        self.service = service
        self.clock = clock
        self.limiter = limiter
        self.offsets = offsets

    async def call(self, operation: str, **parameters: Any) -> Answer:
        """Return the answer to one call; raises `SourceError`."""
        if operation not in self.permitted:
            raise RuntimeError(f"{self.service} {operation} is in no source's table of permissions")
        try:
            answer = await self.limiter.calling(
                f"{self.service}.{operation}", lambda: self._once(operation, parameters)
            )
        except SourceError as error:
            self.outcomes[operation] = error
            raise
        self.outcomes[operation] = None
        return answer

    async def _once(self, operation: str, parameters: Mapping[str, Any]) -> Answer:
        sent_us = self.clock.now_us()
        try:
            data = await getattr(self.client, operation)(**parameters)
        except (BotoCoreError, ClientError, ResponseParserError) as error:
            raise typed(error, f"{self.service} {operation}") from error
        received_us = self.clock.now_us()
        headers = data.pop("ResponseMetadata", {}).get("HTTPHeaders", {})
        self.offsets.read(self.service, headers.get("date"), sent_us, received_us)
        return Answer(data, sent_us, received_us)

    async def pages(
        self, operation: str, following: str = "NextToken", asked: str | None = None, **parameters: Any
    ) -> AsyncIterator[Answer]:
        """Yield the answers of a call that comes in pages; empty pages with a token are followed too.

        `following` names the next page's token in an answer, `asked` the same in a call where that differs.
        """
        asked = asked or following
        for _ in range(_PAGES_AT_MOST):
            answer = await self.call(operation, **parameters)
            yield answer
            position = answer.data.get(following)
            if not position or position == parameters.get(asked):
                return
            parameters[asked] = position
        raise MalformedError(f"{self.service} {operation}: more than {_PAGES_AT_MOST} pages; the rest was left out")


def typed(error: Exception, call: str) -> SourceError:
    """Return the typed error for what botocore raised; the message is fit for a row and for the terminal."""
    kind: type[SourceError] = MalformedError
    text = redact(str(error))
    retry_s = None
    if isinstance(error, ClientError):
        text = said(error)
        code = str(error.response.get("Error", {}).get("Code", ""))
        metadata = error.response.get("ResponseMetadata", {})
        status = metadata.get("HTTPStatusCode", 0)
        kind = kind_of(code, status)
        retry_s = retry_after_s(kind, status, metadata.get("HTTPHeaders", {}).get("retry-after"))
    elif isinstance(error, (NoCredentialsError, CredentialRetrievalError, TokenRetrievalError)):
        kind = ExpiredError
    elif isinstance(error, (HTTPClientError, BotoConnectionError)):
        kind = SourceUnreachableError
    elif isinstance(error, ResponseParserError):
        # It repeats the answer.
        text = said(error)
    found = kind(f"{call}: {text}")
    found.retry_s = retry_s
    return found


def retry_after_s(kind: type[SourceError], status: int, header: str | None) -> float | None:
    """Return how long to wait before a failed call is worth another try: what the service asks for, or no time.

    >>> retry_after_s(ThrottledError, 429, "2"), retry_after_s(DeniedError, 403, None)
    (2.0, None)
    """
    if kind is not ThrottledError and status < 500:
        return None
    text = (header or "").strip()
    return float(text) if text.isdecimal() else 0.0


def kind_of(code: str, status: int) -> type[SourceError]:
    """Return the kind of error that a service's code and status state."""
    code = code.rpartition("#")[2]
    if code in _THROTTLED or status == 429:
        return ThrottledError
    if code in _EXPIRED:
        return ExpiredError
    if code in _DENIED or status in {401, 403}:
        return DeniedError
    return SourceUnreachableError if status >= 500 else MalformedError


class Aws:
    """The session and its clients, which `open` opens and the end of `async with` closes.

    `endpoint_url` replaces every service's own address.
    """

    def __init__(
        self,
        clock: ClientClock,
        endpoint_clock: EndpointClock,
        *,
        region: str | None,
        endpoint_url: str | None = None,
        verify_tls: bool = True,
        session: Callable[[], AioSession] = get_session,
    ) -> None:
        self.session = session()
        self.verify_tls = verify_tls
        self.offsets = Offsets(endpoint_clock)
        self.limiter = Limiter(CALLS_PER_S, endpoint_clock.time_scale)
        self.region = region or self.session.get_config_variable("region")
        self._clock = clock
        self._endpoint_url = endpoint_url
        self._stack = AsyncExitStack()
        self._apis: dict[str, Api] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def open(self, permissions: Iterable[Permission]) -> None:
        """Open the services of these operations, and permit them. Raises `BadInputError` without region or keys."""
        if not self.region:
            raise BadInputError("no AWS region is set; give --region, set AWS_REGION, or add region to [collect]")
        if await self.credentials() is None:
            raise BadInputError(
                "no AWS credentials were found; set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "or run `aws configure`"
            )
        for permission in permissions:
            api = self.api(permission.service)
            api.permitted.add(permission.operation)
            if api.client is None and permission.service != PROMQL:
                api.client = await self._client(permission.service)

    def api(self, service: str) -> Api:
        """Return a service's client, which can be called once `open` has opened it."""
        if service not in self._apis:
            self._apis[service] = Api(service, self._clock, self.limiter, self.offsets)
        return self._apis[service]

    async def _client(self, service: str) -> Any:
        manager = self.session.create_client(
            service,
            region_name=self.region,
            endpoint_url=self._endpoint_url,
            verify=self.verify_tls,
            config=self._config(),
        )
        client = await self._stack.enter_async_context(manager)
        client.meta.events.register("before-parse", _refuse_what_is_not_json)
        return client

    @property
    def monitoring_url(self) -> str:
        """The address of CloudWatch's monitoring host, where the signed PromQL interface lives too."""
        return str(self.api("cloudwatch").client.meta.endpoint_url)

    async def credentials(self) -> Any:
        """Return the session's credentials from the standard chain, or `None`."""
        try:
            return await self.session.get_credentials()
        except BotoCoreError as error:
            raise BadInputError(f"the AWS credentials cannot be read: {redact(str(error))}") from error

    def _config(self) -> AioConfig:
        return AioConfig(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            max_pool_connections=16,
            # Our own: they know the endpoint's clock, and tell the source's pace of every throttling.
            retries={"mode": "standard", "total_max_attempts": 1},
            user_agent_extra="ramptrace",
            # A proxy of the environment cannot reach our own machine.
            proxies={} if is_loopback(self._endpoint_url) else None,
        )


def _refuse_what_is_not_json(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """Raise for a good status whose body is no JSON object: botocore would take it for an answer without content."""
    if operation_model.service_model.resolved_protocol != "json" or response_dict["status_code"] >= 300:
        return
    try:
        document = msgspec.json.decode(response_dict["body"])
    except msgspec.MsgspecError:
        document = None
    if not isinstance(document, dict):
        raise MalformedError(f"{operation_model.name}: the answer is no JSON object")


def is_loopback(url: str | None) -> bool:
    """Tell whether a URL names this machine.

    >>> is_loopback("http://127.0.0.1:8080"), is_loopback("https://monitoring.us-east-1.amazonaws.com")
    (True, False)
    """
    host = urlsplit(url or "").hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")
