"""Thresholds as people write them: `p95(ttft) < 2s`, `share(pull) < 10%`. Syntax and units only; pure.

    threshold  := quantity ("<" | "<=" | ">" | ">=") NUMBER UNIT
    quantity   := STAT "(" REQUESTS ")"                  p50 p90 p95 p99 max of ttft ttft_sent e2e e2e_sent lag
                | ("late" | "failed") "(" "requests" ")"
                | SPAN [ "." STAT ]                      over the scale-outs; without STAT, each has to hold (max)
                | ("lo" | "hi" | "share") "(" SPAN [ "." STAT ] ")"
                | "regression" "(" (SPAN [ "." STAT ] | STAT "(" REQUESTS ")") "," "baseline" ")"
                | "scale_outs"
    SPAN       := time_to_capacity | startup | unattributed | a phase, or several joined by "+"

Times take `us ms s m h`, shares `%`, counts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NoReturn

import msgspec

from traces.errors import BadInputError, did_you_mean
from traces.schema import HEADLINES, PHASES
from traces.units import parse_duration_us

Dimension = Literal["time", "share", "count"]
Function = Literal["of_requests", "requests", "span", "lo", "hi", "share", "regression", "count"]

STATS: Final = ("p50", "p90", "p95", "p99", "max")
REQUESTS: Final = ("ttft", "ttft_sent", "e2e", "e2e_sent", "lag")
"""What of requests can be asked for: from due, or `_sent` from when they were sent; `lag` is the load generator's."""
COUNTED: Final = ("late", "failed")
TOTALS: Final = ("time_to_capacity", "startup", "unattributed")
SPANS: Final = tuple(dict.fromkeys((*TOTALS, *HEADLINES, *PHASES)))
_BOUNDS: Final = ("lo", "hi", "share")
_WORDS: Final = [*STATS, *COUNTED, *_BOUNDS, "regression", "scale_outs", *SPANS]

_TOKEN = re.compile(r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>\d+(?:\.\d+)?)|(?P<sign><=|>=|[<>().,+%]))")


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured. `name` is of `REQUESTS`, `COUNTED` or spans (joined phases keep their `+`)."""

    function: Function
    name: str
    stat: str | None = None
    of: Quantity | None = None

    @property
    def dimension(self) -> Dimension:
        """What its limit has to be."""
        if self.function in {"share", "requests", "regression"}:
            return "share"
        return "count" if self.function == "count" else "time"


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """One threshold. `limit` is in µs for times, a fraction for shares, plain for counts; `text` as it was written."""

    text: str
    quantity: Quantity
    sign: Literal["<", "<=", ">", ">="]
    limit: float

    def holds(self, value: float) -> bool:
        """Tell whether one value meets the limit."""
        if self.sign in {"<", ">"}:
            return value < self.limit if self.sign == "<" else value > self.limit
        return value <= self.limit if self.sign == "<=" else value >= self.limit


def parse_threshold(text: str) -> Threshold:
    """Return the threshold that `text` states. Raises `BadInputError` with a caret under what is wrong.

    >>> parse_threshold("p95(ttft) < 2s").limit, parse_threshold("regression(startup, baseline) <= 10%").limit
    (2000000.0, 0.1)
    """
    return _Parser(text).threshold()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._next = 0

    def threshold(self) -> Threshold:
        quantity = self._quantity()
        sign = self._take("a comparison: <, <=, > or >=", "<", "<=", ">", ">=")
        limit = self._limit(quantity.dimension)
        if self._next < len(self._tokens):
            self._fail("nothing more; write each threshold by itself")
        return msgspec.convert(
            {"text": self._text.strip(), "quantity": quantity, "sign": sign, "limit": limit}, Threshold
        )

    def _quantity(self) -> Quantity:
        word = self._peek()
        if word in STATS:
            return self._of_requests()
        if word in COUNTED:
            self._next += 1
            self._take("(", "(")
            self._take("requests, which is what can be counted", "requests")
            self._take(")", ")")
            return Quantity(function="requests", name=word)
        if word in _BOUNDS:
            self._next += 1
            self._take("(", "(")
            span = self._span()
            self._take(")", ")")
            return msgspec.structs.replace(span, function=word)
        if word == "regression":
            return self._regression()
        if word == "scale_outs":
            self._next += 1
            return Quantity(function="count", name=word)
        return self._span()

    def _of_requests(self) -> Quantity:
        stat = self._take("a statistic", *STATS)
        self._take("(", "(")
        name = self._take(f"one of {', '.join(REQUESTS)}", *REQUESTS)
        if name == "lag" and stat not in {"p50", "p99", "max"}:
            self._next -= 1
            self._fail("the lag's p50, p99 or max, which are what a run keeps of it")
        self._take(")", ")")
        return Quantity(function="of_requests", name=name, stat=stat)

    def _span(self) -> Quantity:
        expected = "something measured, such as time_to_capacity, pull or p95(ttft)"
        names = [self._take(expected, *SPANS, known=_WORDS)]
        while self._peek() == "+":
            self._next += 1
            names.append(self._take("a phase", *SPANS, known=list(SPANS)))
        stat = None
        if self._peek() == ".":
            self._next += 1
            stat = self._take(f"one of {', '.join(STATS)}", *STATS)
        return Quantity(function="span", name="+".join(names), stat=stat)

    def _regression(self) -> Quantity:
        self._next += 1
        self._take("(", "(")
        of = self._of_requests() if self._peek() in STATS else self._span()
        self._take(", and what to compare with: baseline", ",")
        self._take("baseline, which --baseline or [gate] baseline names", "baseline")
        self._take(")", ")")
        return Quantity(function="regression", name=of.name, stat=of.stat, of=of)

    def _limit(self, dimension: Dimension) -> float:
        expected = {"time": "a time, such as 2s or 4m", "share": "a percentage, such as 10%", "count": "a number"}[
            dimension
        ]
        if self._kind() != "number":
            self._fail(expected)
        place, number = self._next, self._advance()
        unit = self._advance() if self._kind() in {"word", "sign"} and self._peek() not in {None, "(", ")"} else ""
        if dimension == "time" and unit and unit != "%":
            try:
                return float(parse_duration_us(number + unit))
            except BadInputError:
                pass
        elif dimension == "share" and unit == "%":
            return float(number) / 100
        elif dimension == "count" and not unit:
            return float(number)
        self._next = place
        return self._fail(expected)

    def _peek(self) -> str | None:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else None

    def _kind(self) -> str | None:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else None

    def _advance(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1][1]

    def _take(self, expected: str, *allowed: str, known: list[str] | None = None) -> str:
        found = self._peek()
        if found not in allowed:
            self._fail(expected, did_you_mean(found, known or list(allowed)) if found and found.isidentifier() else "")
        self._next += 1
        return found

    def _fail(self, expected: str, hint: str = "") -> NoReturn:
        at = self._tokens[self._next][2] if self._next < len(self._tokens) else len(self._text.rstrip())
        raise _error(self._text, at, expected, hint)


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise _error(text, at, "a threshold such as p95(ttft) < 2s", "")
        kind = match.lastgroup or ""
        yield kind, match[kind], match.start(kind)
        at = match.end()


def _error(text: str, at: int, expected: str, hint: str) -> BadInputError:
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return BadInputError(f"not a threshold: expected {expected}{hint}\n  {shown}\n  {' ' * at}^")
