"""Any HTTP endpoint that takes a JSON body: `POST` to the address as it is. What it answers is not interpreted."""

from __future__ import annotations

import msgspec

from loadgen.endpoints.base import (
    Body,
    Headers,
    Reply,
    header_text,
    http_request,
    parse_target,
    safe_word,
    shown_address,
)
from loadgen.endpoints.chat import AnyBody, ErrorBody
from loadgen.endpoints.openai import bearer
from loadgen.plan import PlannedRequest
from loadgen.prompts import prompt_text
from loadgen.scenario import TargetSection


class HttpEndpoint:
    """Posts `{"prompt", "max_tokens"}`, and `model` where known; success is a complete answer with a 2xx status."""

    kind = "http"

    def __init__(self, section: TargetSection, *, seed: int) -> None:
        self.url = shown_address(section.url or "")
        self.target = parse_target(section.url or "")
        self.path = self.target.path if self.target.path.startswith("/") else "/" + self.target.path
        self.label = self.path.partition("?")[0]
        self._model = section.model
        self._seed = seed
        self._headers = {
            "Content-Type": "application/json",
            "User-Agent": "ramptrace",
            **bearer(section.api_key_env),
        }

    def refresh(self) -> None:
        """Nothing to renew."""

    def prepare(self, request: PlannedRequest) -> bytes:
        """Return the whole HTTP request."""
        prompt = prompt_text(
            request.row_id,
            request.input_tokens,
            seed=self._seed,
            prefix_blocks=request.prefix_blocks,
            block_tokens=request.block_tokens,
        )
        document = {"prompt": prompt, "max_tokens": request.output_tokens}
        if name := self._model or request.model:
            document["model"] = name
        return http_request(self.target, self.path, msgspec.json.encode(document), self._headers)

    def open(self, status: int, headers: Headers, reply: Reply) -> Body:
        """Return the decoder for an answer with this head."""
        reply.unit_id = safe_word(header_text(headers, "x-ramptrace-unit"))
        return AnyBody(reply) if 200 <= status < 300 else ErrorBody(reply, status)
