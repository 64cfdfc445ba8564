"""TOML files read strictly: an unknown key is an error that names the nearest known one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from traces.errors import BadInputError, did_you_mean

T = TypeVar("T", bound=msgspec.Struct)


def read_toml(file: Path, missing_hint: str) -> dict[str, Any]:
    """Return a TOML file's document; `missing_hint` is the next step when there is no such file."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInputError(f"{file}: no such scenario file; {missing_hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{file}: cannot be read ({error}); expected a UTF-8 TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{file}: not valid TOML: {error}") from error


def convert_strictly(document: dict[str, Any], kind: type[T], *, origin: str, table: str = "") -> T:
    """Return the struct that a parsed table states; `origin` and `table` say in errors where it stands."""
    _reject_unknown_keys(document, kind, origin, table)
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        where = f"[{table}] " if table else ""
        raise BadInputError(f"{origin}: {where}{error}") from error


def _reject_unknown_keys(table: dict[str, Any], kind: type[msgspec.Struct], origin: str, prefix: str) -> None:
    hints = get_type_hints(kind)
    for key, value in table.items():
        if key not in hints:
            known = sorted(hints)
            where = f"[{prefix}] " if prefix else ""
            hint = did_you_mean(key, known) or f"; known here: {', '.join(known)}"
            raise BadInputError(f'{origin}: {where}unknown key "{key}"{hint}')
        section = _struct_in(hints[key])
        if section is not None and isinstance(value, dict):
            _reject_unknown_keys(value, section, origin, f"{prefix}.{key}" if prefix else key)


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    candidates = get_args(hint) if get_origin(hint) is not None else (hint,)
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, msgspec.Struct)), None)
