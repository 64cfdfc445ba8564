"""An emulator in its own process, for tests that need a live platform."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
_COMMAND = "from loadgen.emulator.cli import emulate; emulate()"
_STOP_S = 10


@contextlib.contextmanager
def start_emulator(*, credentials: tuple[str, str] | None = None, **flags: object) -> Iterator[str]:
    """Run `ramptrace emulate` while the context lasts; gives its base address.

    Flags are the command's, with underscores: `start_emulator(time_scale=200, image_cache=False, seed=1)`.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    if credentials is not None:
        environment |= {"AWS_ACCESS_KEY_ID": credentials[0], "AWS_SECRET_ACCESS_KEY": credentials[1]}
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "--json", *_arguments(flags)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the emulator ended with code {process.wait()} before it listened"
        yield json.loads(line)["url"]
    finally:
        process.terminate()
        try:
            code = process.wait(_STOP_S)
        finally:
            process.kill()
            process.stdout.close()
        assert code == 0, f"the emulator ended with code {code}"


def _arguments(flags: Mapping[str, object]) -> list[str]:
    arguments = []
    for name, value in flags.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            arguments.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            arguments += [f"--{option}", str(value)]
    return arguments
