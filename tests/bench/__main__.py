"""Run every benchmark of this folder, or those named: `python -m tests.bench [NAME...]`."""

import importlib
import sys
from pathlib import Path

names = sys.argv[1:] or sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
for name in names:
    print(f"== {name}", flush=True)
    importlib.import_module(f"tests.bench.bench_{name}").main()
