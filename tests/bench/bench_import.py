"""Import of a 10-million-row Azure-style CSV, against polars' bare `scan_csv` with an explicit format → `sink_parquet`.

Each way runs in a process of its own, start-up left out for both, and reports wall time, CPU time and peak memory.
The file is made on the fly, in the style of 2024 (six decimals, `+00:00`), which polars has its fastest parser for;
`RAMPTRACE_BENCH_ROWS` sets another number of rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

ROWS = int(os.environ.get("RAMPTRACE_BENCH_ROWS", "10_000_000"))
_AT_ONCE = 1_000_000
_REPEATS = 3

_MEASURE = """
import json, os, resource, sys, time
from pathlib import Path
source, target = sys.argv[1:]
{setup}
begin, cpu = time.perf_counter(), os.times()
{work}
end, used = time.perf_counter(), os.times()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps(dict(wall_s=end - begin, cpu_s=used[0] + used[1] - cpu[0] - cpu[1], peak_mb=peak / 1024)))
"""
_BARE = """
lazy = pl.scan_csv(source, schema={{"TIMESTAMP": pl.String, "ContextTokens": pl.Int64, "GeneratedTokens": pl.Int64}})
lazy.with_columns(pl.col("TIMESTAMP").str.to_datetime("{form}", time_unit="us")).sink_parquet(target)
"""
WAYS = {
    "ramptrace trace import": ("from traces.readers import open_trace", "open_trace(source).write(Path(target))"),
    "bare polars, fixed width": ("import polars as pl", _BARE.format(form="%Y-%m-%d %H:%M:%S.%6f+00:00")),
    "bare polars, %.f%z": ("import polars as pl", _BARE.format(form="%Y-%m-%d %H:%M:%S%.f%z")),
}


def make(path: Path, rows: int) -> None:
    """Write an Azure-style trace: exponential gaps of 36 ms, uniform lengths."""
    first_us = 1_715_299_200_000_000
    with path.open("wb") as file:
        file.write(b"TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for start in range(0, rows, _AT_ONCE):
            count = min(_AT_ONCE, rows - start)
            noise = pl.DataFrame({"n": pl.int_range(start, start + count, eager=True).hash(7)})
            uniform = (pl.col("n") % 1_000_000 + 0.5) / 1_000_000
            gaps = noise.select((-uniform.log() * 36_000).cast(pl.Int64).cum_sum().alias("us"), "n")
            stamps = (pl.col("us") + first_us).cast(pl.Datetime("us")).dt.strftime("%Y-%m-%d %H:%M:%S%.6f+00:00")
            gaps.select(stamps, (pl.col("n") % 8000).alias("in"), (pl.col("n") // 8000 % 700).alias("out")).write_csv(
                file, include_header=False
            )
            first_us += int(gaps["us"][-1])


def measured(way: str, source: Path, target: Path) -> dict[str, float]:
    """Return wall_s, cpu_s and peak_mb of one way, run in its own process."""
    setup, work = WAYS[way]
    script = _MEASURE.format(setup=setup, work=work)
    done = subprocess.run([sys.executable, "-c", script, source, target], check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Print each way's best of three, taken in turns, and the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "trace.csv", Path(folder) / "trace.parquet"
        make(source, ROWS)
        print(f"{ROWS:,} rows, {source.stat().st_size / 1e6:,.0f} MB, best of {_REPEATS}")
        runs = [{way: measured(way, source, target) for way in WAYS} for _ in range(_REPEATS)]
    best = {way: {key: min(run[way][key] for run in runs) for key in runs[0][way]} for way in WAYS}
    ours = best["ramptrace trace import"]
    for way, figures in best.items():
        ratio = ", ".join(
            f"{ours[key] / figures[key]:.2f}× {name}" for key, name in (("wall_s", "wall"), ("cpu_s", "CPU"))
        )
        print(
            f"{way:26} {figures['wall_s']:6.2f} s wall, {figures['cpu_s']:6.2f} s CPU, "
            f"{figures['peak_mb']:5.0f} MB peak; import takes {ratio}"
        )


if __name__ == "__main__":
    main()
