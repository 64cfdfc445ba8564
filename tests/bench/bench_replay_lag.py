"""How late the replay sends: `python tests/bench/bench_replay_lag.py [RATE ...]`, by hand, on a quiet machine.

Poisson arrivals, 20 tokens each, a first token after 30 ms and one every 2 ms; the server runs on the same machine.
Prints one line per rate: lag in client ms (due instant to first byte written), and what the run's verdict says.
`cpu` is the share of a core that the sending thread used, `wait` the share of time it waited for one: above a few per
cent, the machine was not quiet.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from traces.run import write_parquet
from traces.schema import Trace

SERVER = Path(__file__).parents[1] / "loadgen" / "replay" / "server.py"
LENGTH_S = 10


def write_trace(path: Path, rate: float) -> None:
    rng, now, arrivals = random.Random(1), 0.0, []
    while now < LENGTH_S:
        arrivals.append(round(now * 1e6))
        now += rng.expovariate(rate)
    data = {name: [None] * len(arrivals) for name in pl.Schema(Trace)}
    data |= {"row_id": list(range(len(arrivals))), "arrival_us": arrivals}
    data |= {"input_tokens": [200] * len(arrivals), "output_tokens": [20] * len(arrivals)}
    write_parquet(path, pl.DataFrame(data, schema=pl.Schema(Trace)))


def run(rate: float, folder: Path) -> dict:
    trace = folder / f"{rate:g}.parquet"
    write_trace(trace, rate)
    server = subprocess.Popen(
        [sys.executable, str(SERVER), str(folder / "log")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/ok"
        command = [sys.executable, "-m", "ramptrace", "replay", "--trace", str(trace), "--target", url, "--json"]
        command += ["--run-dir", str(folder / f"run-{rate:g}")]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    finally:
        server.stdin.close()
        server.wait(10)


def main() -> None:
    rates = [float(text) for text in sys.argv[1:]] or [50.0, 200.0, 500.0]
    print(
        f"{'req/s':>6}{'p50':>8}{'p99':>8}{'p99.9':>8}{'max':>8}{'hub p99':>9}{'cpu':>6}{'wait':>6}  verdict, requests"
    )
    for rate in rates:
        with tempfile.TemporaryDirectory() as folder:
            summary = run(rate, Path(folder))
        verdict, requests = summary["verdict"], summary["requests"]
        lags = "".join(f"{verdict[name]:8.2f}" for name in ("lag_p50_ms", "lag_p99_ms", "lag_p999_ms", "lag_max_ms"))
        cpu = f"{verdict['hub_latency_p99_ms']:9.2f}{verdict['cpu_share']:6.0%}{verdict['cpu_wait_share']:6.0%}"
        print(f"{rate:6g}{lags}{cpu}  {verdict['status']}, {requests['ok']} ok", flush=True)


if __name__ == "__main__":
    main()
