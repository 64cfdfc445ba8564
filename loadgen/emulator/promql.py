"""The part of PromQL that event-driven samples need: one metric, label matchers, an instant or a range.

`name{"quoted.label"="value", label=~"pattern"}[30m]` read at one instant gives each series' raw samples; without a
range, each series' newest sample of the last five minutes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from loadgen.emulator.fleet import OperationSample
from traces.units import US_PER_S, parse_duration_us

LOOK_BACK_US = 5 * 60 * US_PER_S
MOST_SERIES = 500

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_STRING = r'"(?:[^"\\]|\\.)*"'
_SELECTOR = re.compile(
    rf"\s*(?P<name>{_NAME})?\s*(?:\{{(?P<matchers>(?:[^{{}}\"]|{_STRING})*)\}})?\s*(?:\[(?P<range>(?:\d+(?:ms|[smhdw]))+)\])?\s*"
)
_MATCHER = re.compile(rf"\s*(?P<label>{_NAME}|{_STRING})\s*(?:(?P<sign>=~|!~|!=|=)\s*(?P<value>{_STRING}))?\s*(?:,|$)")


class QueryError(Exception):
    """A query that cannot be read; the message says why."""


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """What a query selects; `range_us` is None for an instant selector."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    range_us: int | None

    def matches(self, sample: OperationSample) -> bool:
        """Tell whether a sample belongs to a selected series."""
        return sample.name == self.name and all(
            _matches(sample.labels.get(label, ""), sign, value) for label, sign, value in self.matchers
        )


def parse_query(text: str) -> Selector:
    """Return the selector that a query is; anything more than a selector raises QueryError."""
    found = _SELECTOR.fullmatch(text)
    if found is None:
        raise QueryError(
            f'cannot read {text!r}: expected metric{{label="value"}} or the same with a range such as [30m]'
        )
    name = found["name"]
    matchers = []
    rest = found["matchers"] or ""
    while rest.strip():
        part = _MATCHER.match(rest)
        if part is None:
            raise QueryError(f"cannot read the matchers {found['matchers']!r}")
        label = _unquote(part["label"])
        if part["sign"] is None:
            # The quoted metric name stands alone between the braces.
            name = label
        elif label == "__name__" and part["sign"] == "=":
            name = _unquote(part["value"])
        else:
            matchers.append((label, part["sign"], _checked(part["sign"], _unquote(part["value"]))))
        rest = rest[part.end() :]
    if not name:
        raise QueryError("a query must name a metric")
    range_us = None if found["range"] is None else _duration_us(found["range"])
    return Selector(name=name, matchers=tuple(matchers), range_us=range_us)


def evaluate(selector: Selector, samples: Iterable[OperationSample], at_us: int, now_us: int) -> dict[str, Any]:
    """Return the `data` of the answer: what could be seen at `now_us` of the time up to `at_us`."""
    range_us = LOOK_BACK_US if selector.range_us is None else selector.range_us
    series: dict[tuple[tuple[str, str], ...], list[OperationSample]] = {}
    for sample in samples:
        seen = sample.visible_us <= now_us and at_us - range_us < sample.at_us <= at_us
        if seen and selector.matches(sample):
            series.setdefault(tuple(sorted(sample.labels.items())), []).append(sample)
    chosen = list(series.items())[:MOST_SERIES]
    if selector.range_us is None:
        result = [
            {"metric": _metric(selector, labels), "value": [at_us / US_PER_S, _text(found[-1].value)]}
            for labels, found in chosen
        ]
        return {"resultType": "vector", "result": result}
    matrix = [
        {
            "metric": _metric(selector, labels),
            "values": [[s.at_us / US_PER_S, _text(s.value)] for s in sorted(found, key=lambda s: s.at_us)],
        }
        for labels, found in chosen
    ]
    return {"resultType": "matrix", "result": matrix}


def names(samples: Iterable[OperationSample], now_us: int) -> list[str]:
    """Return the names of the metrics that have a sample, sorted."""
    return sorted({sample.name for sample in samples if sample.visible_us <= now_us})


def _metric(selector: Selector, labels: tuple[tuple[str, str], ...]) -> dict[str, str]:
    return {"__name__": selector.name, **dict(labels)}


def _text(value: float) -> str:
    return f"{value:.10g}"


def _duration_us(text: str) -> int:
    weeks = re.fullmatch(r"(\d+)w(.*)", text)
    if weeks is None:
        return parse_duration_us(text)
    return int(weeks[1]) * 7 * 86_400 * US_PER_S + (parse_duration_us(weeks[2]) if weeks[2] else 0)


def _unquote(text: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError as error:
        raise QueryError(f"cannot read the string {text}") from error


def _checked(sign: str, value: str) -> str:
    if sign in {"=~", "!~"}:
        try:
            re.compile(value)
        except re.error as error:
            raise QueryError(f"{value!r} is not a regular expression: {error}") from error
    return value


def _matches(actual: str, sign: str, value: str) -> bool:
    matched = actual == value if sign in {"=", "!="} else re.fullmatch(value, actual) is not None
    return matched if sign in {"=", "=~"} else not matched
