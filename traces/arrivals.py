"""Arrival processes beyond the constant rate: rates that change, renewal processes, and a mixture of clients.

Like `traces.synth`, everything is made of `random.Random.random`, whose sequence Python promises to keep, so that a
seed means the same arrivals in every version. Rates that change are given as steps for `synth.poisson_arrivals_us`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import merge
from random import Random
from statistics import NormalDist
from typing import Final

import msgspec

from traces.errors import BadInputError
from traces.synth import Step
from traces.units import US_PER_S

_NORMAL: Final = NormalDist()
_SLICE_S: Final = 1.0
"""A rate that changes smoothly does so once a second."""

_BURN_IN_GAPS: Final = 50
_WEIBULL_SHAPES: Final = (0.08, 60.0)

UnitGap = Callable[[Random], float]
"""Draws the gap of a renewal process with a mean gap of 1."""


def gamma_gap(cv: float) -> UnitGap:
    """Return gamma gaps with this coefficient of variation (1 is Poisson, above 1 bursty, below 1 regular).

    Marsaglia and Tsang (2000), with the usual boost for shapes below 1.
    """
    _check_cv(cv)
    shape = 1 / cv**2
    boosted = shape if shape >= 1 else shape + 1
    d = boosted - 1 / 3
    c = 1 / math.sqrt(9 * d)

    def draw(random: Random) -> float:
        while True:
            normal = _normal(random)
            v = (1 + c * normal) ** 3
            if v > 0 and math.log(_open(random)) < normal**2 / 2 + d - d * v + d * math.log(v):
                break
        value = d * v
        if shape < 1:
            # In logarithms: for small shapes the power underflows before the product does.
            value = math.exp(math.log(value) + math.log(_open(random)) / shape)
        return value / shape

    return draw


def weibull_gap(cv: float) -> UnitGap:
    """Return Weibull gaps with this coefficient of variation, by inverse transform; its shape is found by bisection."""
    _check_cv(cv)
    low, high = _WEIBULL_SHAPES
    if not _weibull_cv(high) <= cv <= _weibull_cv(low):
        raise BadInputError(f"a Weibull renewal process has no coefficient of variation of {cv:g}; take gamma")
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _weibull_cv(middle) > cv else (low, middle)
    shape = (low + high) / 2
    scale = 1 / math.gamma(1 + 1 / shape)
    return lambda random: float(scale * (-math.log(_open(random))) ** (1 / shape))


def renewal_arrivals_us(gap: UnitGap, rate_per_s: float, length_s: float, draw: Random) -> list[int]:
    """Return a renewal process in µs over `[0, length_s]`; its first arrival is at 0."""
    arrivals, at_s = [0], gap(draw) / rate_per_s
    while at_s <= length_s:
        arrivals.append(round(at_s * US_PER_S))
        at_s += gap(draw) / rate_per_s
    return arrivals


def step_steps(base: float, to: float, at_s: float, for_s: float, length_s: float) -> list[Step]:
    """Return a rate of `base`, of `to` from `at_s` on for `for_s`, and of `base` again."""
    _inside(at_s, at_s + for_s, length_s)
    pieces = [(at_s, base), (for_s, to), (length_s - at_s - for_s, base)]
    return [Step(length_s=length, rate_per_s=rate) for length, rate in pieces if length > 0]


def ramp_steps(base: float, to: float, at_s: float, for_s: float, length_s: float) -> list[Step]:
    """Return a rate of `base` that grows evenly to `to` from `at_s` on within `for_s`, and stays there."""
    _inside(at_s, at_s + for_s, length_s)

    def rate(t: float) -> float:
        return base + (to - base) * min(max((t - at_s) / for_s, 0.0), 1.0)

    return _sliced(rate, length_s)


def spike_steps(base: float, to: float, at_s: float, decay_s: float, length_s: float) -> list[Step]:
    """Return a rate of `base` that jumps to `to` at `at_s` and decays back exponentially (time constant `decay_s`)."""
    _inside(at_s, at_s, length_s)
    # Cut at the jump, so that it is where it is said to be.
    quiet = [Step(length_s=at_s, rate_per_s=base)] if at_s else []
    return quiet + _sliced(lambda t: base + (to - base) * math.exp(-t / decay_s), length_s - at_s)


def diurnal_steps(
    mean: float, amplitude: float, noise: float, draw: Random, *, period_s: float, length_s: float, peak_s: float
) -> list[Step]:
    """Return a rate that goes up and down as a cosine, times lognormal noise of mean 1 that changes each 1440th.

    `amplitude` is the swing's share of the mean, `noise` the logarithm's standard deviation, `peak_s` when the rate is
    highest. A day's 1440th is a minute.
    """
    if not 0 <= amplitude <= 1:
        raise BadInputError(f"--amplitude {amplitude:g}: expected from 0 to 1, the share of the mean rate")
    steps, at_s, slice_s = [], 0.0, period_s / 1440
    while at_s < length_s:
        width = min(slice_s, length_s - at_s)
        swing = 1 + amplitude * math.cos(2 * math.pi * (at_s + width / 2 - peak_s) / period_s)
        factor = math.exp(noise * _normal(draw) - noise**2 / 2)
        steps.append(Step(length_s=width, rate_per_s=max(0.0, mean * swing * factor)))
        at_s += slice_s
    return steps


def modulated_steps(rates: list[float], stays_s: list[float], length_s: float, draw: Random) -> list[Step]:
    """Return the rate of a Markov-modulated Poisson process: states with a rate and a mean stay each.

    Stays are exponential; the next state is any other, with equal chance. It begins in the first.
    """
    if len(rates) < 2 or len(rates) != len(stays_s) or min(stays_s) <= 0:
        raise BadInputError("a modulated process needs two states or more, each with a rate and a mean stay above 0")
    steps, at_s, state = [], 0.0, 0
    while at_s < length_s:
        stay_s = min(-math.log(_open(draw)) * stays_s[state], length_s - at_s)
        if stay_s > 0:
            steps.append(Step(length_s=stay_s, rate_per_s=rates[state]))
        at_s += stay_s
        other = int(draw.random() * (len(rates) - 1))
        state = other if other < state else other + 1
    return steps


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """One client of a mixture: its rate, its gaps' coefficient of variation, and how long its requests are."""

    rate_per_s: float
    cv: float
    input_factor: float
    output_factor: float


def clients(count: int, rate_per_s: float, *, skew: float, cv: float, spread: float, draw: Random) -> list[Client]:
    """Return a mixture of clients as production traffic has it (ServeGen, 2025): few send most, each in its own way.

    The k-th client's rate falls as k^-skew. Coefficients of variation are lognormal around `cv`, and length factors
    lognormal around 1, all with `spread` as the logarithm's standard deviation.
    """
    weights = [(k + 1) ** -skew for k in range(count)]
    total = sum(weights)

    def factor() -> float:
        return math.exp(spread * _normal(draw))

    return [
        Client(
            rate_per_s=rate_per_s * weight / total,
            cv=min(max(cv * factor(), 0.1), 10.0),
            input_factor=factor(),
            output_factor=factor(),
        )
        for weight in weights
    ]


def mixture_arrivals_us(mixed: list[Client], length_s: float, seed: int) -> list[tuple[int, int]]:
    """Return (µs, client) in order; each client is a gamma renewal process that has been running for long."""
    return list(merge(*(_running(client, number, length_s, seed) for number, client in enumerate(mixed))))


def _running(client: Client, number: int, length_s: float, seed: int) -> list[tuple[int, int]]:
    draw = Random(f"{seed}/client-{number}")
    before_s = _BURN_IN_GAPS / client.rate_per_s
    arrivals = renewal_arrivals_us(gamma_gap(client.cv), client.rate_per_s, before_s + length_s, draw)
    shift_us = round(before_s * US_PER_S)
    return [(us - shift_us, number) for us in arrivals if us >= shift_us]


def _sliced(rate: Callable[[float], float], length_s: float) -> list[Step]:
    """Return steps of a second with the rate in their middle."""
    whole, rest = divmod(length_s, _SLICE_S)
    widths = [_SLICE_S] * int(whole) + ([rest] if rest > 0 else [])
    return [Step(length_s=width, rate_per_s=rate(i * _SLICE_S + width / 2)) for i, width in enumerate(widths)]


def _inside(start_s: float, end_s: float, length_s: float) -> None:
    if not 0 <= start_s <= end_s <= length_s:
        raise BadInputError(f"the change from {start_s:g} s to {end_s:g} s lies outside of a trace of {length_s:g} s")


def _check_cv(cv: float) -> None:
    if not 0.05 <= cv <= 20:
        raise BadInputError(f"a coefficient of variation of {cv:g} is out of range; expected from 0.05 to 20")


def _weibull_cv(shape: float) -> float:
    # In logarithms: the gamma function overflows for small shapes.
    ratio = math.exp(math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape))
    return math.sqrt(max(0.0, ratio - 1))


def _normal(draw: Random) -> float:
    return _NORMAL.inv_cdf(_open(draw))


def _open(draw: Random) -> float:
    """Return a uniform number in (0, 1): logarithm and normal quantile have no value at 0."""
    return draw.random() or 2.0**-54
