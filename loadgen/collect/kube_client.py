"""The Kubernetes API: lists and watches as plain JSON, its failures typed.

Addresses and credentials come from kubernetes_asyncio, which reads kubeconfig (certificates, tokens, exec plug-ins) and
in-cluster service accounts.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, Self

import aiohttp
import msgspec

from loadgen.collect.base import (
    Answer,
    DeniedError,
    ExpiredError,
    MalformedError,
    MissingError,
    SourceError,
    SourceUnreachableError,
    ThrottledError,
)
from loadgen.collect.offsets import Offsets
from loadgen.collect.redaction import redact, said
from traces.clock import ClientClock
from traces.errors import BadInputError

SERVICE: Final = "kubernetes"
_CONNECT_S: Final = 10.0
_READ_S: Final = 30.0
_PAGE: Final = 500
_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_PAGES_AT_MOST: Final = 200
_LONGEST_LINE: Final = 8 * 1024 * 1024


class GoneError(SourceUnreachableError):
    """The history from the version asked for on is no longer kept (410): what lies between is read as a state only."""


class ClusterApi(Protocol):
    """The two ways to read a cluster; `path` is an API path, `query` its parameters."""

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        """Return one JSON object. Raises `SourceError`."""
        ...

    async def text(self, path: str, query: Mapping[str, str]) -> tuple[str, int, int]:
        """Return a text document, and when it was asked for and received (client µs). Raises `SourceError`."""
        ...

    def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Answer]:
        """Yield each event of a watch as it comes; ends when the server ends it. Raises `SourceError`."""
        ...


async def whole_list(api: ClusterApi, path: str, query: Mapping[str, str]) -> Answer:
    """Return a list with all its pages in `items`: sent with the first, received with the last."""
    answer = await api.get(path, {**query, "limit": str(_PAGE)})
    sent_us, items = answer.sent_us, list(answer.data.get("items") or ())
    for _ in range(_PAGES_AT_MOST):
        following = (answer.data.get("metadata") or {}).get("continue")
        if not following:
            break
        answer = await api.get(path, {**query, "limit": str(_PAGE), "continue": following})
        items += answer.data.get("items") or ()
    return Answer({**answer.data, "items": items}, sent_us, answer.received_us)


class Cluster:
    """A cluster's API server, open between `async with`."""

    def __init__(
        self, clock: ClientClock, offsets: Offsets, *, url: str | None, kubeconfig: str | None, context: str | None
    ) -> None:
        self._clock = clock
        self._offsets = offsets
        self._url, self._kubeconfig, self._context = url, kubeconfig, context
        self._client: Any = None
        self._refused = False
        """Whether the credentials were refused since they were last read."""

    async def __aenter__(self) -> Self:
        try:
            from kubernetes_asyncio import client, config
        except ImportError as error:
            raise BadInputError(
                "reading a Kubernetes cluster needs another package; install ramptrace with its extra k8s: "
                "pipx install 'ramptrace[k8s]'"
            ) from error
        settings = client.Configuration()
        if self._url is not None:
            settings.host = self._url.rstrip("/")
        else:
            try:
                await self._set_up(settings)
            except (config.ConfigException, OSError) as error:
                raise BadInputError(
                    f"no Kubernetes cluster is set up ({redact(str(error))}); set KUBECONFIG, or kubeconfig and "
                    "context in [collect.kubernetes], or run inside the cluster"
                ) from error
        self._client = client.ApiClient(settings)
        self._client.user_agent = "ramptrace"
        return self

    async def _set_up(self, settings: Any) -> None:
        """Read the cluster's address and the credentials: of kubeconfig where there is one, else of this pod."""
        from kubernetes_asyncio import config

        if self._kubeconfig is None and self._context is None and not _has_kubeconfig():
            config.load_incluster_config(client_configuration=settings)
            return
        loader = await config.load_kube_config(
            config_file=self._kubeconfig, context=self._context, client_configuration=settings
        )

        one_at_a_time = asyncio.Lock()

        async def renew(configuration: Any) -> None:
            # Tokens of exec plug-ins live for minutes (EKS: 15); one that states no end is renewed once it is refused.
            async with one_at_a_time:
                try:
                    if self._refused:
                        self._refused = False
                        await loader.load_and_set(configuration)
                    elif hasattr(loader, "exec_plugin_expiry") and await loader.load_from_exec_plugin():
                        configuration.api_key["BearerToken"] = loader.token
                except Exception as error:  # whatever a plug-in does
                    told = redact(str(error))
                    raise ExpiredError(f"kubernetes: the credentials cannot be renewed: {told}") from error

        settings.refresh_api_key_hook = renew

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    @property
    def host(self) -> str:
        """The API server's address."""
        return str(self._client.configuration.host)

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        """Return one JSON object."""
        body, sent_us, received_us = await self._whole(path, query or {})
        return Answer(_object(body, path), sent_us, received_us)

    async def who(self) -> str:
        """Return the name that the cluster knows the caller by; every caller may ask for its own."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        async with self._response(_REVIEWS, {}, read_s=_READ_S, posted=review) as (response, _):
            answer = _object(await response.read(), _REVIEWS)
        return str(((answer.get("status") or {}).get("userInfo") or {}).get("username"))

    async def text(self, path: str, query: Mapping[str, str]) -> tuple[str, int, int]:
        """Return a text document and its instants."""
        body, sent_us, received_us = await self._whole(path, query)
        return body.decode(errors="replace"), sent_us, received_us

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Answer]:
        """Yield each event of a watch; a line that is no JSON object ends it with an error."""
        async with self._response(path, query, read_s=None) as (response, sent_us):
            rest = b""
            try:
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    received_us = self._clock.now_us()
                    for line in lines:
                        if line.strip():
                            yield Answer(_object(line, path), sent_us, received_us)
                    if len(rest) > _LONGEST_LINE:
                        raise MalformedError(f"{called(path)}: an event of a watch has no end")
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise SourceUnreachableError(redact(f"{called(path)}: the watch was cut off ({error})")) from error

    async def _whole(self, path: str, query: Mapping[str, str]) -> tuple[bytes, int, int]:
        async with self._response(path, query, read_s=_READ_S) as (response, sent_us):
            try:
                body = await response.read()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise SourceUnreachableError(redact(f"{called(path)}: the answer was cut off ({error})")) from error
            return body, sent_us, self._clock.now_us()

    @asynccontextmanager
    async def _response(
        self, path: str, query: Mapping[str, str], *, read_s: float | None, posted: Mapping[str, Any] | None = None
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, int]]:
        sent_us = self._clock.now_us()
        try:
            response = await self._client.call_api(
                path,
                "GET" if posted is None else "POST",
                query_params=list(query.items()),
                header_params={"Accept": "application/json", "Content-Type": "application/json"},
                body=posted,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=aiohttp.ClientTimeout(sock_connect=_CONNECT_S, sock_read=read_s),
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise SourceUnreachableError(redact(f"{called(path)}: {type(error).__name__} {error}")) from error
        async with response:
            self._offsets.read(SERVICE, response.headers.get("Date"), sent_us, self._clock.now_us())
            self._refused |= response.status == 401
            if response.status not in {200, 201}:
                raise refused(response.status, await _message(response), path)
            yield response, sent_us


def refused(status: int, message: str, path: str) -> SourceError:
    """Return the typed error of a status that is not 200."""
    kinds: dict[int, type[SourceError]] = {
        401: ExpiredError,
        403: DeniedError,
        404: MissingError,
        410: GoneError,
        429: ThrottledError,
    }
    kind = kinds.get(status, SourceUnreachableError if status >= 500 else MalformedError)
    return kind(f"{called(path)}: {status} {said(message)}")


def called(path: str) -> str:
    """Return what a path is about in a message, which leaves long words out.

    >>> called("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers")
    'kubernetes horizontalpodautoscalers'
    """
    return f"kubernetes {path.rpartition('/')[2]}"


def _has_kubeconfig() -> bool:
    return bool(os.environ.get("KUBECONFIG")) or Path("~/.kube/config").expanduser().exists()


async def _message(response: aiohttp.ClientResponse) -> str:
    try:
        body = await asyncio.wait_for(response.read(), _CONNECT_S)
        return str(msgspec.json.decode(body)["message"])
    except (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError, TypeError, KeyError):
        return response.reason or ""


def _object(body: bytes, path: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        found = None
    if not isinstance(found, dict):
        raise MalformedError(f"{called(path)}: the answer is no JSON object")
    return found
