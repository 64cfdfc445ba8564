"""How a trace came to be: the steps that made or changed it, kept in its file's metadata."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from traces.errors import BadInputError

KEY: Final = "ramptrace.transforms"
"""File metadata: a JSON list of `LineageStep`, oldest first."""


class LineageStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step: its name, its parameters in words or numbers, and the seed of what it drew, if it drew anything."""

    name: str
    parameters: dict[str, Any] = {}
    seed: int | None = None


def metadata(steps: Sequence[LineageStep]) -> dict[str, str]:
    """Return the file metadata that states `steps`; nothing for no step.

    >>> metadata([LineageStep(name="thin", parameters={"share": 0.5}, seed=1)])
    {'ramptrace.transforms': '[{"name":"thin","parameters":{"share":0.5},"seed":1}]'}
    """
    return {KEY: msgspec.json.encode(list(steps)).decode()} if steps else {}


def steps_of(path: Path) -> list[LineageStep]:
    """Return the steps that a Parquet file states; none for any other file. Damaged metadata is a `BadInputError`."""
    import polars as pl

    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            return []
    stated = pl.read_parquet_metadata(path).get(KEY)
    if stated is None:
        return []
    try:
        return msgspec.json.decode(stated, type=list[LineageStep])
    except msgspec.MsgspecError as error:
        raise BadInputError(f"{path}: its metadata {KEY} cannot be read ({error}); make the file again") from error
