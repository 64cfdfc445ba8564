"""What goes wrong on the control planes, by the configuration and by chance."""

from __future__ import annotations

import random
from typing import NamedTuple

from loadgen.emulator.api import ApiError
from loadgen.emulator.autoscaler import ACCOUNT
from loadgen.emulator.config import Faults, to_us

_CALLER = f"arn:aws:iam::{ACCOUNT}:user/emulated"


class Trouble(NamedTuple):
    """What one call meets: a wait in endpoint time, and then an error or none."""

    wait_us: int
    error: ApiError | None


class Injector:
    """Decides for each call; the same seed and the same calls give the same trouble."""

    def __init__(self, faults: Faults, seed: int, start_us: int) -> None:
        self._faults, self._start_us = faults, start_us
        self._random = random.Random(f"{seed}:throttling")

    def trouble(self, service: str, now_us: int, operation: str = "") -> Trouble:
        """Return what a call of a service meets now."""
        faults, since_us = self._faults, now_us - self._start_us
        throttled = self._random.random() < faults.throttled_share
        failing = faults.error_share > 0 and self._random.random() < faults.error_share
        slow = faults.slow_share > 0 and self._random.random() < faults.slow_share
        wait_us = to_us(faults.slow_s) if slow else 0
        if service in faults.unreachable and _within(since_us, faults.unreachable_from_s, faults.unreachable_s):
            return Trouble(wait_us, ApiError("ServiceUnavailable", "The service is unavailable.", 503))
        if _within(since_us, faults.expired_from_s, faults.expired_s):
            message = "The security token included in the request is expired"
            return Trouble(wait_us, ApiError("ExpiredTokenException", message, 403))
        if f"{service}:{operation}" in faults.denied:
            message = f"User: {_CALLER} is not authorized to perform: {service}:{operation}"
            return Trouble(wait_us, ApiError("AccessDeniedException", message, 403))
        if throttled:
            return Trouble(wait_us, ApiError("ThrottlingException", "Rate exceeded"))
        if failing:
            return Trouble(wait_us, ApiError("InternalFailure", "The request processing has failed.", 500))
        return Trouble(wait_us, None)


def _within(since_us: int, from_s: float, length_s: float) -> bool:
    return to_us(from_s) <= since_us < to_us(from_s + length_s)
