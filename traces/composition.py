"""A synthetic trace put together: arrivals of one kind, lengths, conversations and prefixes, from a user's options."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import polars as pl

from traces import arrivals as processes
from traces.conversations import Opening, Prefixes, Talk, converse
from traces.errors import BadInputError
from traces.readers import open_trace
from traces.readers.base import MAX_TOKENS
from traces.synth import Lengths, Step, poisson_arrivals_us, token_counts
from traces.units import US_PER_S, parse_duration_us

_MOST_ROWS: Final = 20_000_000
_LENGTHS: Final = re.compile(r"(median|sigma|low|high)=(\d+(?:\.\d+)?|\.\d+)")


class Composition(msgspec.Struct, frozen=True):
    """The trace, and the parameters that made it, as they are recorded."""

    frame: pl.DataFrame
    parameters: dict[str, Any]


def compose(kind: str, options: Mapping[str, Any], seed: int) -> Composition:
    """Return the trace that the options of `ramptrace trace synth KIND` describe; the same arguments, the same trace.

    Rates are of requests: with conversations of several turns, openings arrive that much more rarely.
    """
    plain = {name: value for name, value in options.items() if value is not None}
    length_s = _seconds("length", plain["length"])
    turns = plain["turns"]
    if turns < 1:
        raise BadInputError(f"--turns {turns:g}: expected 1 or more, the mean turns of a conversation")
    started = _arrivals(kind, plain, length_s, 1 / turns, seed)
    factors = started.factors or [(1.0, 1.0)] * len(started.arrivals_us)
    lengths, read = _lengths(plain, len(started.arrivals_us), seed)
    openings = [
        Opening(arrival_us=at_us, input_tokens=_scaled(i, by[0]), output_tokens=_scaled(o, by[1]))
        for at_us, by, (i, o) in zip(started.arrivals_us, factors, lengths, strict=True)
    ]
    talk = Talk(mean_turns=turns, mean_think_us=parse_duration_us(plain["think"]))
    frame = converse(openings, talk, _prefixes(plain), length_us=round(length_s * US_PER_S), seed=seed)
    if plain.get("lengths_from"):
        plain["lengths_from"] = read
    return Composition(frame, plain)


class _Started(msgspec.Struct, frozen=True):
    """Openings: when, and how much longer than usual each is (input and output)."""

    arrivals_us: list[int]
    factors: list[tuple[float, float]] = []


def _arrivals(kind: str, plain: Mapping[str, Any], length_s: float, share: float, seed: int) -> _Started:
    if kind == "clients":
        return _client_arrivals(plain, length_s, share, seed)
    if kind in {"gamma", "weibull"}:
        rate = _rate("rate", plain["rate"]) * share
        _check_size(rate * length_s)
        gap = (processes.gamma_gap if kind == "gamma" else processes.weibull_gap)(plain["cv"])
        arrivals = processes.renewal_arrivals_us(gap, rate, length_s, Random(f"{seed}/arrivals"))
    else:
        steps = [
            Step(length_s=step.length_s, rate_per_s=step.rate_per_s * share)
            for step in _steps(kind, plain, length_s, seed)
        ]
        _check_size(sum(step.length_s * step.rate_per_s for step in steps))
        arrivals = poisson_arrivals_us(steps, seed)
    return _Started(arrivals)


def _steps(kind: str, plain: Mapping[str, Any], length_s: float, seed: int) -> list[Step]:
    if kind == "poisson":
        return [Step(length_s=length_s, rate_per_s=_rate("rate", plain["rate"]))]
    if kind == "modulated":
        rates = [_rate("rates", part) for part in plain["rates"].split(",")]
        stays_s = [_seconds("stays", part) for part in plain["stays"].split(",")]
        return processes.modulated_steps(rates, stays_s, length_s, Random(f"{seed}/states"))
    if kind == "diurnal":
        return processes.diurnal_steps(
            _rate("rate", plain["rate"]),
            plain["amplitude"],
            plain["noise"],
            Random(f"{seed}/noise"),
            period_s=_seconds("period", plain["period"]),
            length_s=length_s,
            peak_s=parse_duration_us(plain["peak"]) / US_PER_S,
        )
    base, to = _rate("base", plain["base"], least=0), _rate("to", plain["to"], least=0)
    at_s = parse_duration_us(plain["at"]) / US_PER_S
    if kind == "spike":
        return processes.spike_steps(base, to, at_s, _seconds("decay", plain["decay"]), length_s)
    shape = processes.step_steps if kind == "step" else processes.ramp_steps
    return shape(base, to, at_s, _seconds("for", plain["for_"]), length_s)


def _client_arrivals(plain: Mapping[str, Any], length_s: float, share: float, seed: int) -> _Started:
    count = plain["clients"]
    if not 1 <= count <= 100_000 or not 0 <= plain["skew"] <= 5 or not 0 <= plain["spread"] <= 2:
        raise BadInputError("expected --clients from 1 to 100000, --skew from 0 to 5 and --spread from 0 to 2")
    rate = _rate("rate", plain["rate"]) * share
    _check_size(rate * length_s + 50 * count)
    mixed = processes.clients(
        count, rate, skew=plain["skew"], cv=plain["cv"], spread=plain["spread"], draw=Random(f"{seed}/clients")
    )
    found = processes.mixture_arrivals_us(mixed, length_s, seed)
    if not found:
        raise BadInputError("no client sends anything in a trace this short; raise --rate or --length")
    by = [(mixed[client].input_factor, mixed[client].output_factor) for _, client in found]
    return _Started([us for us, _ in found], by)


def _lengths(
    plain: Mapping[str, Any], count: int, seed: int
) -> tuple[list[tuple[int | None, int | None]], dict[str, str] | None]:
    """Return a pair of lengths for each opening, and what they were read from."""
    if plain.get("lengths_from"):
        loaded = open_trace(plain["lengths_from"])
        pairs = loaded.scan().select("input_tokens", "output_tokens").collect().rows()
        draw = Random(f"{seed}/lengths")
        drawn = [pairs[int(draw.random() * len(pairs))] for _ in range(count)]
        return drawn, {"file": Path(plain["lengths_from"]).name, "sha256": loaded.sha256}
    sides = [
        token_counts(_parse_lengths(f"--{name}-tokens", plain[f"{name}_tokens"]), count, seed, name)
        for name in ("input", "output")
    ]
    return list(zip(*sides, strict=True)), None


def _parse_lengths(option: str, text: str) -> Lengths:
    """Return the lengths that `400` (constant) or `median=400,sigma=0.7,low=16,high=4000` states."""
    if text.isdecimal():
        return Lengths(median=float(_tokens(option, text)), high=MAX_TOKENS)
    found: dict[str, float] = {}
    for part in text.split(","):
        matched = _LENGTHS.fullmatch(part.strip())
        if matched is None:
            raise BadInputError(
                f'{option} "{text}": expected a number, or median=N with sigma, low and high, '
                "such as median=400,sigma=0.7,low=16,high=4000"
            )
        found[matched[1]] = float(matched[2])
    low, high = int(found.get("low", 1)), int(found.get("high", 1_000_000))
    if not found.get("median") or low > high or found.get("sigma", 0) > 5:
        raise BadInputError(f'{option} "{text}": expected a median above 0, low up to high, and a sigma up to 5')
    return Lengths(median=found["median"], sigma=found.get("sigma", 0.0), low=low, high=min(high, MAX_TOKENS))


def _prefixes(plain: Mapping[str, Any]) -> Prefixes | None:
    block, groups, tokens = plain["block_tokens"], plain["prefix_groups"], plain["prefix_tokens"]
    if min(block, groups, tokens) < 0 or (groups and not block):
        raise BadInputError("--prefix-groups needs --block-tokens, such as 16 or 512, to number the shared blocks")
    if not block:
        return None
    if groups and tokens < block:
        raise BadInputError(f"--prefix-tokens {tokens}: no whole block of {block} tokens fits into it")
    return Prefixes(block_tokens=block, groups=groups, shared_tokens=tokens)


def _scaled(tokens: int | None, factor: float) -> int | None:
    if tokens is None or factor == 1:
        return tokens
    return min(max(1, round(tokens * factor)), MAX_TOKENS)


def _tokens(option: str, text: str) -> int:
    if int(text) > MAX_TOKENS:
        raise BadInputError(f"{option} {text}: no request is that long")
    return int(text)


def _rate(name: str, value: str | float, least: float = 1e-9) -> float:
    try:
        rate = float(value)
    except ValueError:
        rate = math.nan
    if not least <= rate <= 1e6:
        raise BadInputError(f"--{name} {value}: expected requests per second, above 0 and at most a million")
    return rate


def _seconds(name: str, text: str) -> float:
    seconds = parse_duration_us(text) / US_PER_S
    if seconds <= 0:
        raise BadInputError(f"--{name} {text}: expected a duration above 0, such as 10m")
    return seconds


def _check_size(rows: float) -> None:
    if rows > _MOST_ROWS:
        raise BadInputError(f"that would be {rows:,.0f} rows; at most {_MOST_ROWS:,} are made, in memory")
