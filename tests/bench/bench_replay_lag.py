"""How late the replay sends, beside the emulator on the same machine, and beside a bare timer: `make bench`.

Poisson arrivals, 20 tokens each, a first token after 50 ms (or after 2 s: a slow server must not make the client late),
then one every 10 ms. Lag is in client ms, from the due instant to the first byte written. The *bare timer* walks the
same deadlines with gevent and sends nothing: the floor that this machine sets. `cpu` is the share of a core that the
sending thread used, `wait` the share of time it waited for one: above a few per cent, the machine was not quiet.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from tests.emulators import start_emulator
from traces.run import write_parquet
from traces.schema import Trace

LENGTH_S = 10
RATES_PER_S = (50, 200, 500)
_MODEL = """\
[emulator_model.serving]
slots_per_instance = 100000
prefill_base_s = 0.05
prefill_per_1000_tokens_s = 0.0
token_s = 0.01
token_full_batch_s = 0.01
"""
_BARE_TIMER = """\
import json, sys, time
import gevent
due, lags = json.load(sys.stdin), []
start = time.monotonic() + 0.5
for offset in due:
    pause = start + offset - time.monotonic()
    if pause > 0:
        gevent.sleep(pause)
    lags.append((time.monotonic() - start - offset) * 1e3)
print(json.dumps(lags))
"""


def arrivals_s(rate_per_s: float) -> list[float]:
    rng, now, found = random.Random(1), 0.0, []
    while now < LENGTH_S:
        found.append(round(now, 6))
        now += rng.expovariate(rate_per_s)
    return found


def write_trace(path: Path, due_s: list[float]) -> None:
    n = len(due_s)
    data = {name: [None] * n for name in pl.Schema(Trace)}
    data |= {"row_id": list(range(n)), "arrival_us": [round(at * 1e6) for at in due_s]}
    data |= {"input_tokens": [200] * n, "output_tokens": [20] * n}
    write_parquet(path, pl.DataFrame(data, schema=pl.Schema(Trace)))


def bare_timer(due_s: list[float]) -> pl.Series:
    command = [sys.executable, "-c", _BARE_TIMER]
    return pl.Series(
        json.loads(subprocess.run(command, input=json.dumps(due_s), stdout=-1, text=True, check=True).stdout)
    )


def replay(due_s: list[float], slow_first_token: str | None) -> dict:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_trace(folder / "trace.parquet", due_s)
        (folder / "model.toml").write_text(_MODEL)
        with start_emulator(time_scale=1, scenario=folder / "model.toml", slow_first_token=slow_first_token) as url:
            command = [sys.executable, "-m", "ramptrace", "replay", "--trace", str(folder / "trace.parquet")]
            command += ["--target", url, "--run-dir", str(folder / "run"), "--json"]
            return json.loads(subprocess.run(command, stdout=-1, text=True, check=False).stdout)


def main() -> None:
    print(
        f"{'req/s':>6} {'what':<22}{'p50':>7}{'p99':>7}{'p99.9':>7}{'max':>7}{'cpu':>6}{'wait':>6}  verdict, requests"
    )
    for rate in RATES_PER_S:
        due_s = arrivals_s(rate)
        floor = bare_timer(due_s)
        values = [floor.quantile(0.5), floor.quantile(0.99), floor.quantile(0.999), floor.max()]
        print(f"{rate:6} {'bare timer':<22}" + "".join(f"{value:7.2f}" for value in values), flush=True)
        for slow in (None, "2s"):
            summary = replay(due_s, slow)
            verdict, requests = summary["verdict"], summary["requests"]
            lags = "".join(
                f"{verdict[name]:7.2f}" for name in ("lag_p50_ms", "lag_p99_ms", "lag_p999_ms", "lag_max_ms")
            )
            cpu = f"{verdict['cpu_share']:6.0%}{verdict['cpu_wait_share']:6.0%}"
            what = "replay, slow server" if slow else "replay"
            print(f"{rate:6} {what:<22}{lags}{cpu}  {verdict['status']}, {requests['ok']} ok", flush=True)


if __name__ == "__main__":
    main()
