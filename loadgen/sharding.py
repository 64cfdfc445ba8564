"""Which worker sends which row: conversations stay whole, and each worker gets about as much as the others. Pure."""

from __future__ import annotations

import heapq

import polars as pl

from traces.errors import BadInputError
from traces.manifest import Laps


def keep_shard(frame: pl.LazyFrame, shard: int, shards: int) -> pl.LazyFrame:
    """Return the rows of a Trace table that worker `shard` of `shards` sends, in their order."""
    if shards == 1:
        return frame
    rows = frame.select("row_id", "session_id", "parent_row").collect()
    chosen = (shard_of_rows(rows, shards) == shard).alias("chosen").to_frame()
    return pl.concat([frame, chosen.lazy()], how="horizontal").filter("chosen").drop("chosen")


def shard_of_rows(rows: pl.DataFrame, shards: int) -> pl.Series:
    """Return which worker sends each row.

    Rows that wait for each other (one session, or joined by `parent_row`) are one group and stay together. Rows alone
    are dealt out in turn, so that each worker has its part of the rate at all times; groups go, the largest first, to
    the worker that has the fewest rows of groups yet.

    >>> rows = pl.DataFrame({"row_id": range(6), "session_id": ["a", None, "a", None, None, "b"],
    ...     "parent_row": [None, None, None, None, 3, None]}, schema_overrides={"parent_row": pl.Int64})
    >>> shard_of_rows(rows, 2).to_list()
    [0, 0, 0, 1, 1, 1]
    """
    group = pl.DataFrame({"group": _groups(rows)}).with_row_index("place")
    sizes = group.group_by("group").agg(pl.len().alias("rows"), pl.col("place").min())
    alone = sizes.filter(pl.col("rows") == 1).sort("place")
    alone = alone.with_columns((pl.int_range(pl.len()) % shards).alias("shard"))
    together = sizes.filter(pl.col("rows") > 1).sort(["rows", "place"], descending=[True, False])
    load = [(0, shard) for shard in range(shards)]
    dealt = []
    for size in together["rows"]:
        least, shard = load[0]
        heapq.heapreplace(load, (least + size, shard))
        dealt.append(shard)
    together = together.with_columns(pl.Series("shard", dealt, pl.Int64))
    both = pl.concat([alone, together]).select("group", "shard")
    return group.join(both, on="group", how="left", maintain_order="left")["shard"]


def _groups(rows: pl.DataFrame) -> pl.Series:
    """Return a name for each row's group."""
    row_key = pl.concat_str(pl.lit("r:"), "row_id")
    session = pl.concat_str(pl.lit("s:"), "session_id")
    keyed = rows.select("row_id", "parent_row", pl.coalesce(session, row_key).alias("key"))
    parents = keyed.select(pl.col("row_id").alias("parent_row"), pl.col("key").alias("parent_key"))
    edges = keyed.join(parents, on="parent_row").filter(pl.col("key") != pl.col("parent_key"))
    joined = _joined(edges["key"].to_list(), edges["parent_key"].to_list())
    key = keyed["key"]
    return key.replace(list(joined), list(joined.values())) if joined else key


def shard_laps(laps: Laps | None, rows: int) -> Laps | None:
    """Return how one worker's `rows` repeat; `None` without any."""
    if laps is None or not rows:
        return None
    return Laps(rows=rows, length_us=laps.length_us, stride=laps.stride, until_us=laps.until_us)


def shard_cap(max_in_flight: int, shard: int, shards: int) -> int:
    """Return one worker's part of the cap on requests in flight; 0 stays no cap.

    >>> [shard_cap(7, k, 3) for k in range(3)], shard_cap(0, 1, 3)
    ([3, 2, 2], 0)
    """
    if 0 < max_in_flight < shards:
        raise BadInputError(f"max_in_flight {max_in_flight} cannot be shared by {shards} workers; raise it")
    return max_in_flight // shards + (shard < max_in_flight % shards)


def _joined(keys: list[str], others: list[str]) -> dict[str, str]:
    """Return, for each key in a pair, the one key that stands for all that are joined with it (union-find)."""
    stands_for: dict[str, str] = {}

    def root(key: str) -> str:
        while (above := stands_for.setdefault(key, key)) != key:
            stands_for[key] = stands_for[above]
            key = above
        return key

    for key, other in zip(keys, others, strict=True):
        stands_for[root(key)] = root(other)
    return {key: root(key) for key in list(stands_for)}
