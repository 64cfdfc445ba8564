"""Recorded prompts, read from a folder as they are needed. They go to the target and nowhere else.

`payload_ref` is `NAME` or `NAME#OFFSET+LENGTH` (bytes): a file below the folder, or a piece of one. A piece that is a
JSON array holds chat messages, a JSON object its `messages`, `prompt` or `inputs`; anything else is the prompt's text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from traces.errors import BadInputError

_REFERENCE = re.compile(r"([^#]+)(?:#(\d+)\+(\d+))?")
_KEYS = ("messages", "prompt", "inputs")


def read_payload(folder: str, reference: str, row_id: int) -> str | list[dict[str, Any]]:
    """Return a recorded prompt: its text, or its chat messages. Raises `BadInputError`, never with any content."""
    raw = _read(folder, reference, row_id)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BadInputError(
            f"{folder}: row {row_id}: {_named(reference)} is not UTF-8; expected a prompt's text"
        ) from None
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        document = msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return text
    if isinstance(document, dict):
        document = next((document[key] for key in _KEYS if key in document), None)
    if isinstance(document, list) and document and all(isinstance(item, dict) for item in document):
        return document
    return document if isinstance(document, str) else text


def _read(folder: str, reference: str, row_id: int) -> bytes:
    matched = _REFERENCE.fullmatch(reference)
    name, offset, length = matched.groups() if matched else (reference, None, None)
    wanted = int(length or 0)
    root = Path(folder).resolve()
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise BadInputError(f"{folder}: row {row_id}: payload_ref leads out of the folder; expected a name inside it")
    try:
        with path.open("rb") as file:
            if offset is None:
                return file.read()
            file.seek(int(offset))
            found = file.read(wanted)
    except OSError as error:
        raise BadInputError(
            f"{folder}: row {row_id}: {_named(reference)} cannot be read ({error.strerror}); "
            "put the recorded prompts there, or leave prompts.payloads out"
        ) from None
    if len(found) < wanted:
        raise BadInputError(f"{folder}: row {row_id}: {_named(reference)} ends early; is it the right file?")
    return found


def _named(reference: str) -> str:
    return f'payload_ref "{reference[:80]}"'
