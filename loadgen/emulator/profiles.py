"""Endpoints to simulate: the bundled ones, and those that a fit has saved."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from loadgen.emulator.config import TABLE, EmulatorConfig
from loadgen.strict_toml import convert_strictly, read_toml
from traces.errors import BadInputError, did_you_mean

_BUNDLED = Path(__file__).with_name("profiles.toml")
_BESIDE = frozenset({TABLE, "fitted", "intervals", "published_s"})
"""What a profile may hold: the endpoint, and what is known about where its figures come from."""


def names() -> list[str]:
    """Return the names of the bundled profiles."""
    return list(_documents())


def published_s(name: str) -> tuple[float, float]:
    """Return a bundled profile's published start-up times, without and with the image cache."""
    found = _documents()[name]["published_s"]
    return float(found["without_image_cache"]), float(found["with_image_cache"])


def profile(name: str) -> EmulatorConfig:
    """Return the endpoint of a bundled profile, or of a profile file when `name` is one's path."""
    bundled = _documents().get(name)
    if bundled is not None:
        return convert_strictly(bundled[TABLE], EmulatorConfig, origin=f"profile {name}", table=TABLE)
    file = Path(name)
    if file.suffix != ".toml":
        hint = did_you_mean(name, names()) or f"; there are: {', '.join(names())}"
        raise BadInputError(f'no profile "{name}"{hint}, or give a TOML file that --fit saved')
    document = read_toml(file, "save one with `ramptrace simulate --fit RUN`")
    unknown = sorted(set(document) - _BESIDE)
    if unknown or TABLE not in document:
        wrong = f'unknown table "{unknown[0]}"' if unknown else f"no [{TABLE}] table"
        raise BadInputError(f"{file}: {wrong}; expected a profile as `ramptrace simulate --fit RUN` saves it")
    return convert_strictly(document[TABLE], EmulatorConfig, origin=str(file), table=TABLE)


def with_settings(endpoint: EmulatorConfig, settings: dict[str, dict[str, Any]]) -> EmulatorConfig:
    """Return an endpoint with keys of its tables replaced: `{"startup": {"image_cache": True}}`."""
    document = msgspec.to_builtins(endpoint)
    for table, values in settings.items():
        document[table] = {**document[table], **values}
    return convert_strictly(document, EmulatorConfig, origin="settings", table=TABLE)


@lru_cache(maxsize=1)
def _documents() -> dict[str, dict[str, Any]]:
    return read_toml(_BUNDLED, "reinstall ramptrace")
