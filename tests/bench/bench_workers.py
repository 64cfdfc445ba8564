"""The same arrivals sent by one process and by two, with both cores for all of them: by the server's own log.

The server shares the first core with a worker, so that two workers have less than two cores; a machine with three or
more shows what two of them are worth, one with two hardly does. `skew` is the
largest error of a worker's clock against the master's that the run states: how far their t0 may be apart.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.bench.truth import CLIENT_CORE, SERVER_CORE, TOKENS, lag_ms, observe, ours, poisson_us, write_trace
from traces.run import RunDir

RATES_PER_S = [float(rate) for rate in os.environ.get("RAMPTRACE_BENCH_RATES", "500,1000,1500").split(",")]
LENGTH_S = float(os.environ.get("RAMPTRACE_BENCH_LENGTH_S", "15"))
WAYS = {"alone": (), "1 worker": ("--workers", "1"), "2 workers": ("--workers", "2")}


def main() -> None:
    """Print a line per rate and number of workers."""
    print(f"{TOKENS} tokens out, Poisson, {LENGTH_S:g} s; absolute lag in ms by the server's log; both cores for all")
    heads = ("lag p50", "p99", "p99.9", "sent/s", "cores", "µs CPU/request", "own p99", "skew ms")
    print(f"{'req/s':>6} {'way':<10}" + "".join(f"{head:>15}" for head in heads) + "  verdict, arrived")
    for rate in RATES_PER_S:
        due_us = poisson_us(rate, LENGTH_S)
        for way, more in WAYS.items():
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                write_trace(folder / "trace.parquet", due_us)
                found = observe(folder, ours(folder, *more), cores=(SERVER_CORE, CLIENT_CORE))
                if found.arrivals.height < 2:
                    print(f"{rate:6g} {way:<10} nothing arrived: {found.output[-300:]}", flush=True)
                    continue
                manifest = RunDir.open(folder / "run").manifest()
            lag = lag_ms(found.arrivals, due_us, manifest.t0_us - due_us[0])
            verdict = manifest.verdict
            own, skew = (verdict["lag_p99_ms"], verdict["clock_error_ms"])
            print(
                f"{rate:6g} {way:<10}"
                + "".join(f"{value:15.2f}" for value in lag.values())
                + f"{found.delivered_per_s:15.0f}{found.core_share:15.2f}{found.cpu_per_request_us:15.0f}"
                + f"{own:15.2f}{skew:15.3f}"
                + f"  {verdict['status']}, {found.arrivals.height} of {len(due_us)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
