"""What the platform's operations share: errors, pages, names."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from loadgen.emulator.autoscaler import ACCOUNT
from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.model import EndpointModel
from traces.clock import to_datetime

Handler = Callable[[EndpointModel, Mapping[str, Any]], dict[str, Any]]
"""One operation: the model at the present and the request's members in, the response's members out."""

T = TypeVar("T")


class ApiError(Exception):
    """An error as the service reports it."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


def at(us: int) -> datetime:
    """Return an instant as the services give it, to the millisecond."""
    return to_datetime(us // 1000 * 1000)


def arn(config: EmulatorConfig, service: str, resource: str) -> str:
    """Return the name of a resource of the emulated account."""
    return f"arn:aws:{service}:{config.region}:{ACCOUNT}:{resource}"


def page(
    oldest_first: Sequence[T], *, token: str | None, limit: int, newest_first: bool, bad_token: str
) -> tuple[list[T], str | None]:
    """Return one page and the token of the next.

    Tokens count from the oldest item, so that items added meanwhile neither repeat nor hide any. `bad_token` is the
    service's code for a token that is none.
    """
    position = _decode(token, bad_token)
    if newest_first:
        end = len(oldest_first) if position is None else min(position, len(oldest_first))
        start = max(0, end - limit)
        return list(oldest_first[start:end])[::-1], _encode(start) if start > 0 else None
    start = position or 0
    end = start + limit
    return list(oldest_first[start:end]), _encode(end) if end < len(oldest_first) else None


def _encode(position: int) -> str:
    return base64.urlsafe_b64encode(f"at:{position}".encode()).decode()


def _decode(token: str | None, bad_token: str) -> int | None:
    if token is None:
        return None
    try:
        mark, _, number = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
        if mark == "at":
            return int(number)
    except ValueError:
        pass
    raise ApiError(bad_token, "The specified token is not valid.")
