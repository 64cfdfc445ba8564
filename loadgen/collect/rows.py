"""Rows of the Observation, Sample and Gap tables from plain values (instants in µs since 1970 UTC)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from loadgen.collect.anchors import Signal
from loadgen.collect.base import Answer, Row
from loadgen.collect.redaction import redact
from traces.clock import to_datetime


def observation(
    signal: Signal,
    resource: str,
    native_id: str,
    told_by: Answer,
    *,
    at_us: int | None = None,
    lo_us: int | None = None,
    hi_us: int | None = None,
    duration_us: int | None = None,
    resolution_us: int | None = None,
    scaling_id: str | None = None,
    unit_id: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> Row:
    """Return one row of the Observation table; `at_us` is a bound on both sides, `told_by` the answer that told."""
    lo_us, hi_us = (lo_us, hi_us) if at_us is None else (at_us, at_us)
    return {
        "resource": resource,
        "scaling_id": scaling_id,
        "unit_id": unit_id,
        "anchor": signal.anchor,
        "lo": None if lo_us is None else to_datetime(lo_us),
        "hi": None if hi_us is None else to_datetime(hi_us),
        "duration_us": duration_us,
        "source": signal.source,
        "method": signal.method,
        "native_id": native_id,
        "clock": signal.clock,
        "resolution_us": signal.resolution_us if resolution_us is None else resolution_us,
        "request_sent": to_datetime(told_by.sent_us),
        "response_received": to_datetime(told_by.received_us),
        "verified": signal.verified,
        "detail": None if detail is None else msgspec.json.encode(detail, order="sorted", enc_hook=str).decode(),
    }


def sample(
    source: str,
    metric: str,
    *,
    resource: str,
    start_us: int,
    value: float,
    received_us: int,
    period_us: int = 0,
    statistic: str = "Value",
    unit_id: str | None = None,
) -> Row:
    """Return one row of the Sample table; `start_us` is endpoint time, `received_us` client time."""
    return {
        "source": source,
        "metric": metric,
        "resource": resource,
        "unit_id": unit_id,
        "start": to_datetime(start_us),
        "period_us": period_us,
        "statistic": statistic,
        "value": float(value),
        "received": to_datetime(received_us),
    }


def gap(source: str, reason: str, start_us: int, end_us: int | None, detail: str) -> Row:
    """Return one row of the Gap table (client time); `end_us` is `None` while the gap lasts."""
    return {
        "source": source,
        "start": to_datetime(start_us),
        "end": None if end_us is None else to_datetime(end_us),
        "reason": reason,
        "detail": redact(detail),
    }
