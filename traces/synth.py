"""Synthetic traces, pure and seeded: Poisson arrivals whose rate is constant in pieces, and token lengths.

Only `random.Random.random` is drawn from, the one generator whose sequence Python promises to keep; everything else
is its inverse transform. Arrivals and lengths have generators of their own: changing one leaves the other as it was.
"""

from __future__ import annotations

import math
from random import Random
from statistics import NormalDist
from typing import Final

import msgspec
import polars as pl

from traces.errors import BadInputError
from traces.schema import Trace
from traces.units import US_PER_S

_NORMAL: Final = NormalDist()


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stretch of constant rate (requests per second)."""

    length_s: float
    rate_per_s: float


class Lengths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lognormal token counts: `median`, `sigma` of the logarithm (0 is constant), clamped to [`low`, `high`]."""

    median: float
    sigma: float = 0.0
    low: int = 1
    high: int = 1_000_000


def poisson_arrivals_us(steps: list[Step], seed: int) -> list[int]:
    """Return Poisson arrivals in µs from the trace's start; the first is at 0.

    A Poisson process seen from one of its arrivals is that arrival and the same process after it (Slivnyak), so that
    placing the first at 0 distorts nothing and keeps the steps where they are stated. Unit-rate gaps are stretched by
    the inverse of the cumulated rate, so that the rate changes exactly at the steps.
    """
    if any(step.length_s <= 0 or step.rate_per_s < 0 for step in steps):
        raise BadInputError("a synthetic trace's steps need lengths above 0 and rates of at least 0")
    draw = Random(f"{seed}/arrivals")
    arrivals, passed_s = [0], 0.0
    gap = _unit_exponential(draw)
    for step in steps:
        at_s, left = 0.0, step.length_s * step.rate_per_s
        while gap <= left:
            left -= gap
            at_s += gap / step.rate_per_s
            arrivals.append(round((passed_s + at_s) * US_PER_S))
            gap = _unit_exponential(draw)
        gap -= left
        passed_s += step.length_s
    return arrivals


def token_counts(lengths: Lengths, count: int, seed: int, stream: str) -> list[int]:
    """Return `count` token counts; `stream` names the generator (input and output differ)."""
    draw = Random(f"{seed}/{stream}")
    return [_clamped(lengths, _NORMAL.inv_cdf(_open_uniform(draw))) for _ in range(count)]


def synthesise(steps: list[Step], input_tokens: Lengths, output_tokens: Lengths, seed: int) -> pl.DataFrame:
    """Return a trace frame (`traces.schema.Trace`); the same arguments return the same frame.

    >>> flat = Lengths(median=8)
    >>> synthesise([Step(length_s=2, rate_per_s=3)], flat, flat, seed=1).height > 0
    True
    """
    arrivals = poisson_arrivals_us(steps, seed)
    columns = {
        "row_id": list(range(len(arrivals))),
        "arrival_us": arrivals,
        "input_tokens": token_counts(input_tokens, len(arrivals), seed, "input"),
        "output_tokens": token_counts(output_tokens, len(arrivals), seed, "output"),
    }
    schema = pl.Schema(Trace)
    filled = {name: columns.get(name, [None] * len(arrivals)) for name in schema}
    return pl.DataFrame(filled, schema=schema)


def _clamped(lengths: Lengths, normal: float) -> int:
    return min(max(round(lengths.median * math.exp(lengths.sigma * normal)), lengths.low), lengths.high)


def _unit_exponential(draw: Random) -> float:
    return -math.log1p(-draw.random())


def _open_uniform(draw: Random) -> float:
    """Return a uniform number in (0, 1): the normal's inverse has no value at 0."""
    return draw.random() or 2.0**-54
