"""How far the services' clocks are from ours, bounded by the Date headers of their answers. Pure."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from traces.clock import EndpointClock, offset_between, to_us
from traces.units import US_PER_S


class Offsets:
    """How far each service's clock is ahead of ours as mapped to the endpoint clock, from its Date headers.

    A header is cut to the second, and was written some time between the request and its answer: each one bounds the
    offset on both sides, and all of them together do so tightly. Where two contradict each other a clock was set, and
    the newer one holds.
    """

    def __init__(self, endpoint_clock: EndpointClock) -> None:
        self._clock = endpoint_clock
        self._newest: dict[str, tuple[int, int]] = {}
        self._bounds: dict[str, tuple[int, int]] = {}

    def read(self, service: str, date: str | None, sent_us: int, received_us: int) -> None:
        """Note a response's Date header (1 s resolution); an unreadable one is ignored."""
        try:
            stamped = parsedate_to_datetime(date or "")
        except ValueError:
            return
        if stamped.tzinfo is None:
            return
        date_us = to_us(stamped)
        lo_us = date_us - self._clock.to_endpoint_us(received_us)
        hi_us = date_us + US_PER_S - self._clock.to_endpoint_us(sent_us)
        self._newest[service] = (lo_us, received_us)
        old_lo_us, old_hi_us = self._bounds.get(service, (lo_us, hi_us))
        both = max(lo_us, old_lo_us), min(hi_us, old_hi_us)
        self._bounds[service] = both if both[0] <= both[1] else (lo_us, hi_us)

    def drain(self) -> dict[str, tuple[int, int]]:
        """Return (Date header minus our time, µs; when received) by service since the last call."""
        found, self._newest = self._newest, {}
        return found

    def lead_us(self) -> int:
        """Return how far the services are ahead of us altogether (µs); 0 within what cannot be told from nothing."""
        bounds = self._bounds.values()
        return offset_between(min(lo for lo, _ in bounds), max(hi for _, hi in bounds)) if bounds else 0

    def bounds(self) -> dict[str, tuple[int, int]]:
        """Return the bounds on each service's offset (µs) from all readings so far."""
        return dict(self._bounds)
