"""Rules that end a replay early when it goes wrong: `errors>5%`, `lag>100ms`, `p99>30s`. Pure: pass the time.

`errors` is the share of requests that failed, `lag` the 99th percentile of the client's own lag (client time), `p99`
that of the whole answer from due, over successful requests (endpoint time); each over what ended within the window. A
rule that holds at every look for the grace period ends the replay. Nothing is judged while nothing ends.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from loadgen.histogram import Histogram
from traces.errors import BadInputError
from traces.thresholds import Threshold
from traces.units import US_PER_S, format_duration, parse_duration_us

_RULE = re.compile(r"\s*(errors|lag|p99)\s*>\s*(\S.*?)\s*")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule; `limit` is a share for `errors`, µs for the others. `text` is how the user wrote it."""

    metric: Literal["errors", "lag", "p99"]
    limit: float
    text: str


def parse_rule(text: str) -> Rule:
    """Return the rule that `text` states.

    >>> parse_rule("errors > 5%").limit, parse_rule("lag>100ms").limit
    (0.05, 100000.0)
    """
    match = _RULE.fullmatch(text)
    if match is None:
        raise BadInputError(f'"{text}" is not a rule: expected errors>SHARE%, lag>TIME or p99>TIME, such as errors>5%')
    share = _SHARE.fullmatch(match[2])
    if match[1] == "errors" and share is None:
        raise BadInputError(f'"{text}" is not a rule: expected a percentage, such as errors>5%')
    limit = float(share[1]) / 100 if match[1] == "errors" and share else float(parse_duration_us(match[2]))
    return msgspec.convert({"metric": match[1], "limit": limit, "text": text.strip()}, Rule)


def rules_of(thresholds: Sequence[Threshold]) -> list[Rule]:
    """Return the rules for those thresholds that can be judged while the load runs; the others wait for the analysis.

    >>> from traces.thresholds import parse_threshold
    >>> [rule.text for rule in rules_of([parse_threshold("failed(requests) < 5%"), parse_threshold("pull < 3m")])]
    ['failed(requests) < 5%']
    """
    found = []
    for one in thresholds:
        metric = _WATCHED.get((one.quantity.name, one.quantity.stat))
        if metric is not None and one.quantity.function in {"requests", "of_requests"} and one.sign in {"<", "<="}:
            found.append(Rule(metric=metric, limit=one.limit, text=one.text))
    return found


_WATCHED: Final[dict[tuple[str, str | None], Literal["errors", "lag", "p99"]]] = {
    ("failed", None): "errors",
    ("lag", "p99"): "lag",
    ("e2e", "p99"): "p99",
}


class _Second(msgspec.Struct):
    at: int
    ended: int = 0
    failed: int = 0
    lag: Histogram = msgspec.field(default_factory=Histogram)
    latency: Histogram = msgspec.field(default_factory=Histogram)


class AbortWatch:
    """Follows what ends, and says when a rule has held for the grace period. Memory: one window."""

    def __init__(self, rules: list[Rule], *, window_us: int, grace_us: int) -> None:
        self._rules = rules
        self._window_s = max(1, round(window_us / US_PER_S))
        self._grace_us = grace_us
        self._seconds: deque[_Second] = deque()
        self._since: dict[str, int] = {}

    def ended(self, now_us: int, *, failed: bool, lag_us: int | None, latency_us: int | None) -> None:
        """Take a request that was attempted and has ended."""
        if not self._rules:
            return
        at = now_us // US_PER_S
        if not self._seconds or self._seconds[-1].at != at:
            self._seconds.append(_Second(at))
        second = self._seconds[-1]
        second.ended += 1
        second.failed += failed
        if lag_us is not None:
            second.lag.add(lag_us)
        if latency_us is not None and not failed:
            second.latency.add(latency_us)

    def take(self) -> list[dict[str, Any]]:
        """Return what ended since the last call, in plain values, for another watch's `merge`; it is forgotten here."""
        seconds, self._seconds = self._seconds, deque()
        return [
            {
                "at": second.at,
                "ended": second.ended,
                "failed": second.failed,
                "lag": second.lag.to_document(),
                "latency": second.latency.to_document(),
            }
            for second in seconds
        ]

    def merge(self, seconds: list[dict[str, Any]]) -> None:
        """Take what another watch has taken, in any order."""
        for document in seconds:
            second = next((known for known in self._seconds if known.at == document["at"]), None)
            if second is None:
                second = _Second(int(document["at"]))
                self._seconds = deque(sorted([*self._seconds, second], key=lambda one: one.at))
            second.ended += int(document["ended"])
            second.failed += int(document["failed"])
            second.lag.merge(Histogram.from_document(document["lag"]))
            second.latency.merge(Histogram.from_document(document["latency"]))

    def check(self, now_us: int) -> str | None:
        """Return why the replay should end, or `None`. To be called about once per second."""
        while self._seconds and self._seconds[0].at <= now_us // US_PER_S - self._window_s:
            self._seconds.popleft()
        for rule in self._rules:
            value = self._value(rule)
            if value is None or value <= rule.limit:
                self._since.pop(rule.text, None)
                continue
            since = self._since.setdefault(rule.text, now_us)
            if now_us - since >= self._grace_us:
                return f"{rule.text} held for {format_duration(self._grace_us)} ({_shown(rule, value)} at last)"
        return None

    def _value(self, rule: Rule) -> float | None:
        if rule.metric == "errors":
            ended = sum(second.ended for second in self._seconds)
            return sum(second.failed for second in self._seconds) / ended if ended else None
        merged = Histogram()
        for second in self._seconds:
            merged.merge(second.lag if rule.metric == "lag" else second.latency)
        return merged.quantile_us(0.99)


def _shown(rule: Rule, value: float) -> str:
    return f"{value:.0%}" if rule.metric == "errors" else format_duration(value)
