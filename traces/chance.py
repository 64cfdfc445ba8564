"""Random numbers by row: a pure hash of seed, purpose and row.

A row's number depends on nothing but these three, so it is the same however a frame is batched, filtered or ordered.
The hash is splitmix64 (Steele, Lea and Flood, 2014), whose output is fixed by its definition; the hashes of polars and
Python may change with their versions.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import polars as pl

_WEYL: Final = 0x9E3779B97F4A7C15
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB


def uniform(key: pl.Expr, seed: int, purpose: str) -> pl.Expr:
    """Return numbers in (0, 1), one per integer `key`; other purposes and seeds give independent ones.

    >>> pl.DataFrame({"row": [0, 1]}).select(uniform(pl.col("row"), 7, "thin").round(4)).to_series().to_list()
    [0.1995, 0.7214]
    """
    start = int.from_bytes(blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest(), "big")
    # Unsigned 64-bit arithmetic of polars wraps around, as the hash wants; shifts are divisions.
    mixed = key.cast(pl.UInt64) * _word(_WEYL) + _word(start)
    mixed = (mixed ^ (mixed // _word(1 << 30))) * _word(_MIX_1)
    mixed = (mixed ^ (mixed // _word(1 << 27))) * _word(_MIX_2)
    mixed = mixed ^ (mixed // _word(1 << 31))
    return (mixed // _word(1 << 11)).cast(pl.Float64) * 2.0**-53 + 2.0**-54


def _word(number: int) -> pl.Expr:
    return pl.lit(number, dtype=pl.UInt64)
