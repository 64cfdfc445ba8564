"""Small bundled traces of our own making: `names()`, `entry(name)`, `path(name)`.

`catalogue.toml` says how each was made; `python -m traces.corpus` makes the files anew from it.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec
import polars as pl

from traces.errors import BadInputError, did_you_mean
from traces.synth import Lengths, Step, synthesise

FOLDER = Path(__file__).parent
CATALOGUE = FOLDER / "catalogue.toml"


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of the generator `traces.synth.synthesise`, apart from the seed."""

    steps: list[Step]
    input_tokens: Lengths
    output_tokens: Lengths


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bundled trace. `length_s` is what the steps add up to; `sha256` is the file's."""

    name: str
    file: str
    title: str
    generator: str
    parameters: Parameters
    seed: int
    rows: int
    length_s: float
    sha256: str
    licence: str


def names() -> list[str]:
    """Return the names of the bundled traces, in the catalogue's order."""
    return list(_entries())


def entry(name: str) -> Entry:
    """Return the catalogue's entry; an unknown name is a `BadInputError` that suggests the nearest."""
    entries = _entries()
    if name not in entries:
        hint = did_you_mean(name, list(entries))
        raise BadInputError(f'no bundled trace "{name}"{hint}; bundled are: {", ".join(entries)}')
    return entries[name]


def path(name: str) -> Path:
    """Return the bundled trace's file."""
    return FOLDER / entry(name).file


def generate(made: Entry) -> pl.DataFrame:
    """Return the entry's trace, made anew from its parameters and seed."""
    parameters = made.parameters
    return synthesise(parameters.steps, parameters.input_tokens, parameters.output_tokens, made.seed)


@cache
def _entries() -> dict[str, Entry]:
    document = tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))
    return {found.name: found for found in msgspec.convert(document["trace"], list[Entry])}
