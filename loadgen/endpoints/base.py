"""What all endpoint adapters share: the port, addresses, and the reply that decoding fills in."""

from __future__ import annotations

import re
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from loadgen.plan import PlannedRequest
from loadgen.receiving import Decoder
from traces.errors import BadInputError

_SAFE_WORD = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Headers(Protocol):
    """Response headers by case-insensitive name (a repeated one is a list)."""

    def get(self, key: str, default: str | None = None) -> str | list[str] | None:
        """Return a header's value."""


class Reply:
    """What one answer told, filled in as it arrives. Instants are client µs; `None` is not observed.

    `complete`: all of the body arrived, as HTTP counts it. `finished`: the answer itself came to its end.
    `chunk_instants_us`, where asked for, has the instant of every token event.
    """

    __slots__ = (
        "chunk_instants_us",
        "chunks",
        "complete",
        "error_kind",
        "error_text",
        "finished",
        "first_token_us",
        "first_visible_us",
        "input_tokens",
        "last_token_us",
        "max_gap_us",
        "output_tokens",
        "unit_id",
    )

    def __init__(self, *, keep_instants: bool = False) -> None:
        self.chunk_instants_us: list[int] | None = [] if keep_instants else None
        self.first_token_us: int | None = None
        self.first_visible_us: int | None = None
        self.last_token_us: int | None = None
        self.max_gap_us: int | None = None
        self.chunks: int | None = None
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.complete = False
        self.finished = False
        self.error_kind: str | None = None
        self.error_text: str | None = None
        self.unit_id: str | None = None

    def token(self, at_us: int, *, visible: bool) -> None:
        """Note a stream event that carried generated content."""
        if self.chunks is None:
            self.first_token_us, self.chunks = at_us, 1
        else:
            self.chunks += 1
            gap_us = at_us - self.last_token_us  # type: ignore[operator] # there was a chunk before
            if self.max_gap_us is None or gap_us > self.max_gap_us:
                self.max_gap_us = gap_us
        self.last_token_us = at_us
        if self.chunk_instants_us is not None:
            self.chunk_instants_us.append(at_us)
        if visible and self.first_visible_us is None:
            self.first_visible_us = at_us

    def fail(self, kind: str, text: str | None = None) -> None:
        """Note that the answer reports a failure; the first one holds."""
        if self.error_kind is None:
            self.error_kind = kind
            self.error_text = text


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed `http(s)` address."""

    tls: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The Host header's value: the default port is left out."""
        host = bracketed(self.host.partition("%")[0])  # a zone is this machine's own affair (RFC 6874, 2)
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port, for messages."""
        return f"{'https' if self.tls else 'http'}://{self.authority}"


class Body(Decoder, Protocol):
    """A decoder that is told when the body is over."""

    def close(self) -> None:
        """Take the end of the body, complete or not: `Reply.complete` says which."""


class Endpoint(Protocol):
    """One kind of endpoint."""

    kind: str
    url: str
    label: str
    target: Target

    def refresh(self) -> None:
        """Renew what `prepare` needs and may have to be fetched (credentials). Called in a greenlet, ahead of time."""

    def prepare(self, request: PlannedRequest) -> bytes:
        """Return the whole HTTP request. Called ahead of time in a native thread: no sockets, no greenlets."""

    def open(self, status: int, headers: Headers, reply: Reply) -> Body:
        """Return the decoder for an answer with this head; it fills in `reply`."""


def parse_target(url: str) -> Target:
    """Return the parts of a target's address.

    >>> parse_target("https://example.test/base/").path, parse_target("http://[::1]:8000").authority
    ('/base', '[::1]:8000')
    >>> parse_target("http://[fe80::1%25eth0]:80").host, parse_target("http://bücher.example").authority
    ('fe80::1%eth0', 'xn--bcher-kva.example')
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise BadInputError(f'target "{shown_address(url)}": {error}; expected http://HOST:PORT') from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise BadInputError(f'target "{shown_address(url)}": expected http://HOST:PORT or https://HOST')
    if parts.username or parts.password:
        raise BadInputError(
            f'target "{shown_address(url)}": credentials do not belong in an address; '
            "put a bearer token in an environment variable and name it with target.api_key_env"
        )
    path = parts.path.rstrip("/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or any(c.isspace() for c in path):
        raise BadInputError(f'target "{shown_address(url)}": the path must be percent-encoded')
    tls = parts.scheme == "https"
    return Target(tls=tls, host=_host(parts.hostname, url), port=port or (443 if tls else 80), path=path)


def bracketed(host: str) -> str:
    """Return a host as it stands in an address: an IPv6 literal in brackets.

    >>> bracketed("::1"), bracketed("example.test")
    ('[::1]', 'example.test')
    """
    return f"[{host}]" if ":" in host else host


def _host(name: str, url: str) -> str:
    """Return a host as it is looked up: a zone unescaped (RFC 6874), other scripts in their ASCII form (RFC 5890)."""
    if ":" in name:
        return name.replace("%25", "%")
    try:
        return name if name.isascii() else name.encode("idna").decode("ascii")
    except UnicodeError:
        raise BadInputError(f'target "{shown_address(url)}": not a host name') from None


def shown_address(url: str) -> str:
    """Return an address fit to be shown and recorded: user, password and the query's values may be secrets.

    >>> shown_address("http://me:secret@host:80/v1?api-version=3")
    'http://host:80/v1?***'
    """
    base, mark, _ = url.partition("?")
    scheme, separator, place = base.rpartition("://")
    return scheme + separator + place.rpartition("@")[2] + (f"{mark}***" if mark else "")


def http_request(target: Target, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """Return a POST request's bytes: head and body. Answers are asked for unencoded, so that bytes are tokens."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {target.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += ["Accept-Encoding: identity", f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def header_text(headers: Headers, name: str) -> str | None:
    """Return a header's single value, or `None`."""
    value = headers.get(name)
    return value if isinstance(value, str) else None


def safe_word(value: object) -> str | None:
    """Return a machine-readable word (an error type, an instance id) if `value` is one.

    Anything longer or with other characters could carry a prompt, and is dropped.
    """
    return value if isinstance(value, str) and _SAFE_WORD.fullmatch(value) else None
