"""Engine log lines: which of them date something. The patterns are data, in `log_patterns.toml`."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

_WRAPPERS = (
    re.compile(r"\[\w+\s*\] PyProcess - W-\d+-.{0,15}?-std(?:out|err): "),  # DJL around an engine's output
    re.compile(r"\[(?:INFO|WARN|ERROR|DEBUG|TRACE)\s*\] [\w.$]+ - "),  # DJL itself
    re.compile(r"(?:\([\w -]+ pid=\d+\) )+"),  # vLLM's processes; a worker's line may carry its parent's name too
    # vLLM (`[file.py:1]`, before 0.8 `file.py:1]`), uvicorn
    re.compile(r"(?:INFO|WARNING|ERROR|DEBUG):? +(?:\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? +\[?[\w./]+:\d+\] )?"),
    re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] "),  # SGLang
    re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z +\w+ (?:[\w:-]+(?:\{[^}]*\})?: )*(?:\S+\.rs:\d+: )?"),  # TGI
    re.compile(r'[IWEV]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\.cc:\d+\] "?'),  # Triton; newer versions quote the message
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 2_000
"""Characters of a line that are looked at: what we look for is near the start, and lines can hold whole prompts."""


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of line."""

    name: str
    engine: str
    versions: str
    regex: str
    example: str
    anchor: str | None = None


class Match(NamedTuple):
    """What a line told; its text is not kept."""

    pattern: Pattern
    duration_us: int | None
    resolution_us: int | None = None
    """How finely the line states the duration."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    pattern: list[Pattern]


@cache
def patterns() -> tuple[Pattern, ...]:
    """Return the patterns of `log_patterns.toml`, in the file's order."""
    text = files(__package__).joinpath("log_patterns.toml").read_text(encoding="utf-8")
    return tuple(msgspec.convert(tomllib.loads(text), _File).pattern)


def match(line: str) -> Match | None:
    """Return the first pattern that a log line fits, with the duration that the line states, if it states one."""
    message = unwrap(line)
    for pattern in patterns():
        found = _compiled(pattern.regex).match(message)
        if found is not None:
            return Match(pattern, _duration_us(found.groupdict()), _resolution_us(found.groupdict()))
    return None


def unwrap(line: str) -> str:
    """Return a line without colours and without what engines and supervisors put before the message.

    >>> unwrap("[INFO ] PyProcess - W-97-model-stdout: (APIServer pid=1) INFO:     Application startup complete.")
    'Application startup complete.'
    """
    message = _COLOURS.sub("", line[:_LONGEST]).strip()
    for wrapper in _WRAPPERS:
        found = wrapper.match(message)
        if found is not None:
            message = message[found.end() :]
    return message


@cache
def _compiled(regex: str) -> re.Pattern[str]:
    return re.compile(regex)


def _duration_us(groups: dict[str, str | None]) -> int | None:
    if seconds := groups.get("seconds"):
        return round(float(seconds) * 1_000_000)
    if millis := groups.get("millis"):
        return round(float(millis) * 1_000)
    return None


def _resolution_us(groups: dict[str, str | None]) -> int | None:
    """Return what the last printed digit is worth."""
    for name, unit_us in (("seconds", 1_000_000), ("millis", 1_000)):
        if text := groups.get(name):
            return max(1, round(unit_us / 10.0 ** len(text.partition(".")[2])))
    return None
