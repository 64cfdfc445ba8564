"""What a finished run's request table says: counts, latencies, and what the verdict is formed from. Pure."""

from __future__ import annotations

from typing import Any

import polars as pl

from loadgen.recorder import AS_RECORDED
from loadgen.verdict import NOT_OFFERED, Fidelity

_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_LATENCIES = {
    "ttft_from_due": ("due", "first_token"),
    "ttft_from_sent": ("sent", "first_token"),
    "end_to_end_from_due": ("due", "done"),
    "end_to_end_from_sent": ("sent", "done"),
}


def counts(requests: pl.LazyFrame) -> dict[str, Any]:
    """Return `{planned, sent, ok, cancelled, failed: {kind: n}, not_sent: {reason: n}}` of a Request table.

    `cancelled` counts the requests whose client left as recorded; any other cancellation is a failure.
    """
    kind = pl.col("error_kind").fill_null(pl.col("outcome").cast(pl.String))
    grouped = (
        requests.group_by(pl.col("outcome").cast(pl.String), kind.alias("kind"))
        .agg(pl.len().alias("rows"), pl.col("sent").is_not_null().sum().alias("sent"))
        .sort("outcome", "kind")
        .collect()
    )
    found: dict[str, Any] = {"planned": 0, "sent": 0, "ok": 0, "cancelled": 0, "failed": {}, "not_sent": {}}
    for row in grouped.iter_rows(named=True):
        found["planned"] += row["rows"]
        found["sent"] += row["sent"]
        if row["outcome"] == "ok":
            found["ok"] += row["rows"]
        elif (row["outcome"], row["kind"]) == ("cancelled", AS_RECORDED):
            found["cancelled"] += row["rows"]
        else:
            group = found["not_sent" if row["outcome"] == "not_sent" else "failed"]
            group[row["kind"]] = group.get(row["kind"], 0) + row["rows"]
    return found


def tokens(requests: pl.LazyFrame) -> dict[str, dict[str, int | float | None]]:
    """Return, for `input` and `output`, how the tokens that the server reports compare with those that were planned.

    Over the successful requests whose tokens it reports (`rows`): both sums, and the share of rows that differ.
    `None` where none is reported.
    """
    ok = requests.filter(pl.col("outcome") == "ok")
    found: dict[str, dict[str, int | float | None]] = {}
    for name in ("input", "output"):
        planned, reported = pl.col(f"planned_{name}_tokens"), pl.col(f"{name}_tokens")
        both = ok.filter(planned.is_not_null() & reported.is_not_null())
        row = both.select(
            pl.len().alias("rows"),
            planned.sum().alias("planned"),
            reported.sum().alias("reported"),
            (planned != reported).mean().round(4).alias("differing_share"),
        ).collect()
        values = row.row(0, named=True)
        found[name] = values if values["rows"] else dict.fromkeys(values) | {"rows": 0}
    return found


def latencies_ms(requests: pl.LazyFrame, time_scale: float) -> dict[str, dict[str, float | None]]:
    """Return p50, p95 and p99 (ms, endpoint time) of first token and whole answer, from due and from sent.

    Over the requests that succeeded; `None` where none of them shows the latency.
    """
    ok = requests.filter(pl.col("outcome") == "ok")
    spans = {
        name: (pl.col(end) - pl.col(start)).dt.total_microseconds() * (time_scale / 1e3)
        for name, (start, end) in _LATENCIES.items()
    }
    columns = [
        span.quantile(q, interpolation="higher").alias(f"{name}/{label}")
        for name, span in spans.items()
        for label, q in _QUANTILES.items()
    ]
    row = ok.select(columns).collect().row(0, named=True)
    return {name: {label: _rounded(row[f"{name}/{label}"]) for label in _QUANTILES} for name in spans}


def fidelity(
    requests: pl.LazyFrame,
    *,
    t0_us: int,
    time_scale: float,
    hub_latency_p99_us: int | None,
    connect_p99_us: int | None,
    cpu_share: float | None = None,
    cpu_wait_share: float | None = None,
) -> Fidelity:
    """Return how well the schedule was held, from a Request table (client clock)."""
    found = counts(requests)
    lags = requests.select((pl.col("sent") - pl.col("due")).dt.total_microseconds() / 1e3).collect()
    worst, error = _worst_second(requests, t0_us)
    return Fidelity(
        rows_planned=found["planned"],
        rows_sent=found["sent"],
        not_sent=found["not_sent"],
        lags_ms=lags.to_series().drop_nulls(),
        max_abs_error_per_s=error,
        worst_second=worst,
        hub_latency_p99_ms=None if hub_latency_p99_us is None else hub_latency_p99_us / 1e3,
        connect_p99_ms=None if connect_p99_us is None else connect_p99_us / 1e3,
        cpu_share=cpu_share,
        cpu_wait_share=cpu_wait_share,
        time_scale=time_scale,
    )


def _worst_second(requests: pl.LazyFrame, t0_us: int) -> tuple[int | None, int]:
    """Return the client second from t0 in which offered and delivered requests differ most, and by how many.

    Rows left unsent because the user stopped the run, or the turn before them did not end, were not offered any more.
    """
    offered = requests.filter(pl.col("sent").is_not_null() | ~pl.col("error_kind").is_in(NOT_OFFERED).fill_null(False))

    def per_second(column: str) -> pl.LazyFrame:
        second = (pl.col(column).dt.epoch("us") - t0_us) // 1_000_000
        return offered.filter(pl.col(column).is_not_null()).group_by(second.alias("second")).agg(pl.len().alias(column))

    joined = per_second("due").join(per_second("sent"), on="second", how="full", coalesce=True)
    difference = pl.col("due").fill_null(0).cast(pl.Int64) - pl.col("sent").fill_null(0).cast(pl.Int64)
    ordered = joined.select("second", difference.abs().alias("error")).sort(
        ["error", "second"], descending=[True, False]
    )
    top = ordered.head(1).collect()
    return (None, 0) if top.is_empty() else (int(top["second"][0]), int(top["error"][0]))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
