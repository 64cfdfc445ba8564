"""The offered load: what was asked of the endpoint, and when. Pure: frames in, frames out."""

from __future__ import annotations

import numpy as np
import polars as pl

from traces.units import US_PER_S

_DENSE: int = 16
"""Row ids count as dense, and are looked up in a bitmap, up to this many times their number."""


def unrecorded(trace: pl.LazyFrame, requests: pl.LazyFrame) -> pl.DataFrame:
    """Return the trace rows that no request row tells of: in flight when a replay was killed, or never sent."""
    planned = trace.select("row_id").collect(engine="streaming")["row_id"].to_numpy()
    recorded = requests.select("row_id").collect(engine="streaming")["row_id"].to_numpy()
    top = int(planned.max(initial=-1))
    if top < 0:
        return trace.collect()
    if top > _DENSE * (len(planned) + 1_000):
        return trace.join(requests.select("row_id"), on="row_id", how="anti").collect(engine="streaming")
    # A join would build a hash table of all ids; one byte per id tells the same.
    seen = np.zeros(top + 1, dtype=bool)
    seen[recorded[(recorded >= 0) & (recorded <= top)]] = True
    lost = planned[~seen[planned]]
    if not len(lost):
        return trace.head(0).collect()
    return trace.filter(pl.col("row_id").is_in(pl.Series(lost).implode())).collect(engine="streaming")


def offered(missing: pl.DataFrame, requests: pl.LazyFrame, load_start_us: int | None) -> pl.LazyFrame:
    """Return one row per request that was due: `due_us` (endpoint) and `tokens` (output asked for), in no order.

    A request that was recorded counts at its due instant; a trace row without one (`missing`, from `unrecorded`)
    counts at its place in the trace, which for a follow-up turn is the earliest it could have been due.
    """
    recorded = requests.select(
        pl.col("due").dt.epoch("us").alias("due_us"),
        pl.coalesce("planned_output_tokens", "output_tokens").alias("tokens"),
    )
    if load_start_us is None or missing.is_empty():
        return recorded
    planned = missing.lazy().select(
        (pl.col("arrival_us") + load_start_us).alias("due_us"), pl.col("output_tokens").alias("tokens")
    )
    return pl.concat([recorded, planned])


def due_instants(arrivals: pl.LazyFrame) -> pl.Series:
    """Return the due instants (endpoint µs) of `offered`, sorted."""
    due = arrivals.select("due_us").collect(engine="streaming")["due_us"]
    return pl.Series("due_us", np.sort(due.to_numpy()), dtype=pl.Int64).set_sorted()


def between(due_us: pl.Series, begin_us: int, end_us: int) -> pl.Series:
    """Return the sorted instants in [begin, end), without a copy."""
    first, last = due_us.search_sorted(begin_us, "left"), due_us.search_sorted(end_us, "left")
    return due_us.slice(first, max(last - first, 0))


def load_per_bin(arrivals: pl.LazyFrame, requests: pl.LazyFrame, bin_us: int) -> pl.DataFrame:
    """Return the offered load per bin, gap-free from first to last arrival.

    `start_us`; `requests_per_s`; `tokens_per_s` (output asked for); `in_flight`: requests that were due and not
    answered yet at the bin's end, in a queue or in service (offered concurrency).
    """
    start = (pl.col("due_us") // bin_us * bin_us).alias("start_us")
    counted = arrivals.group_by(start).agg(n=pl.len(), tokens=pl.col("tokens").sum()).collect(engine="streaming")
    if counted.is_empty():
        floats = ("requests_per_s", "tokens_per_s")
        schema = {"start_us": pl.Int64} | dict.fromkeys(floats, pl.Float64) | {"in_flight": pl.Int64}
        return pl.DataFrame(schema=schema)
    end = pl.col("done").dt.epoch("us") // bin_us * bin_us
    ended = requests.select(end.alias("start_us")).drop_nulls().group_by("start_us").agg(ended=pl.len())
    first: int = counted["start_us"].min()  # type: ignore[assignment]
    last: int = counted["start_us"].max()  # type: ignore[assignment]
    grid = pl.DataFrame({"start_us": pl.int_range(first, last + bin_us, bin_us, eager=True)})
    per_s = US_PER_S / bin_us
    return (
        grid.join(counted, on="start_us", how="left")
        .join(ended.collect(engine="streaming"), on="start_us", how="left")
        .sort("start_us")
        .select(
            "start_us",
            requests_per_s=pl.col("n").fill_null(0) * per_s,
            tokens_per_s=pl.col("tokens").fill_null(0) * per_s,
            in_flight=(pl.col("n").fill_null(0).cast(pl.Int64) - pl.col("ended").fill_null(0)).cum_sum(),
        )
    )
