"""`analyse` of a long soak: 10 million requests and one scale-out, against the decoding of the same columns by polars.

Each figure is the best of three processes of their own: seconds in the process (imports not counted), and the peak of
its resident memory. Held to: at most 7 times the decoding, under 1 GB.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

ROWS = 10_000_000
SHARD = 1_000_000
_RATE_PER_S = 250.0
_RUNS = 3
_ONSET_S = 20_000.0
_SECOND = 1_000_000
_EPOCH = 1_790_000_000 * _SECOND


def write_run(path: Path, rows: int) -> None:
    """Write a run of `rows` requests with one scale-out, its observations, and its trace."""
    from tests.analysis.run_builder import Case, Unit, observations_of, samples_of, write
    from traces.clock import EndpointClock
    from traces.manifest import Manifest, TraceUsed
    from traces.run import RunDir, write_parquet
    from traces.schema import Request, Trace

    onset_s = min(_ONSET_S, rows / _RATE_PER_S / 2)
    case = Case(
        units=[Unit("i-1"), Unit("i-2", provisioning_s=125.0)],
        onset_s=onset_s,
        breach_start_s=onset_s,
        alarm_s=onset_s + 35.3,
        decision_s=onset_s + 40.4,
        end_s=onset_s + 700,
    )
    clock = EndpointClock(client_epoch_us=_EPOCH, endpoint_epoch_us=_EPOCH, time_scale=1.0, error_us=500)
    manifest = Manifest(
        run_id="soak",
        state="finished",
        t0_us=_EPOCH,
        clock=clock,
        trace=TraceUsed(source="synthetic", sha256="00"),
        scenario={"collect": {}},
        verdict={"verdict": "VALID", "reasons": []},
    )
    run = RunDir.create(path, manifest)
    rng = np.random.default_rng(1)
    gaps = rng.exponential(1 / _RATE_PER_S, rows)
    due_s = np.cumsum(gaps)
    due_s = np.where(due_s > onset_s, onset_s + (due_s - onset_s) / 4, due_s)
    due = _EPOCH + (due_s * _SECOND).astype(np.int64)
    (path / "requests").mkdir()
    for shard, begin in enumerate(range(0, rows, SHARD)):
        part = slice(begin, min(begin + SHARD, rows))
        n = part.stop - part.start
        sent = due[part] + rng.gamma(2, 200, n).astype(np.int64)
        first = sent + rng.lognormal(12.2, 0.6, n).astype(np.int64)
        done = first + rng.lognormal(14.5, 0.7, n).astype(np.int64)
        tokens = rng.integers(1, 800, n)
        failed = rng.random(n) < 0.004
        frame = pl.DataFrame(
            {
                "row_id": np.arange(part.start, part.stop),
                "shard": 0,
                "due": due[part],
                "sent": sent,
                "headers": first - 1000,
                "first_token": first,
                "first_visible_token": first,
                "last_token": done - 500,
                "done": done,
                "failed": failed,
                "planned_output_tokens": tokens,
                "output_tokens": tokens,
            }
        ).with_columns(
            pl.when("failed").then(pl.lit("http_error")).otherwise(pl.lit("ok")).alias("outcome"),
            pl.when("failed").then(503).otherwise(200).alias("http_status"),
            pl.when("failed").then(pl.lit("http_503")).alias("error_kind"),
            pl.when("failed").then(pl.lit("ServiceUnavailable")).alias("error_text"),
            pl.lit("openai").alias("endpoint"),
        )
        schema = pl.Schema(Request)
        columns = [
            (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
            for name, dtype in schema.items()
        ]
        write_parquet(path / "requests" / f"worker0-1-{shard:06d}.parquet", frame.sort("done").select(columns))
    trace = pl.DataFrame({"row_id": np.arange(rows), "arrival_us": due - _EPOCH, "output_tokens": 100}).with_columns(
        input_tokens=pl.lit(200)
    )
    schema = pl.Schema(Trace)
    columns = [
        (pl.col(name) if name in trace.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in schema.items()
    ]
    write_parquet(path / "trace.parquet", trace.select(columns))
    write(run, "observations", observations_of(case))
    write(run, "samples", samples_of(case))
    run.write_snapshot("describe-endpoint-first", {"ProductionVariants": [{"CurrentInstanceCount": 1}]})


def decode(path: Path) -> None:
    """Decode the columns that `analyse` reads, and nothing else."""
    from analysis.inputs import REQUEST_COLUMNS, TRACE_COLUMNS

    for files, columns in (("requests/*.parquet", REQUEST_COLUMNS), ("trace.parquet", TRACE_COLUMNS)):
        pl.scan_parquet(path / files).select(columns).collect()


def attribute(path: Path) -> None:
    """Analyse the run, as the command does."""
    from analysis.analyse import analyse_run
    from analysis.report.store import write_results

    write_results(analyse_run(path))


def measured(what: str, path: Path) -> tuple[float, float]:
    """Return seconds and peak MB of one of this module's functions in a process of its own."""
    code = f"from tests.bench.bench_analyse import once; once({what!r}, {str(path)!r})"
    found = json.loads(subprocess.run([sys.executable, "-c", code], stdout=-1, check=True, text=True).stdout)
    return found["s"], found["mb"]


def once(what: str, path: str) -> None:
    """Run one function and print its seconds and this process's peak memory."""
    import analysis.analyse
    import analysis.report.store  # noqa: F401 - what is imported is not measured

    begin = time.perf_counter()
    {"decode": decode, "analyse": attribute}[what](Path(path))
    seconds = time.perf_counter() - begin
    print(json.dumps({"s": seconds, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def main() -> None:
    """Print both figures, their ratio, and the peak of memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        write_run(path, ROWS)
        found = {what: [measured(what, path) for _ in range(_RUNS)] for what in ("decode", "analyse")}
    best = {what: min(s for s, _ in rows) for what, rows in found.items()}
    for what, rows in found.items():
        every = ", ".join(f"{s:.2f}" for s, _ in rows)
        print(f"{what:<8} {best[what]:6.2f} s  peak {max(mb for _, mb in rows):5.0f} MB   (each: {every})")
    print(f"ratio    {best['analyse'] / best['decode']:6.1f}")


if __name__ == "__main__":
    main()
