"""OpenAI-compatible servers (vLLM, SGLang, TGI, LMI, gateways): `POST /v1/chat/completions`."""

from __future__ import annotations

import os

from loadgen.endpoints.base import (
    Body,
    Headers,
    Reply,
    Target,
    header_text,
    http_request,
    parse_target,
    safe_word,
    shown_address,
)
from loadgen.endpoints.chat import ChatBody, ChatStream, ErrorBody, chat_body
from loadgen.plan import PlannedRequest
from loadgen.scenario import TargetSection
from traces.errors import BadInputError

_OPERATION = "/chat/completions"


def chat_path(base: str) -> str:
    """Return the operation's path under a base address, which may already end with `/v1` or with the operation.

    >>> chat_path(""), chat_path("/gateway/v1"), chat_path("/v1/chat/completions")
    ('/v1/chat/completions', '/gateway/v1/chat/completions', '/v1/chat/completions')
    >>> chat_path("/v1?api-version=3")
    '/v1/chat/completions?api-version=3'
    """
    place, mark, query = base.partition("?")
    place = place.rstrip("/")
    if not place.endswith(_OPERATION):
        place += _OPERATION if place.endswith("/v1") else "/v1" + _OPERATION
    return place + mark + query


class OpenAiEndpoint:
    """Chat completions over HTTP, with a bearer token where the scenario names one."""

    kind = "openai"

    def __init__(self, section: TargetSection, *, seed: int) -> None:
        self.url = shown_address(section.url or "")
        self.target: Target = parse_target(section.url or "")
        self.path = chat_path(self.target.path)
        place, mark, query = self.path.partition("?")
        self.label = section.model or place
        self.model = section.model
        self._stream = section.stream
        self._seed = seed
        self.models_path = place.removesuffix(_OPERATION) + "/models" + mark + query
        self.auth = bearer(section.api_key_env)
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if section.stream else "application/json",
            "User-Agent": "ramptrace",
            **self.auth,
        }

    def serve(self, model: str) -> None:
        """Ask for this model from now on."""
        self.model = self.label = model

    def refresh(self) -> None:
        """Nothing to renew."""

    def prepare(self, request: PlannedRequest) -> bytes:
        """Return the whole HTTP request."""
        body = chat_body(request, model=self.model, stream=self._stream, seed=self._seed)
        return http_request(self.target, self.path, body, self._headers)

    def open(self, status: int, headers: Headers, reply: Reply) -> Body:
        """Return the decoder for an answer with this head."""
        reply.unit_id = safe_word(header_text(headers, "x-ramptrace-unit"))
        if not 200 <= status < 300:
            return ErrorBody(reply, status)
        # A server may answer a streaming request with one body, and says so in the content type.
        whole = (header_text(headers, "content-type") or "").startswith("application/json")
        return ChatBody(reply) if whole or not self._stream else ChatStream(reply)


def bearer(api_key_env: str | None) -> dict[str, str]:
    """Return the Authorization header for the token in the named environment variable."""
    if api_key_env is None:
        return {}
    token = os.environ.get(api_key_env, "").strip()
    if not token:
        raise BadInputError(f"target.api_key_env: the environment variable {api_key_env} is not set or empty")
    if not token.isascii() or not token.isprintable():
        raise BadInputError(f"target.api_key_env: the value of {api_key_env} is not printable ASCII")
    return {"Authorization": f"Bearer {token}"}
