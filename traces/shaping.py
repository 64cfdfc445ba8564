"""A trace on its way through transforms: the rows, the instant of arrival 0, and the steps so far.

Parses what a user writes for a step, applies it, and records it, so that the file that comes out says how it was made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from traces import superpose, transform
from traces.errors import BadInputError, did_you_mean
from traces.lineage import LineageStep, steps_of
from traces.readers import open_trace
from traces.units import format_duration, parse_duration_us, parse_window_us

DEFAULT_JITTER: Final = "10s"
_RATE_LIMIT: Final = 1000
_LOOP_LIMIT: Final = 10_000
_FIXED_ZONE: Final = re.compile(r"([+-])(\d{2}):?(\d{2})")
_BOUNDS: Final = re.compile(r"(input|output)=(\d*)\.\.(\d*)")


class Shaped(msgspec.Struct, frozen=True, kw_only=True):
    """A trace frame, the instant (µs since 1970 UTC) of its arrival 0 where known, and the steps that made it."""

    source: str
    frame: pl.LazyFrame
    origin_us: int | None = None
    steps: tuple[LineageStep, ...] = ()

    def after(self, frame: pl.LazyFrame, name: str, parameters: dict[str, Any], **changed: Any) -> Shaped:
        """Return the trace after one more step; `seed` and `origin_us` may be among the changes."""
        step = LineageStep(name=name, parameters=parameters, seed=changed.pop("seed", None))
        return msgspec.structs.replace(self, frame=frame, steps=(*self.steps, step), **changed)


def load(source: str, fmt: str | None = None) -> Shaped:
    """Return the trace at `source`, with the steps that its file states and where it was read from."""
    loaded = open_trace(source, fmt)
    earlier = steps_of(loaded.path)
    read = LineageStep(name="read", parameters={"file": Path(source).name, "sha256": loaded.sha256})
    return Shaped(source=source, frame=loaded.scan(), origin_us=loaded.origin_us, steps=(*earlier, read))


def apply(shaped: Shaped, name: str, text: str, *, seed: int, jitter: str = DEFAULT_JITTER) -> Shaped:
    """Return the trace after the step `name` (a key of `STEPS`) with what the user wrote for it.

    The draws of a step depend on the seed and on its place among the steps. Raises `BadInputError` for a value that
    makes no sense, and for a step that leaves no row.
    """
    drawn = seed + sum(step.seed is not None for step in shaped.steps)
    if name == "rate-scale":
        return _rate_scale(shaped, text, drawn, jitter)
    if name == "jitter-ties":
        return _jitter_ties(shaped, text, drawn)
    return STEPS[name](shaped, text)


def _window(shaped: Shaped, text: str) -> Shaped:
    start_us, end_us = parse_window_us(text)
    cut = transform.window(shaped.frame, start_us, end_us)
    if not cut.select(pl.len()).collect().item():
        facts = superpose.facts_of(shaped.frame)
        raise BadInputError(transform.no_rows_message(shaped.source, start_us, end_us, facts.span_us, facts.rows))
    origin_us = None if shaped.origin_us is None else shaped.origin_us + start_us
    return shaped.after(cut, "window", {"window": text}, origin_us=origin_us)


def _time_scale(shaped: Shaped, text: str) -> Shaped:
    factor = _factor("--time-scale", text)
    return shaped.after(transform.time_scale(shaped.frame, factor), "time-scale", {"factor": factor})


def _rate_scale(shaped: Shaped, text: str, seed: int, jitter: str) -> Shaped:
    factor = _factor("--rate-scale", text)
    if factor > _RATE_LIMIT:
        raise BadInputError(f"--rate-scale {text}: at most {_RATE_LIMIT} times the traffic can be made of one trace")
    facts = superpose.facts_of(shaped.frame)
    if factor <= 1:
        thinned = superpose.thin(shaped.frame, factor, seed, facts)
        if not thinned.select(pl.len()).collect().item():
            raise BadInputError(f"--rate-scale {text}: none of the {facts.rows:,} rows was drawn; thin it less")
        return shaped.after(thinned, "rate-scale", {"factor": factor, "method": "thinning"}, seed=seed)
    jitter_us = parse_duration_us(jitter)
    if not 0 < jitter_us <= max(facts.span_us, 1):
        raise BadInputError(
            f"--rate-jitter {jitter}: copies at the same instants are no independent traffic, and copies cannot move "
            f"by more than the trace lasts; expected above 0 and at most {format_duration(facts.span_us)}"
        )
    made = superpose.superpose(shaped.frame, factor, jitter_us, seed, facts)
    parameters = {"factor": factor, "method": "superposition", "jitter": jitter}
    return shaped.after(made, "rate-scale", parameters, seed=seed)


def _jitter_ties(shaped: Shaped, text: str, seed: int) -> Shaped:
    width_us = None if text == "auto" else parse_duration_us(text)
    if width_us == 0:
        raise BadInputError('--jitter-ties 0: nothing would move; expected a duration above 0, or "auto"')
    return shaped.after(transform.jitter_ties(shaped.frame, seed, width_us), "jitter-ties", {"width": text}, seed=seed)


def _loop(shaped: Shaped, text: str) -> Shaped:
    if not text.isdecimal() or not 1 <= int(text) <= _LOOP_LIMIT:
        raise BadInputError(f"--loop {text}: expected how many times in all, from 1 to {_LOOP_LIMIT:,}")
    facts = superpose.facts_of(shaped.frame)
    if facts.span_us == 0:
        raise BadInputError(f"{shaped.source}: all rows arrive at one instant; a loop of it has no length")
    return shaped.after(superpose.loop(shaped.frame, int(text), facts), "loop", {"times": int(text)})


def _merge(shaped: Shaped, text: str) -> Shaped:
    other = load(text)
    number = 1 + sum(step.name == "merge" for step in shaped.steps)
    merged = superpose.merge(shaped.frame, other.frame, superpose.facts_of(shaped.frame), number)
    return shaped.after(merged, "merge", {"with": msgspec.to_builtins(list(other.steps))})


def _models(shaped: Shaped, text: str) -> Shaped:
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = shaped.frame.select(pl.col("model").drop_nulls().unique().sort()).collect()["model"].to_list()
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        hint = did_you_mean(unknown[0], known) if unknown else ""
        listed = ", ".join(known[:20]) or "none: the trace names no models"
        raise BadInputError(f'--model: no row asks for "{", ".join(unknown)}"{hint}; models in the trace: {listed}')
    return shaped.after(transform.keep_models(shaped.frame, names), "model", {"names": names})


def _clamp_tokens(shaped: Shaped, text: str) -> Shaped:
    bounds: dict[str, tuple[int | None, int | None]] = {}
    for part in text.split(","):
        matched = _BOUNDS.fullmatch(part.strip())
        low, high = (int(side) if side else None for side in matched.groups()[1:]) if matched else (None, None)
        if matched is None or (low, high) == (None, None) or (None not in (low, high) and low > high):  # type: ignore[operator]
            raise BadInputError(
                f'--clamp-tokens "{part}": expected input=LOW..HIGH or output=LOW..HIGH, joined by a comma, '
                "such as input=..8192,output=1..512"
            )
        bounds[matched[1]] = (low, high)
    open_bounds = (None, None)
    clamped = transform.clamp_tokens(shaped.frame, bounds.get("input", open_bounds), bounds.get("output", open_bounds))
    return shaped.after(clamped, "clamp-tokens", {name: list(pair) for name, pair in bounds.items()})


def _shift_zone(shaped: Shaped, text: str) -> Shaped:
    if shaped.origin_us is None:
        raise BadInputError(
            f"{shaped.source}: its times are relative to its start, so it has no zone; leave out --shift-zone"
        )
    if fixed := _FIXED_ZONE.fullmatch(text):
        offset = timedelta(hours=int(fixed[2]), minutes=int(fixed[3])) // timedelta(microseconds=1)
        origin_us = shaped.origin_us - (offset if fixed[1] == "+" else -offset)
        return shaped.after(shaped.frame, "shift-zone", {"zone": text}, origin_us=origin_us)
    try:
        instants = transform.local_to_utc_us(pl.col("arrival_us") + shaped.origin_us, text)
        first, skipped = (
            shaped.frame.select(instants.min().alias("a"), instants.null_count().alias("b")).collect().row(0)
        )
    except pl.exceptions.ComputeError as error:
        raise BadInputError(
            f'--shift-zone "{text}": not a time zone; expected a name such as Europe/Berlin, or an offset as +02:00'
        ) from error
    if skipped:
        raise BadInputError(
            f"{shaped.source}: {skipped:,} rows lie in the hour that {text} skips in spring; it is not their zone"
        )
    moved = shaped.frame.with_columns((instants - first).alias("arrival_us")).sort("arrival_us", maintain_order=True)
    return shaped.after(moved, "shift-zone", {"zone": text}, origin_us=first)


def _factor(option: str, text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise BadInputError(f"{option} {text}: expected a number above 0, such as 2 or 0.5")
    return factor


STEPS: Final[dict[str, Callable[[Shaped, str], Shaped]]] = {
    "window": _window,
    "time-scale": _time_scale,
    "loop": _loop,
    "merge": _merge,
    "model": _models,
    "clamp-tokens": _clamp_tokens,
    "shift-zone": _shift_zone,
}
"""The steps that draw nothing, by name; `apply` knows `rate-scale` and `jitter-ties` besides."""
