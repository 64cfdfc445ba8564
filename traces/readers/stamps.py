"""Columns of written times, read to integer microseconds since 1970."""

from __future__ import annotations

from typing import Final

import polars as pl

# polars has a fast parser for formats of a fixed width, and a slow one for those that hold `%.f` or `%z`.
_FIXED: Final = {26: "%Y-%m-%d %H:%M:%S.%6f", 32: "%Y-%m-%d %H:%M:%S.%6f+00:00"}
_FREE: Final = "%Y-%m-%d %H:%M:%S%.f"


def stamps_us(stamps: pl.Series) -> pl.Series:
    """Return µs since 1970 UTC of texts `YYYY-MM-DD HH:MM:SS[.fff…][zone]`; null where a text is none.

    UTC unless a zone is stated; decimals past the sixth are cut off.

    >>> stamps_us(pl.Series(["1970-01-01 00:00:01.0000029", "1970-01-01 01:00:01+01:00", "soon"])).to_list()
    [1000002, 1000000, None]
    """
    quick = _fixed(stamps)
    if quick is None:
        return _free(stamps)
    if not quick.null_count():
        return quick
    unread = quick.is_null()
    return quick.scatter(unread.arg_true(), _free(stamps.filter(unread)))


def _fixed(stamps: pl.Series) -> pl.Series | None:
    first = next((text for text in stamps.head(1) if text is not None), "")
    if len(first) == 27 and first.endswith("0"):
        # Seven decimals of which the last is 0, as .NET writes microseconds; another last digit takes the free form.
        short = stamps.to_frame("text").select(
            pl.when(pl.col("text").str.slice(26) == "0").then(pl.col("text").str.head(26))
        )
        return _read(short.to_series(), _FIXED[26])
    return _read(stamps, _FIXED[len(first)]) if len(first) in _FIXED else None


def _free(stamps: pl.Series) -> pl.Series:
    plain = _read(stamps.str.strip_suffix("Z").str.strip_suffix("+00:00"), _FREE)
    unread = plain.is_null()
    if not unread.any():
        return plain
    left = stamps.filter(unread)
    zoned = left.str.to_datetime(_FREE + "%z", time_unit="us", strict=False, cache=False)
    return plain.scatter(unread.arg_true(), zoned.dt.epoch("us"))


def _read(stamps: pl.Series, form: str) -> pl.Series:
    return stamps.str.to_datetime(form, time_unit="us", strict=False, cache=False).dt.epoch("us")
