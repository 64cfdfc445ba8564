"""The example soak of `deploy/ci`, run as a person would, and what the emulator says really happened meanwhile."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import polars as pl
import psutil

from analysis.analyse import RunAnalysis, analyse_run
from tests.emulators import start_emulator
from tests.truth import Instants, true_length
from traces.clock import to_us

SCENARIO = Path(__file__).parents[1] / "deploy" / "ci" / "emulated-soak.toml"
LAP_S = 400
SLOWER_PULL = {"image_gb = 2.0": "image_gb = 2.0\npull_work_per_byte = 9.0"}
"""Three times the work for each byte of the image."""
KEYS = ("AKIDTEST", "secret-for-tests")
_LOOK_S = 2.0
_RAMPTRACE = [sys.executable, "-P", "-m", "ramptrace"]


class Soaked(NamedTuple):
    """One soak: the command's exit code and words, its gate, the truth by scale-out, and its processes' sizes."""

    code: int
    said: str
    gate: dict
    folder: Path
    truth: list[Instants]
    sizes_mb: dict[str, list[float]]

    def analysis(self) -> RunAnalysis:
        return analyse_run(self.folder / "soak" / "run")


def made_scenario(url: str, laps: int, changes: dict[str, str]) -> str:
    """Return the example with another address, so many bursts, and other lines changed; each must be there once."""
    text = SCENARIO.read_text()
    changes = {
        "http://127.0.0.1:8123": url,
        'duration = "12000s"': f'duration = "{laps * LAP_S}s"',
        "scale_outs >= 30": f"scale_outs >= {laps}",
        **changes,
    }
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def make_burst(path: Path) -> None:
    """Make the example's trace, by the command that stands in it."""
    made = re.search(r"(trace synth [^>]*?)-o burst.parquet", SCENARIO.read_text().replace("\\\n#", ""))
    assert made is not None
    subprocess.run([*_RAMPTRACE, *made[1].split(), "-o", path], check=True, stderr=subprocess.DEVNULL)


def soak(
    folder: Path, *, laps: int, time_scale: float, changes: dict[str, str] | None = None, baseline: Path | None = None
) -> Soaked:
    """Make the trace, serve the emulator, run the soak in `folder`, and gather all that is known of it."""
    folder.mkdir()
    environment = os.environ | {"AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": KEYS[1]}
    make_burst(folder / "burst.parquet")
    model, truth = folder / "model.toml", folder / "truth.parquet"
    model.write_text(made_scenario("http://127.0.0.1:1", laps, changes or {}))
    with start_emulator(credentials=KEYS, time_scale=time_scale, scenario=model, truth=truth, seed=laps) as url:
        for process in psutil.Process().children():
            before_other_work(process.pid)
        (folder / "emulated-soak.toml").write_text(made_scenario(url, laps, changes or {}))
        command = [*_RAMPTRACE, "soak", "emulated-soak.toml"]
        command += ["--baseline", str(baseline)] if baseline is not None else []
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        sizes: dict[str, list[float]] = {}
        over = threading.Event()
        looker = threading.Thread(target=_look, args=(process.pid, sizes, over), daemon=True)
        looker.start()
        said, _ = process.communicate(timeout=laps * LAP_S / time_scale + 180)
        over.set()
        looker.join()
    gate = folder / "soak" / "gate.json"
    return Soaked(
        code=process.returncode,
        said=said,
        gate=json.loads(gate.read_text()) if gate.exists() else {},
        folder=folder,
        truth=truth_of(truth),
        sizes_mb=sizes,
    )


def truth_of(path: Path) -> list[Instants]:
    """Return the true instants of each scale-out, in order; only those that asked for more units."""
    rows = pl.read_parquet(path).sort("at")
    found: list[Instants] = []
    for part in rows.partition_by("scaling_id", maintain_order=True):
        instants: Instants = {}
        for row in part.iter_rows(named=True):
            instants.setdefault((row["unit_id"], row["anchor"]), to_us(row["at"]))
        if any(anchor == "in_service" for _, anchor in instants):
            found.append(instants)
    return found


def outside(analysis: RunAnalysis, truth: list[Instants]) -> tuple[int, list[tuple[object, ...]]]:
    """Return how many anchors and phases were held to the truth of their scale-out, and those outside their bounds."""
    held, wrong = 0, []
    for number, (found, instants) in enumerate(zip(analysis.scale_outs, truth, strict=True)):
        for anchor in found.anchors:
            at_us = instants.get((anchor.unit_id, anchor.anchor))
            if at_us is not None:
                held += 1
                if not (anchor.lo_us or 0) <= at_us <= (anchor.hi_us or 2**62):
                    wrong.append((number, anchor.anchor, anchor.lo_us, at_us, anchor.hi_us, anchor.sources))
        for row in found.phases:
            length_us = true_length(instants, row.phase, found.marginal_unit)
            if length_us is not None and row.lo_us is not None and row.hi_us is not None:
                held += 1
                if not row.lo_us <= length_us <= row.hi_us:
                    wrong.append((number, row.phase, row.lo_us, length_us, row.hi_us))
    return held, wrong


def before_other_work(pid: int) -> None:
    """With `RAMPTRACE_BENCH_REALTIME=1` (as root) have a process's first thread run before the machine's other work."""
    if os.environ.get("RAMPTRACE_BENCH_REALTIME") == "1":
        os.sched_setscheduler(pid, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(10))


def _look(pid: int, sizes: dict[str, list[float]], over: threading.Event) -> None:
    """Note the resident memory (MB) of the replay and of its collector, until the soak is over."""
    while not over.wait(_LOOK_S):
        try:
            for process in psutil.Process(pid).children(recursive=True):
                line = process.cmdline()
                name = next((word for word in ("collect", "replay") if word in line), None)
                if name is not None:
                    if name == "replay" and name not in sizes:
                        before_other_work(process.pid)
                    sizes.setdefault(name, []).append(process.memory_info().rss / 1e6)
        except psutil.Error:
            continue
