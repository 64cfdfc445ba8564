"""A trace without what could tell whose it is: identifiers replaced by keyed hashes or dropped, times coarsened."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec
import polars as pl

Identifiers = Literal["pseudonymise", "drop"]

SALT_BYTES: Final = 32
_LINKS: Final = ("turn", "parent_row", "think_us")


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was done: to which column, what, and to how many values."""

    column: str
    done: str
    values: int


def anonymise(
    frame: pl.LazyFrame, salt: bytes, *, identifiers: Identifiers = "pseudonymise", grid_us: int | None = None
) -> tuple[pl.DataFrame, list[Removed]]:
    """Return the trace without identities, and what was done to it. It is held in memory.

    Session and model names are replaced by hashes keyed with `salt`, or dropped (conversations' links with them).
    Prefix blocks always become keyed hashes: equal ones stay equal, so that reuse can still be replayed. References to
    recorded content are dropped. Rows are numbered anew. `grid_us` rounds times and durations down to a grid; None
    keeps them. Lengths, statuses and image counts are kept.
    """
    rows = frame.collect()
    removed = [Removed(column="payload_ref", done="dropped", values=_known(rows, "payload_ref"))]
    rows = rows.with_columns(pl.lit(None, dtype=pl.String).alias("payload_ref"))
    for column in ("session_id", "model"):
        removed.append(Removed(column=column, done=_past(identifiers), values=_known(rows, column)))
        rows = rows.with_columns(_renamed(rows[column], salt, identifiers))
    if identifiers == "drop":
        removed += [Removed(column=column, done="dropped", values=_known(rows, column)) for column in _LINKS]
        rows = rows.with_columns(pl.lit(None, dtype=pl.Int64).alias(column) for column in _LINKS)
    removed.append(Removed(column="prefix_blocks", done="hashed with the salt", values=_known(rows, "prefix_blocks")))
    rows = rows.with_columns(_hashed_blocks(rows["prefix_blocks"], salt))
    rows = _numbered_anew(rows)
    removed.append(Removed(column="row_id", done="numbered anew", values=rows.height))
    if grid_us is not None:
        times = ("arrival_us", "think_us", "source_latency_us")
        removed += [Removed(column=name, done="coarsened", values=_known(rows, name)) for name in times]
        rows = rows.with_columns(pl.col(times) // grid_us * grid_us)
    return rows, [done for done in removed if done.values]


def _past(identifiers: Identifiers) -> str:
    return "dropped" if identifiers == "drop" else "hashed with the salt"


def _known(rows: pl.DataFrame, column: str) -> int:
    return rows.height - rows[column].null_count()


def _renamed(names: pl.Series, salt: bytes, identifiers: Identifiers) -> pl.Series:
    if identifiers == "drop":
        return pl.Series(names.name, [None] * len(names), dtype=pl.String)
    known = names.drop_nulls().unique().to_list()
    # The purpose is part of what is hashed: a session called like a model does not show as the same name.
    new = {name: f"{names.name[0]}-{_digest(f'{names.name}/{name}'.encode(), salt).hex()}" for name in known}
    return names.replace_strict(new, default=None, return_dtype=pl.String)


def _hashed_blocks(blocks: pl.Series, salt: bytes) -> pl.Series:
    known = blocks.explode().drop_nulls().unique().to_list()
    if not known:
        return blocks
    new = [int.from_bytes(_digest(b"block/%d" % block, salt)) >> 1 for block in known]
    mapping: Any = pl.element().replace_strict(known, new, return_dtype=pl.Int64)
    return blocks.list.eval(mapping)


def _numbered_anew(rows: pl.DataFrame) -> pl.DataFrame:
    """Number rows from 0: their places in the source would tell what was dropped from it."""
    numbers = rows.select("row_id", pl.int_range(pl.len(), dtype=pl.Int64).alias("_new"))
    parents = rows.select(pl.col("parent_row").alias("row_id")).join(
        numbers, on="row_id", how="left", maintain_order="left"
    )
    return rows.with_columns(parents["_new"].alias("parent_row"), numbers["_new"].alias("row_id"))


def _digest(content: bytes, salt: bytes) -> bytes:
    return blake2b(content, key=salt, digest_size=8).digest()
