"""Secrets that go into request headers, from the environment or from files, and nowhere else.

A file is read again when it changes: tokens that a platform mounts (a projected service account, say) expire.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from loadgen.scenario import TargetSection
from traces.errors import BadInputError

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, 5.6.2
_RESERVED = {"host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding"}


class SecretHeaders:
    """The headers that a scenario's `api_key_*` and `header_*` keys ask for. Raises `BadInputError` for bad ones."""

    def __init__(self, section: TargetSection) -> None:
        if section.api_key_env and section.api_key_file:
            raise BadInputError("target: api_key_env and api_key_file are both given; keep one")
        self._fixed: dict[str, str] = {}
        self._files: list[tuple[str, str, str, str]] = []
        self._read_at_ns: tuple[int, ...] = ()
        self.headers: dict[str, str] = {}
        if section.api_key_env:
            self._fixed["Authorization"] = "Bearer " + _from_environment("api_key_env", section.api_key_env)
        if section.api_key_file:
            self._files.append(("api_key_file", "Authorization", "Bearer ", section.api_key_file))
        for name, variable in section.header_env.items():
            header = _checked_name("header_env", name)
            self._fixed[header] = _from_environment("header_env", variable)
        for name, path in section.header_file.items():
            self._files.append(("header_file", _checked_name("header_file", name), "", path))
        self.headers = self._fixed | self._read()
        self._read_at_ns = self._changed_at_ns()

    def refresh(self) -> None:
        """Read the files again if one has changed. What cannot be read or used keeps its old value."""
        if not self._files:
            return
        changed_at_ns = self._changed_at_ns()
        if changed_at_ns == self._read_at_ns:
            return
        try:
            self.headers = self._fixed | self._read()
        except BadInputError:
            return  # caught in the middle of a replacement, perhaps: the next slice tries again
        self._read_at_ns = changed_at_ns

    def _read(self) -> dict[str, str]:
        found = {}
        for key, header, prefix, path in self._files:
            try:
                value = Path(path).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                cause = getattr(error, "strerror", None) or "not text"
                raise BadInputError(
                    f"target.{key}: {path} cannot be read ({cause}); expected a file with the value"
                ) from None
            found[header] = prefix + _checked_value(f"target.{key}", path, value)
        return found

    def _changed_at_ns(self) -> tuple[int, ...]:
        found = []
        for _, _, _, path in self._files:
            try:
                found.append(Path(path).stat().st_mtime_ns)
            except OSError:
                found.append(0)
        return tuple(found)


def _from_environment(key: str, variable: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        raise BadInputError(f"target.{key}: the environment variable {variable} is not set or empty")
    return _checked_value(f"target.{key}", variable, value)


def _checked_value(key: str, place: str, value: str) -> str:
    if not value or not value.isascii() or not value.isprintable():
        raise BadInputError(f"{key}: the value of {place} is empty or not printable ASCII")
    return value


def _checked_name(key: str, name: str) -> str:
    if not _NAME.fullmatch(name) or name.lower() in _RESERVED:
        raise BadInputError(f'target.{key}: "{name[:60]}" cannot be set; expected the name of an HTTP header')
    return name
