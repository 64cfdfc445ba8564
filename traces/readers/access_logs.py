"""Access logs of load balancers and proxies, shared: a pattern's named groups become rows, column by column.

Probes (health checks) and requests that are no POST are no load on a model: they are counted and left out. Failures are
kept: they were offered load. Such logs know bytes, never tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import polars as pl

from traces.readers.base import YEAR_10000_US, Batch, classified, reason_of
from traces.readers.lines import blocks, line_frame

_PROBE_AGENT: Final = r"(?i)ELB-HealthChecker|kube-probe|GoogleHC|Consul Health|Prometheus/|blackbox"
_PROBE_PATH: Final = r"^(?:https?://[^/]*)?/(?:healthz?|ping|ready|readyz|livez?|livez|status|metrics)(?:[/?]|$)"

GROUPS: Final = ("method", "path", "status", "agent", "model", "created", "end", "time_local", "msec", "request_time")
"""What a pattern may name; the first three it must."""

_NOTHING: Final = pl.lit(None, dtype=pl.String)

Times = Callable[[pl.DataFrame], pl.DataFrame]
"""Adds `arrival_us` and `source_latency_us` to the pattern's groups; null where a time is none."""


def log_batches(path: Path, pattern: str, times: Times) -> Iterator[Batch]:
    """Yield a log's rows, classified. Null are the groups that the pattern does not name."""
    for block in blocks(path):
        texts = line_frame(block)
        found = texts.select(pl.col("line").str.extract_groups(pattern).struct.unnest())
        groups = found.select(pl.col(name) if name in found.columns else _NOTHING.alias(name) for name in GROUPS)
        rows = times(pl.concat([texts, groups], how="horizontal"))
        yield Batch(_reasoned(rows), block.cut_off, block.lines())


def _reasoned(rows: pl.DataFrame) -> pl.DataFrame:
    method, arrival = pl.col("method"), pl.col("arrival_us")
    probe = pl.col("agent").str.contains(_PROBE_AGENT) | pl.col("path").str.contains(_PROBE_PATH)
    reason = reason_of(
        ("blank_line", pl.col("line").str.strip_chars() == ""),
        ("not_utf8", pl.col("line").is_null()),
        ("malformed_row", method.is_null()),
        ("health_check", probe.fill_null(value=False)),
        ("not_inference", method != "POST"),
        ("bad_timestamp", ~arrival.is_between(0, YEAR_10000_US, closed="left").fill_null(value=False)),
    )
    status = pl.col("status").cast(pl.Int64, strict=False)
    latency = pl.col("source_latency_us")
    return classified(
        rows.with_columns(
            reason,
            row_id=pl.col("line_no"),
            source_status=status,
            source_latency_us=pl.when(latency >= 0).then(latency),
        )
    )
