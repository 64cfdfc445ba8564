"""How we start our own commands as processes of their own."""

from __future__ import annotations

import sys


def own_command(*arguments: str) -> list[str]:
    """Return the command line that runs `ramptrace` with `arguments` under this very interpreter.

    `-P` keeps the current directory out of the import path: a user's own folder called `traces` must not shadow ours.
    """
    return [sys.executable, "-P", "-m", "ramptrace", *arguments]
