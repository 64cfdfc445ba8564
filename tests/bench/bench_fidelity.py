"""How faithful a replay inside Locust is, by the server's own log: one core each for the server and client.

Poisson arrivals of 100-token streams (first token after 50 ms, then one every 10 ms, one send each). Lag is from the
due instant to the request's arrival at the server, absolute; the first token's error is the client's instant minus the
server's send. The bare loop (`bare_client.py`) is what gevent can do at all: its processor time per chunk is the
measure of ours. `RAMPTRACE_BENCH_RATES=200,500` and `RAMPTRACE_BENCH_LENGTH_S=20` choose what is run.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import polars as pl

from tests.bench.truth import INPUT_TOKENS, TOKENS, Observed, observe, ours, poisson_us, quantiles, write_trace
from traces.run import RunDir

RATES_PER_S = [float(rate) for rate in os.environ.get("RAMPTRACE_BENCH_RATES", "50,200,500,1000").split(",")]
LENGTH_S = float(os.environ.get("RAMPTRACE_BENCH_LENGTH_S", "20"))
WAYS = os.environ.get("RAMPTRACE_BENCH_WAYS", "bare,replay,locust").split(",")
_BARE = Path(__file__).with_name("bare_client.py")


def bare(folder: Path, due_us: list[int]) -> tuple[Observed, pl.DataFrame]:
    """Return what the bare loop did, and its rows: number, due, first (µs since 1970)."""
    (folder / "due.json").write_text(json.dumps(due_us))
    command = [sys.executable, _BARE, "{port}", folder / "due.json", folder / "out.json"]
    found = observe(folder, command, environment={"GEVENT_RESOLVER": "block"})
    rows = json.loads((folder / "out.json").read_text())["rows"]
    return found, pl.DataFrame(rows, schema=["number", "due", "token"], orient="row")


def replay(folder: Path, due_us: list[int], *, as_locustfile: bool) -> tuple[Observed, pl.DataFrame]:
    """Return what a replay did, and its rows."""
    write_trace(folder / "trace.parquet", due_us)
    command = ours(folder)
    if as_locustfile:
        import importlib.util

        file = importlib.util.find_spec("loadgen").submodule_search_locations[0] + "/locustfile.py"
        command = [sys.executable, "-m", "locust", "-f", file, "--headless", *command[4:]]
    found = observe(folder, command)
    rows = RunDir.open(folder / "run").scan("requests").filter(pl.col("outcome") == "ok").collect()
    number = rows["unit_id"].str.strip_prefix("r-").cast(pl.Int64)
    return found, rows.select(
        number.alias("number"), pl.col("due").dt.epoch("us"), pl.col("first_token").dt.epoch("us").alias("token")
    )


def main() -> None:
    """Print lag, first-token error and cost of each way at each rate."""
    print(f"{TOKENS} tokens out, {INPUT_TOKENS} in, {LENGTH_S:g} s; ms; cost in µs of the client's core per chunk")
    head = f"{'req/s':>6} {'client':<14}" + "".join(f"{name:>9}" for name in ("lag p50", "p99", "p99.9"))
    print(head + "".join(f"{name:>9}" for name in ("TTFT+ p50", "p99", "p99.9")) + f"{'core':>7}{'µs/chunk':>10}  rows")
    for rate in RATES_PER_S:
        due_us = poisson_us(rate, LENGTH_S)
        cost: dict[str, float] = {}
        for way in WAYS:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                found, rows = (
                    bare(folder, due_us) if way == "bare" else replay(folder, due_us, as_locustfile=way == "locust")
                )
            joined = rows.join(found.arrivals, on="number")
            lag = quantiles((joined["arrival"] - joined["due"]) / 1e3)
            error = quantiles((joined["token"] - joined["first"]) / 1e3)
            cost[way] = found.cpu_per_request_us / TOKENS
            figures = "".join(f"{value:9.2f}" for value in (*lag.values(), *error.values()))
            ratio = f" {cost[way] / cost['bare']:.2f}×" if "bare" in cost else ""
            print(
                f"{rate:6g} {way:<14}{figures}{found.core_share:7.0%}{cost[way]:10.2f}{ratio}  {joined.height} of "
                f"{len(due_us)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
