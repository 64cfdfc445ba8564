"""Before the first request: names resolved once, the target reached once, and the endpoint's clock read."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import gevent.socket
import msgspec

from loadgen.connect import Address, ConnectFailedError, TransportError
from loadgen.endpoints.base import Target, parse_target
from loadgen.httpclient import DeadlineError, HttpClient
from loadgen.proxy import proxy_for
from loadgen.receiving import Stamps
from loadgen.sockets import tls_context
from traces.clock import EndpointClock
from traces.errors import UnreachableError

CLOCK_PATH = "/_ramptrace/clock"
_READINGS = 5
_DEADLINE_S = 10.0
_HELP = {
    "refused": "is the server running, and is the port right?",
    "connect_timeout": "is the address right, and does a firewall let it through?",
    "tls_verification": "the certificate does not prove the host's name; trust its authority or set verify_tls = false",
    "tls": "does the port speak TLS?",
    "proxy": "check HTTPS_PROXY, its credentials and its rules; NO_PROXY lists hosts to reach without it",
}


class _Whole:
    def __init__(self) -> None:
        self.body = bytearray()

    def feed(self, data: bytes, _at_us: int) -> None:
        self.body += data


def reach(target: Target, *, connect_timeout_s: float, verify_tls: bool, now_us: Callable[[], int]) -> HttpClient:
    """Return a client for the addresses that the target's name resolves to and that take a connection.

    Where the environment names a proxy for it, those of the proxy's name, which then looks up the target's.
    Raises `UnreachableError` when there is none, with what to check.
    """
    proxy = proxy_for(target, loopback=is_loopback(target.host))
    where = target if proxy is None else proxy
    shown = target.origin if proxy is None else f"{target.origin} through the proxy {proxy.origin}"
    try:
        found = gevent.socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        text = getattr(error, "strerror", None) or "not a host name"
        raise UnreachableError(
            f"{shown}: the name cannot be resolved ({text}); check the host name and the network"
        ) from None
    context = tls_context(verify=verify_tls) if target.tls else None
    host = target.host.partition("%")[0]
    tunnel = proxy.tunnel(target) if proxy is not None and target.tls else b""
    through = proxy.through(target) if proxy is not None and not target.tls else None

    def client_for(sockaddrs: list[tuple[int, Any]]) -> HttpClient:
        address = Address(host=host, port=target.port, tls=target.tls, sockaddrs=tuple(sockaddrs), tunnel=tunnel)
        return HttpClient(address, context=context, connect_timeout_s=connect_timeout_s, now_us=now_us, through=through)

    good: list[tuple[int, Any]] = []
    failure: ConnectFailedError | None = None
    for family, sockaddr in dict.fromkeys((family, sockaddr) for family, _, _, _, sockaddr in found):
        client = client_for([(family, sockaddr)])
        try:
            client.check()
        except ConnectFailedError as error:
            # Among several addresses the IPv6 one often does not exist at all; a refusal says more.
            failure = error if failure is None or error.kind == "refused" else failure
        else:
            good.append((family, sockaddr))
        finally:
            client.close()
    if not good:
        kind = failure.kind if failure else "unreachable"
        help_text = _HELP.get(kind, "check the address and the network")
        raise UnreachableError(f"{shown}: cannot connect ({str(failure).lower()}); {help_text}")
    return client_for(good)


def get_json(client: HttpClient, target: Target, path: str, headers: dict[str, str] | None = None) -> Any:
    """Return the JSON document at a path, or `None` for anything but a 200 with JSON."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {target.authority}", "Accept: application/json", "User-Agent: ramptrace"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    wire = "\r\n".join([*lines, "Accept-Encoding: identity", "", ""]).encode("latin-1")
    stamps, whole = Stamps(), _Whole()
    try:
        client.exchange(wire, stamps, _DEADLINE_S, lambda _status, _headers: whole)
        return msgspec.json.decode(bytes(whole.body)) if stamps.status == 200 else None
    except (TransportError, DeadlineError, msgspec.MsgspecError):
        return None


def read_clock(client: HttpClient, target: Target, now_us: Callable[[], int]) -> EndpointClock | None:
    """Return the map to the endpoint's clock as an emulator states it, or `None` where there is no emulator.

    The tightest of a few readings is taken; its error is half its round trip.
    """
    best: EndpointClock | None = None
    for _ in range(_READINGS):
        before = now_us()
        document = get_json(client, target, CLOCK_PATH)
        after = now_us()
        if not isinstance(document, dict) or document.get("emulated") is not True:
            return None
        endpoint_us, time_scale = document.get("endpoint_us"), document.get("time_scale")
        if not isinstance(endpoint_us, int) or not isinstance(time_scale, int | float) or time_scale <= 0:
            return None
        error_us = (after - before + 1) // 2
        if best is None or error_us < best.error_us:
            best = EndpointClock(
                client_epoch_us=(before + after) // 2,
                endpoint_epoch_us=endpoint_us,
                time_scale=float(time_scale),
                error_us=error_us,
            )
    return best


def find_emulator(
    emulator_url: str | None, target: Target, client: HttpClient, now_us: Callable[[], int]
) -> EndpointClock | None:
    """Return the emulator's clock: from the address that the scenario names, else from a target on loopback."""
    if emulator_url is None:
        return read_clock(client, target, now_us) if is_loopback(target.host) else None
    address = parse_target(emulator_url)
    other = reach(address, connect_timeout_s=_DEADLINE_S, verify_tls=True, now_us=now_us)
    clock = read_clock(other, address, now_us)
    other.close()
    if clock is None:
        raise UnreachableError(
            f"{address.origin}: no emulator answers at {CLOCK_PATH}; start one with `ramptrace emulate`"
        )
    return clock


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine by its name.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("example.test")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
