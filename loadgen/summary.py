"""What a run's request table says: counts, latencies, and what the verdict is formed from. Pure.

Everything is aggregated as it streams by, so that a run of any length takes the same memory: quantiles are taken over
values rounded to four significant digits (an error of at most 0.05 %), maxima are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from loadgen.parts import broken
from loadgen.recorder import AS_RECORDED, KILLED
from loadgen.scenario import VerdictSection
from loadgen.verdict import ClientState, Fidelity
from loadgen.windows import UNOFFERED, find_untrusted
from traces.manifest import WorkerPart

_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_LAG_QUANTILES = {"lag_p50_ms": 0.5, "lag_p99_ms": 0.99, "lag_p999_ms": 0.999}
_LATENCIES = {
    "ttft_from_due": ("due", "first_token"),
    "ttft_from_sent": ("sent", "first_token"),
    "end_to_end_from_due": ("due", "done"),
    "end_to_end_from_sent": ("sent", "done"),
}
_DIGITS: Final = 4
_UNKNOWN: Final = ClientState()

NO_STALLS: Final = pl.LazyFrame(schema={"begin_us": pl.Int64, "end_us": pl.Int64, "stall_us": pl.Int64})
"""The loop's latencies of a run that recorded none; see `stalls`."""


def without_warm_up(requests: pl.LazyFrame, warm_ups_us: Sequence[tuple[int, int]]) -> pl.LazyFrame:
    """Return the rows of a Request table that were due outside the warm-up windows [begin, end) (client µs)."""
    due = pl.col("due").dt.epoch("us")
    for begin, end in warm_ups_us:
        requests = requests.filter((due < begin) | (due >= end))
    return requests


def counts(requests: pl.LazyFrame, never_taken: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return `{planned, sent, ok, cancelled, failed: {kind: n}, not_sent: {reason: n}}` of a Request table.

    `cancelled` counts the requests whose client left as recorded; any other cancellation is a failure. `never_taken`
    has rows of the plan that have no row in the table, by reason.
    """
    kind = pl.col("error_kind").fill_null(pl.col("outcome").cast(pl.String))
    grouped = (
        requests.group_by(pl.col("outcome").cast(pl.String), kind.alias("kind"))
        .agg(pl.len().alias("rows"), pl.col("sent").is_not_null().sum().alias("sent"))
        .sort("outcome", "kind")
        .collect(engine="streaming")
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
    for reason, rows in (never_taken or {}).items():
        found["planned"] += rows
        found["not_sent"][reason] = found["not_sent"].get(reason, 0) + rows
    return found


def errors(requests: pl.LazyFrame, most: int = 5) -> list[dict[str, Any]]:
    """Return the most frequent failures: `outcome`, `kind`, `text` (a word of the server's, or null) and `rows`."""
    failed = ~pl.col("outcome").cast(pl.String).is_in(["ok", "not_sent"]) & pl.col("error_kind").ne_missing(AS_RECORDED)
    grouped = (
        requests.filter(failed)
        .group_by(
            pl.col("outcome").cast(pl.String), pl.col("error_kind").alias("kind"), pl.col("error_text").alias("text")
        )
        .agg(pl.len().alias("rows"))
        .sort("rows", "outcome", "kind", "text", descending=[True, False, False, False])
        .head(most)
    )
    return grouped.collect(engine="streaming").to_dicts()


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
        ).collect(engine="streaming")
        values = row.row(0, named=True)
        found[name] = values if values["rows"] else dict.fromkeys(values) | {"rows": 0}
    return found


def latencies_ms(requests: pl.LazyFrame, time_scale: float) -> dict[str, dict[str, float | None]]:
    """Return p50, p95 and p99 (ms, endpoint time) of first token and whole answer, from due and from sent.

    Over the requests that succeeded; `None` where none of them shows the latency.
    """
    ok = requests.filter(pl.col("outcome") == "ok")
    found = {}
    for name, (start, end) in _LATENCIES.items():
        span = (pl.col(end) - pl.col(start)).dt.total_microseconds() * (time_scale / 1e3)
        found[name] = _quantiles(ok.select(span.alias("value")), _QUANTILES)
    return found


def fidelity(
    requests: pl.LazyFrame,
    *,
    limits: VerdictSection,
    time_scale: float,
    t0_us: int,
    warm_ups_us: Sequence[tuple[int, int]] = (),
    never_taken: Mapping[str, int] | None = None,
    aborted: str | None = None,
    stalls: pl.LazyFrame = NO_STALLS,
    client: ClientState = _UNKNOWN,
    workers: Sequence[WorkerPart] = (),
    max_in_flight: int = 0,
) -> Fidelity:
    """Return how well the schedule was held, from a Request table (client clock); warm-up does not count."""
    measured = without_warm_up(requests, warm_ups_us)
    found = counts(measured, never_taken)
    everything = counts(requests, never_taken)["planned"] if warm_ups_us else found["planned"]
    lag = measured.select(((pl.col("sent") - pl.col("due")).dt.total_microseconds() / 1e3).alias("value"))
    longest = lag.select(pl.col("value").max()).collect(engine="streaming").item()
    for begin, end in warm_ups_us:
        stalls = stalls.filter((pl.col("end_us") <= begin) | (pl.col("begin_us") >= end))
    limit_us = round(limits.invalid_lag_p99_ms * 1e3)
    return Fidelity(
        rows_planned=found["planned"],
        rows_sent=found["sent"],
        not_sent=found["not_sent"],
        lag_ms={**_quantiles(lag, _LAG_QUANTILES), "lag_max_ms": _rounded(longest)},
        offered_vs_delivered=_worst_second(measured, t0_us),
        untrusted=find_untrusted(measured, stalls, window_us=limits.window_us, limit_us=limit_us),
        hub_latency_p99_ms=None if client.hub_latency_p99_us is None else client.hub_latency_p99_us / 1e3,
        connect_p99_ms=None if client.connect_p99_us is None else client.connect_p99_us / 1e3,
        cpu_share=client.cpu_share,
        cpu_wait_share=client.cpu_wait_share,
        warm_up_rows=everything - found["planned"],
        rows_killed=found["failed"].get(KILLED, 0),
        aborted=aborted,
        max_in_flight=max_in_flight,
        broken_workers=broken(workers),
        clock_error_ms=max((part.clock_error_us for part in workers), default=0) / 1e3,
        time_scale=time_scale,
    )


def stalls(samples: pl.LazyFrame, time_scale: float) -> pl.LazyFrame:
    """Return the loop's worst latency of each sampling period, from a Samples table; for `find_untrusted`."""
    end = pl.col("received").dt.epoch("us")
    length = (pl.col("period_us") / time_scale).round().cast(pl.Int64)
    return samples.filter((pl.col("source") == "replay") & (pl.col("metric") == "hub_latency_us")).select(
        (end - length).alias("begin_us"), end.alias("end_us"), pl.col("value").cast(pl.Int64).alias("stall_us")
    )


def _quantiles(values: pl.LazyFrame, wanted: dict[str, float]) -> dict[str, float | None]:
    """Return quantiles of column `value` (the smallest value with at least that share at or below it)."""
    counted = (
        values.drop_nulls()
        .group_by(pl.col("value").round_sig_figs(_DIGITS))
        .len("rows")
        .sort("value")
        .collect(engine="streaming")
    )
    if counted.is_empty():
        return dict.fromkeys(wanted)
    upto = counted["rows"].cum_sum()
    total = upto[-1]
    places = {name: upto.search_sorted(max(1, math.ceil(q * total))) for name, q in wanted.items()}
    return {name: _rounded(counted["value"][min(int(place), len(upto) - 1)]) for name, place in places.items()}


def _worst_second(requests: pl.LazyFrame, t0_us: int) -> dict[str, int | None]:
    """Return the client second from t0 in which offered and delivered requests differ most, and by how many.

    Rows left unsent because the run was ended on purpose, or the turn before them did not end, were not offered any
    more.
    """
    unoffered = pl.col("sent").is_null() & pl.col("error_kind").is_in(UNOFFERED).fill_null(value=False)
    offered = requests.filter(~unoffered)

    def per_second(column: str) -> pl.LazyFrame:
        second = (pl.col(column).dt.epoch("us") - t0_us) // 1_000_000
        return offered.filter(pl.col(column).is_not_null()).group_by(second.alias("second")).agg(pl.len().alias(column))

    joined = per_second("due").join(per_second("sent"), on="second", how="full", coalesce=True)
    counted = joined.select("second", pl.col("due", "sent").fill_null(0).cast(pl.Int64))
    difference = (pl.col("due") - pl.col("sent")).abs().alias("error")
    top = counted.with_columns(difference).sort(["error", "second"], descending=[True, False]).head(1).collect()
    if top.is_empty():
        return {"max_abs_error_per_s": 0, "worst_second": None, "offered": None, "delivered": None}
    worst = top.row(0, named=True)
    return {
        "max_abs_error_per_s": worst["error"],
        "worst_second": worst["second"],
        "offered": worst["due"],
        "delivered": worst["sent"],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
