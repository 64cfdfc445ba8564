"""The example soak of `deploy/ci` in full: `python -m tests.bench.ci_soak [BURSTS] [TIME_SCALE]`, by hand.

Ten minutes with 30 scale-outs and a platform that throttles, fails and tells things twice; then the same with images
that take longer to pull, against the first as baseline: the gate has to fail and to name the phase.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path

from tests.soaking import SLOWER_PULL, Soaked, outside, soak


def show(title: str, found: Soaked) -> None:
    analysis = found.analysis()
    print(f"== {title}: exit code {found.code}\n{found.said.rstrip()}")
    print(f"scale-outs: {len(analysis.scale_outs)} found of {len(found.truth)}")
    if len(analysis.scale_outs) == len(found.truth):
        held, wrong = outside(analysis, found.truth)
        print(f"anchors and phases held to the truth: {held}; outside their bounds: {len(wrong)} {wrong}")
    for name, sizes in found.sizes_mb.items():
        half = sizes[len(sizes) // 4 :]
        first, last = statistics.median(half[:20]), statistics.median(half[-20:])
        print(
            f"{name}: resident {first:.1f} → {last:.1f} MB (first and last of the settled part), most {max(sizes):.1f}"
        )
    print(flush=True)


def main() -> None:
    bursts = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    time_scale = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    folder = Path(os.environ.get("RAMPTRACE_BENCH_FOLDER") or tempfile.mkdtemp(prefix="ramptrace-ci-soak-"))
    first = soak(folder / "good", laps=bursts, time_scale=time_scale)
    show("as it is", first)
    slower = soak(
        folder / "slower",
        laps=bursts,
        time_scale=time_scale,
        changes=SLOWER_PULL,
        baseline=folder / "good" / "soak" / "run",
    )
    show("a slower pull", slower)


if __name__ == "__main__":
    main()
