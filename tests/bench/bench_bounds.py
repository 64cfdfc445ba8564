"""1,000 random simulated scale-outs through the analysis: how often bounds hold the truth, and how wide they are."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.random_scale_outs import Check, Held, held

RUNS = int(os.environ.get("RAMPTRACE_BOUNDS_RUNS", "1000"))


def one(seed: int) -> Held:
    with tempfile.TemporaryDirectory() as folder:
        return held(seed, Path(folder) / "case")


def main() -> None:
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(one, range(RUNS), chunksize=10))
    checks = [check for run in found for check in run.checks]
    print(f"{RUNS} runs, {sum(run.scale_outs for run in found)} scale-outs, {len(checks)} phases and anchors")
    print(f"shares exact: {sum(run.exact for run in found)} of {RUNS}")
    for name, chosen in (
        ("phases", [c for c in checks if not c.what.startswith("anchor")]),
        ("anchors", [c for c in checks if c.what.startswith("anchor")]),
    ):
        print(f"{name} inside their bounds: {sum(c.holds for c in chosen)} of {len(chosen)}")
    print(f"{'':<40}{'n':>6}{'outside':>9}{'width p50':>11}{'p90':>9}{'max':>9}  seconds")
    for what in sorted({check.what for check in checks}):
        print(row(what, [check for check in checks if check.what == what]))
    outside = Counter(check.seed for check in checks if not check.holds)
    if outside:
        print(f"seeds with something outside: {sorted(outside)[:40]}", file=sys.stderr)


def row(what: str, checks: list[Check]) -> str:
    widths = sorted((check.hi_us - check.lo_us) / 1e6 for check in checks if check.lo_us >= 0 and check.hi_us < 2**62)
    shown = [widths[int(share * (len(widths) - 1))] if widths else float("nan") for share in (0.5, 0.9, 1.0)]
    missed = sum(not check.holds for check in checks)
    return f"{what:<40}{len(checks):>6}{missed:>9}{shown[0]:>11.2f}{shown[1]:>9.2f}{shown[2]:>9.2f}"
