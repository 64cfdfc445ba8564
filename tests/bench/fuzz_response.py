"""Fuzz the response parser with coverage guidance, by hand: `python -m tests.bench.fuzz_response -max_total_time=300`.

Needs `pip install atheris`, which is not among the development dependencies. What it finds becomes an example in
`tests/loadgen/replay/test_replay_http_fuzz.py`.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["loadgen.receiving", "loadgen.response", "loadgen.sse", "loadgen.endpoints"]):
    from tests.loadgen.replay.answering import received


def one(data: bytes) -> None:
    """Play one input: its first byte says how long the pieces are."""
    if data:
        step = 1 + data[0]
        received([data[at : at + step] for at in range(1, len(data), step)])


def main() -> None:
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
