"""A client and a server on one core each, judged by the server's own log.

The server (`sse_server.c`, compiled on first use) is pinned to the first core, the client with all its processes to
the second. The processor time of the client counts from the first arrival to the last answer, as the server saw them,
so that start-up and the closing of files do not enter.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import polars as pl
import psutil

from traces.run import write_parquet
from traces.schema import Trace

SERVER_CORE, CLIENT_CORE = 0, 1
TTFT_US, ITL_US, TOKENS, INPUT_TOKENS = 50_000, 10_000, 100, 16
_SAMPLE_S = 0.2
FLAGS = os.environ.get("RAMPTRACE_BENCH_FLAGS", "").split()
"""More options for the replay, such as --record-chunks."""
REALTIME = os.environ.get("RAMPTRACE_BENCH_REALTIME") == "1"
"""As root, on a machine that is not quiet: the first thread of server and client runs before any other program."""
_SOURCE = Path(__file__).with_name("sse_server.c")


@dataclass(frozen=True)
class Observed:
    """What one client did: the server's log (µs since 1970), and what it took of its core and of memory."""

    arrivals: pl.DataFrame
    cpu_s: float
    length_s: float
    peak_mb: float
    code: int
    output: str

    @property
    def cpu_per_request_us(self) -> float:
        return self.cpu_s * 1e6 / max(1, self.arrivals.height)

    @property
    def core_share(self) -> float:
        return self.cpu_s / self.length_s

    @property
    def delivered_per_s(self) -> float:
        """Arrivals per second between the first and the last."""
        at = self.arrivals["arrival"]
        return (at.len() - 1) / max(1e-9, (at.max() - at.min()) / 1e6)


def poisson_us(rate_per_s: float, length_s: float, seed: int = 1) -> list[int]:
    """Return arrival offsets (µs)."""
    rng, now, found = random.Random(seed), 0.0, []
    while (now := now + rng.expovariate(rate_per_s)) < length_s:
        found.append(round(now * 1e6))
    return found


def write_trace(path: Path, arrivals_us: Sequence[int]) -> None:
    """Write a Trace table of requests that are all alike."""
    n = len(arrivals_us)
    data = {name: [None] * n for name in pl.Schema(Trace)}
    data |= {"row_id": list(range(n)), "arrival_us": list(arrivals_us)}
    data |= {"input_tokens": [INPUT_TOKENS] * n, "output_tokens": [TOKENS] * n}
    write_parquet(path, pl.DataFrame(data, schema=pl.Schema(Trace)))


def compiled() -> Path:
    """Return the server's program. Raises `SystemExit` without a C compiler."""
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    program = Path(tempfile.gettempdir()) / f"ramptrace-sse-server-{os.getuid()}-{digest}"
    if not program.exists():
        compiler = shutil.which("cc")
        if compiler is None:
            raise SystemExit("the measuring server is a C program: install a C compiler (Debian: gcc)")
        half = program.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, "-O2", "-o", half, _SOURCE], check=True)
        half.rename(program)
    return program


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[int, Path]]:
    """Serve while the context lasts; gives the port and the log, which is complete after it."""
    log = folder / "server.log"
    command = [compiled(), log, str(TTFT_US), str(ITL_US), str(TOKENS)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=pinned(SERVER_CORE),  # noqa: PLW1509 - no thread runs yet
    )
    try:
        yield int(process.stdout.readline()), log
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def observe(
    folder: Path,
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 240,
    cores: Sequence[int] = (CLIENT_CORE,),
) -> Observed:
    """Run a client in `folder` against a fresh server; `{port}` in its command is the server's port."""
    with server(folder) as (port, log):
        line = [str(part).replace("{port}", str(port)) for part in command]
        process = subprocess.Popen(
            line,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            preexec_fn=pinned(*cores),  # noqa: PLW1509 - no thread runs yet
            start_new_session=True,
        )
        meter = _Meter(process.pid)
        meter.start()
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            meter.end_all()
            output, _ = process.communicate()
            output += f"\n(ended after {timeout_s:g} s)"
        meter.over.set()
        meter.join()
    found = pl.read_csv(
        log,
        separator=" ",
        has_header=False,
        schema=dict.fromkeys(("number", "arrival", "first", "last"), pl.Int64),
    )
    began, ended = found["arrival"].min(), found["last"].max()
    if began is None:
        return Observed(found, 0.0, 1.0, meter.peak_mb, process.returncode, output)
    cpu_s = meter.cpu_s_at(ended) - meter.cpu_s_at(began)
    return Observed(found, cpu_s, (ended - began) / 1e6, meter.peak_mb, process.returncode, output)


def lag_ms(arrivals: pl.DataFrame, due_us: Sequence[int], t0_us: int | None = None) -> dict[str, float]:
    """Return p50, p99 and p99.9 (ms) of how late requests arrived, those of a trace in its order.

    `t0_us` is the trace's start by the client's own word; without it the request that was least late counts as in
    time, which flatters a client that is always late.
    """
    at = arrivals["arrival"].sort()
    offsets = at - pl.Series(due_us[: at.len()])
    late = (offsets - (offsets.min() if t0_us is None else t0_us)) / 1e3
    return quantiles(late)


def quantiles(values: pl.Series) -> dict[str, float]:
    """Return the p50, p99 and p99.9 of values."""
    return {name: float(values.quantile(q, "higher")) for name, q in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))}


class _Meter(threading.Thread):
    """Reads the processor time and the memory of a process and of all that it started, several times a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self._cpu_s: dict[int, float] = {}
        self._known: dict[int, psutil.Process] = {pid: self._root}
        self._readings: list[tuple[int, float]] = []
        self.peak_mb = 0.0
        self.over = threading.Event()

    def run(self) -> None:
        os.sched_setaffinity(0, {SERVER_CORE})
        turn = 0
        while not self.over.is_set():
            if turn % 5 == 0:
                with contextlib.suppress(psutil.Error):
                    self._known |= {child.pid: child for child in self._root.children(recursive=True)}
            turn += 1
            total_mb = 0.0
            for pid, process in list(self._known.items()):
                try:
                    times = process.cpu_times()
                    total_mb += process.memory_info().rss / 1e6
                except psutil.Error:
                    continue
                self._cpu_s[pid] = times.user + times.system
            self.peak_mb = max(self.peak_mb, total_mb)
            self._readings.append((time.time_ns() // 1000, sum(self._cpu_s.values())))
            self.over.wait(_SAMPLE_S)

    def cpu_s_at(self, at_us: int) -> float:
        """Return the processor time used up to an instant, interpolated."""
        for (before, low), (after, high) in pairwise(self._readings):
            if before <= at_us <= after:
                return low + (high - low) * (at_us - before) / (after - before)
        return self._readings[-1][1] if self._readings and at_us > self._readings[-1][0] else 0.0

    def end_all(self) -> None:
        """End the processes that were seen, by their ids."""
        for process in self._known.values():
            with contextlib.suppress(psutil.Error):
                process.kill()


def pinned(*cores: int, pid: int = 0, realtime: bool = REALTIME) -> Callable[[], None]:
    """Return what a child does first: take its cores and, as root, come before the other work of this machine there.

    With a `pid` it is done to that process. What keeps a core nearly full must not run in real time: the kernel takes
    5 % of each second from it, in one piece (sched(7), "Limiting the CPU usage of real-time processes").
    """
    present = sorted(os.sched_getaffinity(0))
    chosen = {present[core % len(present)] for core in cores}

    def settle() -> None:
        os.sched_setaffinity(pid, chosen)
        # Of the whole session, so that its threads and processes stay equals (sched(7), "The autogroup feature").
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid or 'self'}/autogroup").write_text("-20")
        if realtime:
            with contextlib.suppress(PermissionError):
                os.sched_setscheduler(pid, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(10))

    return settle


def ours(folder: Path, *more: str) -> list[str]:
    """Return the command line of a replay of `folder`'s trace, inside Locust, into `folder / "run"`."""
    line = [sys.executable, "-m", "ramptrace", "replay", "--trace", str(folder / "trace.parquet"), "--json"]
    return [*line, "--target", "http://127.0.0.1:{port}", "--run-dir", str(folder / "run"), *more, *FLAGS]
