"""The HTTP proxy between this machine and a target, as the environment names it.

`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` in either case, as the standard library reads them. A target on
loopback is never reached through a proxy, whatever they say: it would be the proxy's loopback.
"""

from __future__ import annotations

import base64
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import msgspec

from loadgen.endpoints.base import Target, bracketed
from traces.errors import BadInputError


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """Where a proxy is, and what it wants to see. `authorization` is a whole header line, or empty."""

    host: str
    port: int
    authorization: bytes = b""

    @property
    def origin(self) -> str:
        """Scheme, host and port, for messages."""
        return f"http://{bracketed(self.host)}:{self.port}"

    def tunnel(self, target: Target) -> bytes:
        """Return the request that asks for a way through to a target (RFC 9110, 9.3.6)."""
        place = f"{bracketed(target.host)}:{target.port}".encode()
        return b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (place, place, self.authorization)

    def through(self, target: Target) -> tuple[bytes, bytes]:
        """Return what a request to a target without TLS gets before its path and after its first line (9112, 3.2.2)."""
        return target.origin.encode(), self.authorization


def proxy_for(target: Target, *, loopback: bool) -> Proxy | None:
    """Return the proxy that the environment names for a target. Raises `BadInputError` for one that cannot be used."""
    known = getproxies_environment()
    name = "https" if target.tls else "http"
    url = known.get(name) or known.get("all")
    if loopback or not url or proxy_bypass(f"{target.host}:{target.port}"):
        return None
    variable = f"{name if known.get(name) else 'all'}_proxy".upper()
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or 80
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "http" or not parts.hostname:
        # not shown: it may hold a password
        raise BadInputError(
            f"{variable}: expected http://HOST:PORT (proxies that speak HTTP); or list the host in NO_PROXY"
        )
    authorization = b""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        authorization = b"Proxy-Authorization: Basic " + base64.b64encode(pair) + b"\r\n"
    return Proxy(host=parts.hostname, port=port, authorization=authorization)
