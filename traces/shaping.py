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
from traces.readers import LoadedTrace, Options, open_trace
from traces.units import format_duration, parse_duration_us, parse_window_us

DEFAULT_JITTER: Final = "10s"
_RATE_LIMIT: Final = 1000
_LOOP_LIMIT: Final = 10_000
_FIXED_ZONE: Final = re.compile(r"([+-])(\d{2}):?(\d{2})")
_BOUNDS: Final = re.compile(r"(input|output)=(\d*)\.\.(\d*)")


class Shaped(msgspec.Struct, frozen=True, kw_only=True):
    """A trace frame, the instant (µs since 1970 UTC) of its arrival 0 where known, and the steps that made it.

    `sampling_percent` is the share of the real requests that the rows are, where it was declared.
    """

    source: str
    frame: pl.LazyFrame
    origin_us: int | None = None
    sampling_percent: float | None = None
    steps: tuple[LineageStep, ...] = ()

    def after(self, frame: pl.LazyFrame, name: str, parameters: dict[str, Any], **changed: Any) -> Shaped:
        """Return the trace after one more step; its seed and other fields may be among the changes."""
        step = LineageStep(name=name, parameters=parameters, seed=changed.pop("seed", None))
        return msgspec.structs.replace(self, frame=frame, steps=(*self.steps, step), **changed)


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all steps: the seed, how far copies are displaced, and how merged traces are aligned."""

    seed: int = 0
    jitter: str = DEFAULT_JITTER
    merge_by: str = "start"


def load(loaded: LoadedTrace) -> Shaped:
    """Return a trace to be shaped, with the steps that its file states and how it was read."""
    file = {"file": Path(loaded.source).name, "sha256": loaded.sha256}
    read = LineageStep(name="read", parameters=file | loaded.declared, seed=loaded.drawn_seed)
    return Shaped(
        source=loaded.source,
        frame=loaded.scan(),
        origin_us=loaded.origin_us,
        sampling_percent=loaded.sampling_percent,
        steps=(*steps_of(loaded.path), read),
    )


def apply(shaped: Shaped, name: str, text: str, drawing: Drawing) -> Shaped:
    """Return the trace after the step `name` (a key of `STEPS`) with what the user wrote for it.

    The draws of a step depend on the seed and on its place among the steps. Raises `BadInputError` for a value that
    makes no sense, and for a step that leaves no row.
    """
    drawn = drawing.seed + sum(step.seed is not None for step in shaped.steps)
    if name == "rate-scale":
        return _rate_scale(shaped, text, drawn, drawing.jitter)
    if name == "jitter-ties":
        return _jitter_ties(shaped, text, drawn)
    if name == "merge":
        return _merge(shaped, text, drawing)
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
    if text == "sampling":
        return _whole_population(shaped, seed, jitter)
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


def _whole_population(shaped: Shaped, seed: int, jitter: str) -> Shaped:
    """Return the trace at the rate of all requests of which it is a sample; nothing is left to be rescaled then."""
    percent = shaped.sampling_percent
    if percent is None:
        raise BadInputError(
            f"{shaped.source}: nobody said which share of the requests it is; state it with --sampling-percent"
        )
    whole = _rate_scale(shaped, repr(100 / percent), seed, jitter)
    step = whole.steps[-1]
    stated = msgspec.structs.replace(step, parameters=step.parameters | {"sampling_percent": percent})
    return msgspec.structs.replace(whole, steps=(*whole.steps[:-1], stated), sampling_percent=None)


def _jitter_ties(shaped: Shaped, text: str, seed: int) -> Shaped:
    width_us = None if text == "auto" else parse_duration_us(text)
    if width_us == 0:
        raise BadInputError('--jitter-ties 0: nothing would move; expected a duration above 0, or "auto"')
    return shaped.after(transform.jitter_ties(shaped.frame, seed, width_us), "jitter-ties", {"width": text}, seed=seed)


def _loop(shaped: Shaped, text: str) -> Shaped:
    facts = superpose.facts_of(shaped.frame)
    if facts.span_us == 0:
        raise BadInputError(f"{shaped.source}: all rows arrive at one instant; a loop of it has no length")
    times, end_us = _rounds(text, superpose.loop_period_us(facts))
    looped = superpose.loop(shaped.frame, times, facts)
    if end_us is None:
        return shaped.after(looped, "loop", {"times": times})
    return shaped.after(transform.window(looped, 0, end_us), "loop", {"duration": text})


def _rounds(text: str, period_us: int) -> tuple[int, int | None]:
    """Return how many rounds were asked for, and after how many µs the last is cut, where a duration was given."""
    try:
        end_us = None if text.isdecimal() else parse_duration_us(text)
        times = int(text) if end_us is None else math.ceil(end_us / period_us)
    except BadInputError:
        times, end_us = 0, None
    if not 1 <= times <= _LOOP_LIMIT:
        raise BadInputError(
            f"--loop {text}: expected how many times, or for how long, such as 2h; {_LOOP_LIMIT:,} rounds at most"
        )
    return times, end_us


def _merge(shaped: Shaped, text: str, drawing: Drawing) -> Shaped:
    other = load(open_trace(text, None, Options(seed=drawing.seed)))
    if shaped.sampling_percent != other.sampling_percent:
        raise BadInputError(
            f"{text}: {_share(other)}, and {shaped.source} {_share(shaped)}; bring both to their real rates first, "
            "with --rate-scale sampling"
        )
    offset_us, origin_us = 0, shaped.origin_us
    if drawing.merge_by == "clock":
        if shaped.origin_us is None or other.origin_us is None:
            undated = shaped.source if shaped.origin_us is None else text
            raise BadInputError(f"{undated}: its times are relative to its start; merge it with --merge-by start")
        offset_us, origin_us = other.origin_us - shaped.origin_us, min(shaped.origin_us, other.origin_us)
    number = 1 + sum(step.name == "merge" for step in shaped.steps)
    merged = superpose.merge(shaped.frame, other.frame, superpose.facts_of(shaped.frame), number, offset_us)
    parameters = {"with": msgspec.to_builtins(list(other.steps)), "by": drawing.merge_by}
    return shaped.after(merged, "merge", parameters, origin_us=origin_us)


def _share(shaped: Shaped) -> str:
    percent = shaped.sampling_percent
    return "is not declared a sample" if percent is None else f"is a sample of {percent:g} %"


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
    "model": _models,
    "clamp-tokens": _clamp_tokens,
    "shift-zone": _shift_zone,
}
"""The steps that draw nothing, by name; `apply` knows `rate-scale`, `jitter-ties` and `merge` besides."""
