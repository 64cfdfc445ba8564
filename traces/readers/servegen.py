"""ServeGen's client windows: not a trace, but how each client's arrivals are distributed, window by window.

`chunk-N-trace.csv` has no header: window start (s), rate (requests/s), coefficient of variation, law (Gamma, Weibull,
or empty for an idle window), and the law's shape and scale. `chunk-N-dataset.json` beside it holds the distributions of
token counts per window, each written as a Python dictionary inside a string; without it, lengths are unknown.

Arrivals are drawn anew: gaps of the law's shape, stretched so that their mean is one over the window's rate (the
fitted scale is not used: rate and scale disagree in places, and load is what matters). The same seed gives the same
arrivals. A folder of chunks is all its clients together.
"""

from __future__ import annotations

import ast
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate, islice
from pathlib import Path
from random import Random
from statistics import NormalDist
from typing import Any, Final

import msgspec

from traces.errors import BadInputError, first_line
from traces.readers.base import MAX_TOKENS, Batch, Format, Options, relative
from traces.readers.head import Head
from traces.readers.json_rows import Row, row_frame
from traces.readers.lines import blocks
from traces.units import US_PER_S

_WINDOW_S: Final = 600.0
_FIELDS: Final = 6
_ROWS_PER_BATCH: Final = 20_000
_MOST_PER_WINDOW: Final = 10_000_000
"""A rate that asks for more is a mistake, and would not end."""

_NORMAL: Final = NormalDist()


class _Window(msgspec.Struct, frozen=True):
    start_s: float
    rate_per_s: float
    law: str
    shape: float


class _Lengths(msgspec.Struct, frozen=True):
    """Token counts and the cumulated weights by which they are drawn."""

    counts: list[int]
    cumulated: list[float]

    def draw(self, uniform: float) -> int:
        return self.counts[min(bisect_right(self.cumulated, uniform * self.cumulated[-1]), len(self.counts) - 1)]


def _sniff(head: Head) -> bool:
    lines = [line for line in head.content.decode("utf-8", "replace").splitlines()[:20] if line.strip()]
    return bool(lines) and all(isinstance(_window(line), _Window) or _is_idle(line) for line in lines[:-1] or lines)


def _is_idle(line: str) -> bool:
    fields = line.split(",")
    return len(fields) == _FIELDS and not fields[3].strip() and all(_number(each) is not None for each in fields[:3])


def _window(line: str) -> _Window | str:
    """Return the window that a line describes, or why there is none."""
    if not line.strip():
        return "blank_line"
    if _is_idle(line):
        return "idle_window"
    fields = line.split(",")
    if len(fields) != _FIELDS or fields[3] not in _LAWS:
        return "malformed_row"
    start_s, rate, shape = _number(fields[0]), _number(fields[1]), _number(fields[4])
    if start_s is None or rate is None or shape is None or shape == 0:
        return "malformed_row"
    if rate == 0:
        return "idle_window"
    return _Window(start_s, rate, fields[3], shape) if rate * _WINDOW_S <= _MOST_PER_WINDOW else "malformed_row"


def _number(field: str) -> float | None:
    try:
        number = float(field)
    except ValueError:
        return None
    return number if 0 <= number < 1e12 else None


def _batches(path: Path, options: Options) -> Iterator[Batch]:
    lines = [(raw, _decoded(raw)) for block in blocks(path) for raw in block.lines()]
    parsed = [(raw, "not_utf8" if line is None else _window(line.rstrip("\r"))) for raw, line in lines]
    starts = sorted(window.start_s for _, window in parsed if isinstance(window, _Window))
    lengths = _lengths_of(path)
    seed, first = options.seed or 0, 0
    for raw, window in parsed:
        if isinstance(window, str):
            drawn: Iterator[Row] = iter([{"reason": window}])
        else:
            following = bisect_right(starts, window.start_s)
            end_s = min([window.start_s + _WINDOW_S, *starts[following : following + 1]])
            drawn = _requests(window, end_s, lengths, Random(f"{seed}/{path.name}/{window.start_s:g}"))
        while rows := list(islice(drawn, _ROWS_PER_BATCH)):
            yield Batch(row_frame(rows, first), raw=[raw] * len(rows))
            first += len(rows)


def _decoded(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _requests(window: _Window, end_s: float, lengths: dict[float, dict[str, _Lengths]], draw: Random) -> Iterator[Row]:
    gap = _LAWS[window.law]
    known = lengths.get(max((at for at in lengths if at <= window.start_s), default=-1.0), {})
    at_s = window.start_s + gap(draw, window.shape) / window.rate_per_s
    while at_s < end_s:
        row: Row = {"arrival_us": round(at_s * US_PER_S)}
        for column, table in known.items():
            row[column] = table.draw(draw.random())
        yield row
        at_s += gap(draw, window.shape) / window.rate_per_s


def _gamma_gap(draw: Random, shape: float) -> float:
    """Return a gap of mean 1 (Marsaglia and Tsang, 2000; a shape below 1 is boosted by a power of a uniform)."""
    boost = 1.0 if shape >= 1 else (draw.random() or 2.0**-54) ** (1 / shape)
    boosted = shape if shape >= 1 else shape + 1
    d = boosted - 1 / 3
    while True:
        x = _NORMAL.inv_cdf(draw.random() or 2.0**-54)
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(draw.random() or 2.0**-54) < x * x / 2 + d - d * v + d * math.log(v):
            return d * v * boost / shape


def _weibull_gap(draw: Random, shape: float) -> float:
    """Return a gap of mean 1, by inversion."""
    return float((-math.log1p(-draw.random())) ** (1 / shape) / math.gamma(1 + 1 / shape))


_LAWS: Final[dict[str, Callable[[Random, float], float]]] = {"Gamma": _gamma_gap, "Weibull": _weibull_gap}


def _lengths_of(path: Path) -> dict[float, dict[str, _Lengths]]:
    """Return the token counts of each window of the client whose windows are at `path`."""
    beside = path.with_name(path.name.replace("-trace.csv", "-dataset.json"))
    if beside == path or not beside.is_file():
        return {}
    try:
        windows = msgspec.json.decode(beside.read_bytes(), type=dict[str, dict[str, Any]])
        return {float(start): _columns(fields) for start, fields in windows.items()}
    except (msgspec.MsgspecError, ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise BadInputError(
            f"{beside}: not a ServeGen dataset ({first_line(error)}); expected windows of "
            f"input_tokens and output_tokens, remove the file to go without lengths"
        ) from error


def _columns(fields: dict[str, Any]) -> dict[str, _Lengths]:
    return {
        name: found for name in ("input_tokens", "output_tokens") if (found := _weights(fields.get(name))) is not None
    }


def _weights(written: Any) -> _Lengths | None:
    if written is None:
        return None
    # literal_eval reads literals only: nothing in the file is run.
    table = ast.literal_eval(written) if isinstance(written, str) else written
    if not isinstance(table, dict):
        raise TypeError("a distribution is no dictionary")
    pairs = sorted((int(count), float(weight)) for count, weight in table.items())
    if any(not 0 <= count <= MAX_TOKENS or not 0 <= weight < 1e12 for count, weight in pairs):
        raise ValueError("a distribution holds a count or a weight that is none")
    cumulated = list(accumulate(weight for _, weight in pairs))
    return _Lengths([count for count, _ in pairs], cumulated) if pairs and cumulated[-1] > 0 else None


FORMAT: Final = Format(
    name="servegen",
    expected="chunk-N-trace.csv of ServeGen: window start (s), rate, CV, Gamma or Weibull, shape, scale; no header",
    time_text=lambda options: f"seconds from the first window; arrivals are drawn, with seed {options.seed or 0}",
    sniff=_sniff,
    batches=_batches,
    origin_us=relative,
    options=frozenset({"seed"}),
    unordered=True,
    notes=("arrivals are drawn from each client's windows: they are not a recording",),
    companions="chunk-*-dataset.json",
)
