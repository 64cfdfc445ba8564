"""Whether the load generator held its schedule: the run's own verdict, and the same figures from its rows."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from analysis.latency import ranked
from traces.clock import to_datetime
from traces.manifest import Manifest
from traces.units import US_PER_MS

_LIMITS: Final = {
    "degraded_lag_p99_ms": 5.0,
    "invalid_lag_p99_ms": 50.0,
    "degraded_not_sent_share": 0.0,
    "invalid_not_sent_share": 0.01,
}
"""Used where the manifest's scenario does not state its own; the scenario's defaults."""


def without_warm_up(manifest: Manifest, requests: pl.LazyFrame) -> pl.LazyFrame:
    """Return the requests (endpoint time) that were due outside the run's warm-up."""
    due, clock = pl.col("due").dt.epoch("us"), manifest.clock
    for begin, end in manifest.warm_ups_us:
        requests = requests.filter((due < clock.to_endpoint_us(begin)) | (due >= clock.to_endpoint_us(end)))
    return requests


def untrusted(manifest: Manifest) -> list[dict[str, str]]:
    """Return the windows in which the client itself was late: `start`, `end` (ISO 8601, endpoint time) and `why`."""
    found = (manifest.verdict or {}).get("untrusted")
    windows = [w for w in found if isinstance(w, dict)] if isinstance(found, list) else []
    known = [w for w in windows if isinstance(w.get("start_us"), int) and isinstance(w.get("end_us"), int)]

    def shown(client_us: int) -> str:
        return to_datetime(manifest.clock.to_endpoint_us(client_us)).isoformat(timespec="milliseconds")

    return [{"start": shown(w["start_us"]), "end": shown(w["end_us"]), "why": str(w.get("why", ""))} for w in known]


def fidelity(manifest: Manifest, frame: pl.DataFrame, never_recorded: int) -> dict[str, Any]:
    """Return `verdict` (VALID, DEGRADED, INVALID or None), `reasons`, and lag figures in client ms.

    `frame` is of `latency.timings`. Lag is sent − due, in client time. The manifest's verdict holds when there is one;
    for a run that was never closed it is worked out from the rows, and `recomputed` is true. `never_recorded` rows
    count as not sent. `untrusted` are the windows in which latencies mean nothing.
    """
    client_ms = manifest.time_scale * US_PER_MS
    lags = [None if us is None else us / client_ms for us in ranked(frame["lag_us"], (0.5, 0.99))]
    not_sent = int((frame["outcome"] == "not_sent").sum()) + never_recorded
    total = len(frame) + never_recorded
    figures: dict[str, Any] = {
        "lag_p50_ms": _rounded(lags[0]),
        "lag_p99_ms": _rounded(lags[1]),
        "lag_max_ms": _rounded(lags[2]),
        "not_sent": not_sent,
        "requests": total,
        "untrusted": untrusted(manifest),
    }
    stated = stated_verdict(manifest)
    if stated is not None:
        reasons = [str(r) for r in (manifest.verdict or {}).get("reasons") or []]
        return {"verdict": stated, "recomputed": False, "reasons": reasons, **figures}
    verdict, reasons = _judge(figures, _limits(manifest))
    return {"verdict": verdict, "recomputed": True, "reasons": reasons, **figures}


def stated_verdict(manifest: Manifest) -> str | None:
    """Return the verdict in the manifest, None when it holds none."""
    held = manifest.verdict or {}
    for key in ("verdict", "level", "state", "status"):
        value = held.get(key)
        if isinstance(value, str) and value.upper() in {"VALID", "DEGRADED", "INVALID"}:
            return value.upper()
    return None


def _limits(manifest: Manifest) -> dict[str, float]:
    section = manifest.scenario.get("verdict")
    stated = section if isinstance(section, dict) else {}
    return {key: float(stated.get(key, default)) for key, default in _LIMITS.items()}


def _judge(figures: dict[str, Any], limits: dict[str, float]) -> tuple[str | None, list[str]]:
    if not figures["requests"]:
        return None, ["no request was recorded"]
    share = figures["not_sent"] / figures["requests"]
    lag = figures["lag_p99_ms"] or 0.0
    for level in ("invalid", "degraded"):
        reasons = []
        if lag > limits[f"{level}_lag_p99_ms"]:
            reasons.append(f"p99 lag {lag:.1f} ms exceeds {limits[f'{level}_lag_p99_ms']:g} ms")
        if share > limits[f"{level}_not_sent_share"]:
            reasons.append(f"{figures['not_sent']} of {figures['requests']} requests were not sent or not recorded")
        if reasons:
            return level.upper(), reasons
    return "VALID", []


def _rounded(value: Any) -> float | None:
    return None if value is None else round(float(value), 3)
