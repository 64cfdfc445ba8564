"""Once per second: the client's own state as samples, and whether a rule ends the replay."""

from __future__ import annotations

from collections.abc import Callable

import gevent

from loadgen.probe import HubProbe
from loadgen.recorder import SampleRow
from traces.clock import EndpointClock

_PERIOD_S = 1.0


class Sampler:
    """Samples the loop's latency, the processor's shares and the requests in flight; `each_second` is called after."""

    def __init__(
        self,
        probe: HubProbe,
        *,
        clock: EndpointClock,
        now_us: Callable[[], int],
        in_flight: Callable[[], int],
        record: Callable[[SampleRow], None],
        each_second: Callable[[], None],
    ) -> None:
        self._probe = probe
        self._clock = clock
        self._now_us = now_us
        self._in_flight = in_flight
        self._record = record
        self._each_second = each_second

    def run(self) -> None:
        """Sample until killed."""
        while True:
            began_us = self._now_us()
            gevent.sleep(_PERIOD_S)
            self._sample(began_us, self._now_us())
            self._each_second()

    def _sample(self, began_us: int, now_us: int) -> None:
        ran, waited = self._probe.take_cpu_shares()
        period_us = round((now_us - began_us) * self._clock.time_scale)
        start = self._clock.to_endpoint_us(began_us)
        over_period = {
            "hub_latency_us": ("Maximum", float(self._probe.take_worst_us())),
            "cpu_share": ("Average", ran),
            "cpu_wait_share": ("Average", waited),
        }
        for metric, (statistic, value) in over_period.items():
            if value is not None:
                self._record(
                    SampleRow(
                        metric=metric,
                        start=start,
                        period_us=period_us,
                        statistic=statistic,
                        value=value,
                        received=now_us,
                    )
                )
        self._record(
            SampleRow(
                metric="in_flight",
                start=self._clock.to_endpoint_us(now_us),
                period_us=0,
                statistic="Value",
                value=float(self._in_flight()),
                received=now_us,
            )
        )
