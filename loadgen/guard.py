"""Before the first byte: what a replay would send and cost, and whether the user allowed that. Pure."""

from __future__ import annotations

import msgspec
import polars as pl

from loadgen.abort import AbortWatch, parse_rule, rules_of
from loadgen.scenario import GateSection, GuardSection, PricesSection, ReplaySection
from traces.errors import BadInputError
from traces.manifest import Laps
from traces.thresholds import parse_threshold
from traces.units import US_PER_S, format_duration


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan would send, in endpoint time. `None`: it has no end, or no price is known.

    `peak_per_s` is the highest number of arrivals in one second. Lengths that the trace does not state count as the
    scenario's defaults, as they are sent.
    """

    requests: int | None
    input_tokens: int | None
    output_tokens: int | None
    length_us: int | None
    peak_per_s: int
    cost: float | None = None
    currency: str = "USD"


def estimate(
    frame: pl.LazyFrame, replay: ReplaySection, prices: PricesSection, laps: Laps | None, planned: int | None
) -> Estimate:
    """Return what the rows of a Trace table, repeated as `laps` says, would come to: `planned` requests in all."""
    rows, input_tokens, output_tokens, last_us = (
        frame.select(
            pl.len(),
            pl.col("input_tokens").fill_null(replay.default_input_tokens).clip(1).sum().alias("input"),
            pl.col("output_tokens").fill_null(replay.default_output_tokens).clip(1).sum().alias("output"),
            pl.col("arrival_us").max().alias("last"),
        )
        .collect(engine="streaming")
        .row(0)
    )
    second = (pl.col("arrival_us") // US_PER_S).alias("second")
    peak = frame.group_by(second).len().select(pl.col("len").max()).collect(engine="streaming").item()
    if planned is None:
        return Estimate(requests=None, input_tokens=None, output_tokens=None, length_us=None, peak_per_s=peak)
    times = planned / rows
    length_us = last_us if laps is None or laps.until_us is None else laps.until_us
    found = Estimate(
        requests=planned,
        input_tokens=round(input_tokens * times),
        output_tokens=round(output_tokens * times),
        length_us=length_us,
        peak_per_s=peak,
        currency=prices.currency,
    )
    return msgspec.structs.replace(found, cost=_cost(found, prices))


def refuse_beyond(found: Estimate, guard: GuardSection) -> None:
    """Raise `BadInputError` when a plan goes beyond what the user allowed."""
    limits = (
        ("max_requests", "requests", found.requests, guard.max_requests),
        ("max_rate", "requests in its busiest second", found.peak_per_s, guard.max_rate),
        ("max_cost", found.currency, found.cost, guard.max_cost),
    )
    for name, unit, value, limit in limits:
        if limit is None:
            continue
        option = f"--{name.replace('_', '-')}"
        if value is None:
            why = "no end; give --duration" if found.requests is None else "no price; add [prices] to the scenario"
            raise BadInputError(f"{option} {limit:g} cannot be held: the plan has {why}")
        if value > limit:
            raise BadInputError(
                f"the plan comes to {value:,.6g} {unit}, above {option} {limit:g}; cut it with --window or --duration, "
                "or raise the limit"
            )


def abort_watch(guard: GuardSection, gate: GateSection) -> AbortWatch:
    """Return what follows the rules that may end a replay early, the gate's among them where it says so."""
    rules = [parse_rule(rule) for rule in guard.abort_on]
    if gate.abort:
        rules += rules_of([parse_threshold(text) for text in gate.thresholds])
    return AbortWatch(rules, window_us=guard.abort_window_us, grace_us=guard.abort_grace_us)


def needs_confirmation(found: Estimate, guard: GuardSection, *, loopback: bool) -> bool:
    """Tell whether a user has to say yes first: another machine is the target, and it is more than a first try."""
    if loopback:
        return False
    if found.requests is None or found.requests > guard.confirm_above_requests:
        return True
    return found.cost is not None and found.cost > guard.confirm_above_cost


def described(found: Estimate) -> str:
    """Return an estimate in words.

    >>> described(Estimate(requests=1200, input_tokens=3_000_000, output_tokens=90_000, length_us=60_000_000,
    ...     peak_per_s=40, cost=12.345))
    '1,200 requests in 60 s (up to 40 per second), 3,000,000 input and 90,000 output tokens, 12.35 USD'
    """
    if found.requests is None or found.length_us is None:
        return f"requests without end (up to {found.peak_per_s} per second)"
    parts = [
        f"{found.requests:,} requests in {format_duration(found.length_us)} (up to {found.peak_per_s} per second)",
        f"{found.input_tokens:,} input and {found.output_tokens:,} output tokens",
    ]
    if found.cost is not None:
        parts.append(f"{found.cost:,.2f} {found.currency}")
    return ", ".join(parts)


def _cost(found: Estimate, prices: PricesSection) -> float | None:
    rates = (
        (found.input_tokens, prices.per_million_input_tokens, 1e6),
        (found.output_tokens, prices.per_million_output_tokens, 1e6),
        (found.requests, prices.per_thousand_requests, 1e3),
        (found.length_us, prices.per_hour, 3600e6),
    )
    known = [(amount or 0) / unit * price for amount, price, unit in rates if price is not None]
    return sum(known) if known else None
