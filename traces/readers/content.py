"""How long recorded prompts and answers are, in characters. Nothing of what they say is kept."""

from __future__ import annotations

from typing import Any


def characters(value: Any) -> int | None:
    """Return the number of characters of a prompt or an answer; None where there is no text.

    A text, a list of messages or of their parts, or an object that holds one of them.

    >>> characters("abc"), characters([{"role": "user", "content": [{"type": "text", "text": "hi"}]}]), characters(7)
    (3, 2, None)
    """
    total, found, left = 0, False, [value]
    while left:
        part = left.pop()
        if isinstance(part, str):
            total, found = total + len(part), True
        elif isinstance(part, list):
            left.extend(part)
        elif isinstance(part, dict):
            inside = next((part[key] for key in _HOLDERS if part.get(key) is not None), None)
            left.append(inside)
    return total if found else None


_HOLDERS = ("messages", "content", "prompt", "inputs", "input", "text", "value", "choices", "message", "parts")
