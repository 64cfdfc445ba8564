"""All tests, in two processes side by side: `make test`. Most of them wait for endpoint time to pass.

pytest-xdist is of no use here: tests that import Locust have gevent patch the threads that its workers live on.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import IO

TESTS = Path(__file__).parent
FIRST = ("e2e", "browser", "analysis")
"""Folders of the first half, which takes about as long as all others."""

_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed)\b")
_NO_TESTS = 5


def halves() -> tuple[list[Path], list[Path]]:
    """Return the folders and files of each half; together they hold every test."""
    every = [path for path in sorted(TESTS.iterdir()) if path.is_dir() or path.name.startswith("test_")]
    every = [path for path in every if path.name not in {"bench", "__pycache__"}]
    return [path for path in every if path.name in FIRST], [path for path in every if path.name not in FIRST]


def start(paths: list[Path], output: IO[str], arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", *map(str, paths), *arguments]
    return subprocess.Popen(command, cwd=TESTS.parent, stdout=output, stderr=subprocess.STDOUT, text=True)


def main() -> int:
    counted: Counter[str] = Counter()
    codes = []
    with tempfile.TemporaryFile("w+") as one, tempfile.TemporaryFile("w+") as other:
        running = [start(half, out, sys.argv[1:]) for half, out in zip(halves(), (one, other), strict=True)]
        for process, output in zip(running, (one, other), strict=True):
            codes.append(process.wait())
            output.seek(0)
            text = output.read()
            print(text, flush=True)
            last = text.rstrip().rpartition("\n")[2]
            counted.update({kind.rstrip("s") if "error" in kind else kind: int(n) for n, kind in _COUNT.findall(last)})
    failed = counted["failed"] + counted["error"]
    print(f"{counted['passed']} passed, {failed} failed, {counted['skipped']} skipped")
    return max((code for code in codes if code != _NO_TESTS), default=_NO_TESTS)


if __name__ == "__main__":
    sys.exit(main())
