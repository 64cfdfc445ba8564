"""Servers that are posted to at an address of their own: any dialect, with secrets in headers or a signature."""

from __future__ import annotations

from loadgen.endpoints.answers import ErrorBody
from loadgen.endpoints.auth import SecretHeaders
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
from loadgen.endpoints.dialect import Dialect
from loadgen.plan import PlannedRequest
from loadgen.scenario import TargetSection


class HttpEndpoint:
    """Posts what a dialect says."""

    def __init__(self, section: TargetSection, dialect: Dialect) -> None:
        self.kind = section.kind
        self.url = shown_address(section.url or "")
        self.target: Target = parse_target(section.url or "")
        self._dialect = dialect
        self.path = _rooted(dialect.path(self.target.path))
        self.models_path = dialect.models_path(self.target.path)
        self.label = section.model or self.path.partition("?")[0]
        self._secrets = SecretHeaders(section)
        self._signer = None
        if section.sigv4_service:
            from loadgen.endpoints.sigv4 import Signer

            self._signer = Signer(section.sigv4_service, section.region)
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if section.stream else "application/json",
            "User-Agent": "ramptrace",
        }

    @property
    def model(self) -> str | None:
        """What is asked for, where that is known."""
        return self._dialect.model

    @property
    def auth(self) -> dict[str, str]:
        """The headers that hold secrets."""
        return self._secrets.headers

    def serve(self, model: str) -> None:
        """Ask for this model from now on."""
        self._dialect.model = self.label = model

    def refresh(self) -> None:
        """Renew credentials and tokens that expire."""
        self._secrets.refresh()
        if self._signer is not None:
            self._signer.refresh()

    def prepare(self, request: PlannedRequest) -> bytes:
        """Return the whole HTTP request."""
        body = self._dialect.body(request)
        headers = {**self._headers, **self._secrets.headers}
        if self._signer is not None:
            return self._signer.signed(self.target, self.path, body, headers)
        return http_request(self.target, self.path, body, headers)

    def open(self, status: int, headers: Headers, reply: Reply) -> Body:
        """Return the decoder for an answer with this head."""
        reply.unit_id = safe_word(header_text(headers, "x-ramptrace-unit"))
        if not 200 <= status < 300:
            return ErrorBody(reply, status)
        return self._dialect.decoder(reply, header_text(headers, "content-type") or "")


def _rooted(path: str) -> str:
    return path if path.startswith("/") else "/" + path
