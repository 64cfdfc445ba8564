"""A looped trace for an hour inside Locust, and what grows: `python -m tests.bench.long_run [MINUTES]`, by hand.

200 requests a second of 20 tokens against the emulator, a core each. `RAMPTRACE_BENCH_REALTIME=1` (as root) puts both
before the machine's other work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl
import psutil

from tests.bench.bench_replay_lag import _MODEL
from tests.bench.truth import CLIENT_CORE, INPUT_TOKENS, SERVER_CORE, pinned, poisson_us
from tests.emulators import start_emulator
from traces.run import RunDir, write_parquet
from traces.schema import Trace

RATE_PER_S, LAP_S, TOKENS = 200, 60, 20
SETTLED_S = 300
"""From when on memory is to be flat."""


def write_lap(path: Path) -> None:
    arrivals_us = poisson_us(RATE_PER_S, LAP_S)
    n = len(arrivals_us)
    data = {name: [None] * n for name in pl.Schema(Trace)}
    data |= {"row_id": list(range(n)), "arrival_us": arrivals_us}
    data |= {"input_tokens": [INPUT_TOKENS] * n, "output_tokens": [TOKENS] * n}
    write_parquet(path, pl.DataFrame(data, schema=pl.Schema(Trace)))


def replay(folder: Path, url: str, minutes: float) -> None:
    """Run it, and leave `run` and `sizes.jsonl` in the folder."""
    file = Path(__file__).with_name("long_run_locustfile.py")
    command = [sys.executable, "-m", "locust", "-f", str(file), "--headless", "--trace", str(folder / "trace.parquet")]
    command += ["--host", url, "--loop", "--duration", f"{minutes:g}m", "--run-dir", str(folder / "run")]
    environment = {**os.environ, "RAMPTRACE_BENCH_SIZES": str(folder / "sizes.jsonl")}
    root = Path(__file__).parents[2]
    with (folder / "locust.log").open("w") as log:
        done = subprocess.run(
            [*command, "--only-summary"],
            cwd=root,
            env=environment,
            stdout=log,
            stderr=log,
            preexec_fn=pinned(CLIENT_CORE),
            check=False,
        )
    print(f"exit code {done.returncode}; what it said: {folder}/locust.log", flush=True)


def show(folder: Path) -> None:
    """Print what became of every row, and the least, the most and the last of each size after five minutes."""
    run = RunDir.open(folder / "run")
    rows = run.scan("requests").group_by("outcome").len().collect()
    twice = run.scan("requests").select(pl.col("row_id").is_duplicated().sum()).collect().item()
    print(f"rows by outcome: {dict(rows.iter_rows())}; written twice: {twice}")
    verdict = run.manifest().verdict
    print("verdict:", json.dumps({k: v for k, v in verdict.items() if k != "untrusted"}))
    sizes = pl.read_ndjson(folder / "sizes.jsonl")
    settled = sizes.filter(pl.col("at_s") >= sizes["at_s"][0] + SETTLED_S)
    if settled.is_empty():
        print("shorter than five minutes: nothing to say about growth")
        return
    print(f"{sizes.height} looks, {(sizes['at_s'][-1] - sizes['at_s'][0]) / 60:.1f} min; after five minutes:")
    print(f"  {'':<22}" + "".join(f"{head:>13}" for head in ("first", "least", "most", "last")))
    for name in sizes.columns[1:]:
        values = settled[name]
        four = (values[0], values.min(), values.max(), values[-1])
        print(f"  {name:<22}" + "".join(f"{value:>13,.1f}" for value in four))
    first = settled["rss_mb"][0]
    print(f"  resident memory {settled['rss_mb'].min() / first - 1:+.1%} to {settled['rss_mb'].max() / first - 1:+.1%}")


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    folder = Path(os.environ.get("RAMPTRACE_BENCH_FOLDER") or tempfile.mkdtemp(prefix="ramptrace-long-run-"))
    folder.mkdir(parents=True, exist_ok=True)
    write_lap(folder / "trace.parquet")
    (folder / "model.toml").write_text(_MODEL)
    with start_emulator(time_scale=1, scenario=folder / "model.toml") as url:
        (emulator,) = psutil.Process().children()
        pinned(SERVER_CORE, pid=emulator.pid)()
        replay(folder, url, minutes)
    show(folder)


if __name__ == "__main__":
    main()
