"""The emulator's clock: the affine map from the client clock to the endpoint clock, with its error bound."""

from __future__ import annotations

from typing import Any

import aiohttp
import msgspec

from traces.clock import ClientClock, EndpointClock

_READINGS = 5
_TIMEOUT = aiohttp.ClientTimeout(total=5)


class _Clock(msgspec.Struct):
    emulated: bool
    endpoint_us: int
    time_scale: float


async def read_endpoint_clock(url: str, clock: ClientClock) -> EndpointClock | None:
    """Return the map of the quickest of five readings, or `None` where no emulator answers (a real platform).

    Raises `aiohttp.ClientError` or `TimeoutError` when nothing answers at all.
    """
    best: EndpointClock | None = None
    async with aiohttp.ClientSession(timeout=_TIMEOUT) as http:
        for _ in range(_READINGS):
            before_us = clock.now_us()
            found = await _read(http, url)
            after_us = clock.now_us()
            if found is None or not found.emulated or found.time_scale <= 0:
                return None
            error_us = (after_us - before_us + 1) // 2
            if best is None or error_us < best.error_us:
                best = EndpointClock(
                    client_epoch_us=(before_us + after_us) // 2,
                    endpoint_epoch_us=found.endpoint_us,
                    time_scale=found.time_scale,
                    error_us=error_us,
                )
    return best


async def _read(http: aiohttp.ClientSession, url: str) -> _Clock | None:
    async with http.get(f"{url.rstrip('/')}/_ramptrace/clock") as response:
        body: Any = await response.read()
        if response.status != 200:
            return None
    try:
        return msgspec.json.decode(body, type=_Clock)
    except msgspec.MsgspecError:
        return None
