"""What can be changed about an endpoint, by name: the axes of a sweep, and the levers of an advice. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.profiles import with_settings
from traces.errors import BadInputError, did_you_mean
from traces.units import US_PER_S, parse_duration_us

Settings = dict[str, dict[str, Any]]
_ReadValue = Callable[[str, EmulatorConfig], Settings]


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint of a sweep, and by which values of the axes it came about."""

    values: dict[str, str]
    endpoint: EmulatorConfig


def variants(endpoint: EmulatorConfig, axes: Sequence[tuple[str, Sequence[str]]]) -> list[Variant]:
    """Return every combination of the axes' values, the last axis varying fastest.

    Raises `BadInputError` for an axis or a value that is none.
    """
    found = []
    for combination in itertools.product(*(values for _, values in axes)):
        changed = endpoint
        chosen = dict(zip((name for name, _ in axes), combination, strict=True))
        for name, value in chosen.items():
            changed = apply(changed, name, value)
        found.append(Variant(values=chosen, endpoint=changed))
    return found


def apply(endpoint: EmulatorConfig, axis: str, value: str) -> EmulatorConfig:
    """Return the endpoint with one axis set; minimum capacity and schedules raise the maximum where they must."""
    read = AXES.get(axis)
    if read is None:
        raise BadInputError(f'no axis "{axis}"{did_you_mean(axis, list(AXES))}; there are: {", ".join(AXES)}')
    try:
        settings = read(value, endpoint)
    except (ValueError, BadInputError) as error:
        raise BadInputError(f"{axis}={value}: {error}; {_EXAMPLES[axis]}") from None
    try:
        return with_settings(endpoint, settings)
    except BadInputError as error:
        raise BadInputError(f"{axis}={value}: {error}; {_EXAMPLES[axis]}") from None


def parse_axis(text: str) -> tuple[str, list[str]]:
    """Return an axis and its values.

    >>> parse_axis("image-cache=off,on")
    ('image-cache', ['off', 'on'])
    """
    name, _, values = text.partition("=")
    listed = [value.strip() for value in values.split(",") if value.strip()]
    if not listed:
        raise BadInputError(f'--sweep {text}: expected AXIS=VALUE,VALUE…; for instance "image-cache=off,on"')
    return name.strip(), listed


def _switch(value: str) -> bool:
    if value not in {"on", "off"}:
        raise ValueError("neither on nor off")
    return value == "on"


def _resolution(value: str, _endpoint: EmulatorConfig) -> Settings:
    seconds = parse_duration_us(value) // US_PER_S
    return {"scaling": {"metric_period_s": seconds, "evaluation_interval_s": seconds}}


def _data_cache(value: str, endpoint: EmulatorConfig) -> Settings:
    # Without a machine that is used again there is nothing to find in its cache.
    return {"startup": {"data_cache": _switch(value), "reuse_share": endpoint.startup.reuse_share}}


def _loading(value: str, endpoint: EmulatorConfig) -> Settings:
    times = float(value.removesuffix("x"))
    if times <= 0:
        raise ValueError("not above 0")
    startup = endpoint.startup
    return {"startup": {"weights_s": startup.weights_s / times, "weights_s_per_gb": startup.weights_s_per_gb / times}}


def _minimum(value: str, endpoint: EmulatorConfig) -> Settings:
    return {"scaling": _at_least(int(value), endpoint) | {"min_instances": int(value)}}


def _steps(value: str, _endpoint: EmulatorConfig) -> Settings:
    if value == "target-tracking":
        return {"scaling": {"policy": value}}
    steps = []
    for part in value.split("/"):
        above, _, add = part.partition(":+")
        steps.append({"above": float(above), "add": int(add)})
    return {"scaling": {"policy": "step", "steps": steps}}


def _schedule(value: str, endpoint: EmulatorConfig) -> Settings:
    if value == "off":
        return {"scaling": {"scheduled": []}}
    at, _, count = value.partition(":")
    action = {"at_s": parse_duration_us(at) / US_PER_S, "min_instances": int(count)}
    return {"scaling": _at_least(int(count), endpoint) | {"scheduled": [action]}}


def _at_least(count: int, endpoint: EmulatorConfig) -> dict[str, int]:
    return {"max_instances": max(count, endpoint.scaling.max_instances)}


AXES: Final[dict[str, _ReadValue]] = {
    "metrics-resolution": _resolution,
    "image-cache": lambda value, _: {"startup": {"image_cache": _switch(value)}},
    "data-cache": _data_cache,
    "reuse-share": lambda value, _: {"startup": {"reuse_share": float(value)}},
    "faster-loading": _loading,
    "warm-pool": lambda value, _: {"startup": {"warm_pool": int(value)}},
    "min-instances": _minimum,
    "max-instances": lambda value, _: {"scaling": {"max_instances": int(value)}},
    "target": lambda value, _: {"scaling": {"target": float(value)}},
    "steps": _steps,
    "schedule": _schedule,
}
"""Axis → what a value of it sets in the endpoint's tables."""

_EXAMPLES: Final = {
    "metrics-resolution": "expected 10s or 60s",
    "image-cache": "expected on or off",
    "data-cache": "expected on or off (it acts on machines used again: set reuse-share too)",
    "reuse-share": "expected a share from 0 to 1, such as 0.5",
    "faster-loading": "expected how many times as fast, such as 3x",
    "warm-pool": "expected a number of instances, such as 2",
    "min-instances": "expected a number of instances, such as 2",
    "max-instances": "expected a number of instances, such as 6",
    "target": "expected requests per instance, such as 3",
    "steps": "expected target-tracking, or BEYOND:+COUNT/…, such as 0:+1/8:+2",
    "schedule": "expected off, or TIME:COUNT, such as 60s:3",
}


def examples() -> Iterable[str]:
    """Return a line per axis for the command's help."""
    return (f"{name}: {text}" for name, text in _EXAMPLES.items())
