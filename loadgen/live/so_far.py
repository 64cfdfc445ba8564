"""The verdict that a replay would get if it ended now; the one at the end also knows what was never sent. Pure."""

from __future__ import annotations

from typing import Any

from loadgen.histogram import Histogram
from loadgen.live.meter import Meter
from loadgen.scenario import Scenario
from loadgen.verdict import ClientState, Fidelity, verdict
from loadgen.windows import Untrusted

_QUANTILES = {"lag_p50_ms": 0.5, "lag_p99_ms": 0.99, "lag_p999_ms": 0.999, "lag_max_ms": 1.0}


def verdict_so_far(meter: Meter, scenario: Scenario, client: ClientState) -> dict[str, Any] | None:
    """Return `status`, `reasons` and `lag_p99_ms` by what was sent so far; None before anything was."""
    count = len(meter.lag)
    if not count:
        return None
    found = verdict(
        Fidelity(
            rows_planned=count,
            rows_sent=count,
            not_sent={},
            lag_ms={name: _ms(meter.lag, q) for name, q in _QUANTILES.items()},
            offered_vs_delivered={},
            untrusted=Untrusted(intervals=[], share=meter.late.share),
            hub_latency_p99_ms=None if client.hub_latency_p99_us is None else client.hub_latency_p99_us / 1e3,
            connect_p99_ms=None if client.connect_p99_us is None else client.connect_p99_us / 1e3,
            max_in_flight=scenario.replay.max_in_flight,
            time_scale=meter.time_scale,
        ),
        scenario.verdict,
    )
    return {"status": found["status"], "reasons": found["reasons"], "lag_p99_ms": found["lag_p99_ms"]}


def _ms(histogram: Histogram, q: float) -> float | None:
    us = histogram.quantile_us(q)
    return None if us is None else us / 1e3
