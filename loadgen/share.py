"""One worker's share of a replay: the same file as the master's, the rows that are this worker's, and their sending."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from loadgen.checkpoint import Checkpoint
from loadgen.endpoints.base import shown_address
from loadgen.filing import versions
from loadgen.intake import cut_trace, write_plan
from loadgen.laps import planned_rows
from loadgen.link import TargetLink
from loadgen.lookahead import Plan
from loadgen.native import in_thread
from loadgen.recorder import RequestRow
from loadgen.scenario import Scenario
from loadgen.scenario_file import build_scenario
from loadgen.sending import Schedule, Sending
from loadgen.sharding import keep_shard, shard_cap, shard_laps
from traces.clock import ClientClock
from traces.errors import BadInputError
from traces.manifest import Laps, Manifest
from traces.run import MANIFEST, RunDir

_SAME = ("ramptrace", "locust")
"""Packages whose versions must be the same on master and workers."""


def plan_file(folder: Path, shard: int) -> Path:
    """Return where a worker's rows of the plan are kept while it sends."""
    return folder / f"plan-worker{shard}.parquet"


def checkpoint_name(shard: int) -> str:
    """Return the name of a worker's checkpoint."""
    return f"checkpoint-worker{shard}"


class Share:
    """From the master's first question to the last row. Each step returns its answer, or raises `RamptraceError`.

    `trace` and `target` are this worker's own words for the file and the address, `run_path` the directory to write to
    where it does not see the master's. Instants are the master's, once `begin` was told how far its clock is away.
    """

    def __init__(self, *, trace: str | None, target: str | None, run_path: Path | None) -> None:
        self._trace = trace
        self._target = target
        self._run_path = run_path
        self._clock = ClientClock()
        self._offset_us = 0
        self._scenario: Scenario
        self._link: TargetLink
        self._frame: pl.LazyFrame
        self._laps: Laps | None = None
        self._rows = 0
        self._planned: int | None = 0
        self._checkpoint: Checkpoint
        self._sending: Sending | None = None
        self.shard = 0
        self.run: RunDir | None = None

    def raw_us(self) -> int:
        """Return the present instant on this machine's own clock."""
        return self._clock.now_us()

    def now_us(self) -> int:
        """Return the present instant on the master's clock."""
        return self._clock.now_us() - self._offset_us

    @property
    def label(self) -> str:
        """What the requests go to, in a word."""
        return self._link.endpoint.label

    @property
    def url(self) -> str:
        """The target's address."""
        return self._link.endpoint.url

    @property
    def sending(self) -> Sending:
        """What sends it, once it was opened."""
        assert self._sending is not None
        return self._sending

    def check(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Read the plan's file, hold it against the master's, take this worker's rows, and reach the target."""
        self._same_versions(asked["versions"])
        shard, shards = int(asked["shard"]), int(asked["shards"])
        self.shard = shard
        scenario = self._own(build_scenario(asked["scenario"], origin="the master's plan"))
        cap = shard_cap(scenario.replay.max_in_flight, shard, shards)
        self._scenario = msgspec.structs.replace(
            scenario, replay=msgspec.structs.replace(scenario.replay, max_in_flight=cap)
        )
        cut = in_thread(cut_trace, scenario)
        path, sha256 = scenario.trace.path, cut.used.sha256
        if sha256 != asked["sha256"] or cut.used.rows != asked["rows"]:
            here, there = (str(digest)[:12] for digest in (sha256, asked["sha256"]))
            raise BadInputError(
                f"{path}: not the file that the master replays (sha256 {here}… here, {there}… there); give every "
                "worker the same file, with --trace where its name differs"
            )
        self._frame = in_thread(keep_shard, cut.frame, shard, shards)
        arrivals = in_thread(lambda: self._frame.select("arrival_us").collect().to_series())
        self._rows = len(arrivals)
        self._laps = shard_laps(cut.laps, self._rows)
        endless = cut.laps is not None and cut.laps.until_us is None
        self._planned = self._rows if self._laps is None else planned_rows(self._laps, arrivals)
        if endless and not self._rows:
            self._planned = 0
        self._link = TargetLink(self._scenario, self.now_us)
        self._link.reach()
        return {"host": socket.gethostname(), "pid": os.getpid(), "planned": self._planned, "versions": versions()}

    def open(
        self,
        asked: dict[str, Any],
        on_row: Callable[[RequestRow], None],
        each_second: Callable[[], None],
    ) -> dict[str, Any]:
        """Open the master's run directory, or one of this worker's own where that is not to be seen from here."""
        manifest = msgspec.convert(asked["manifest"], Manifest)
        run = self._place(Path(asked["run_path"]), manifest)
        in_thread(write_plan, self._frame, plan_file(run.path, self.shard))
        self._checkpoint = Checkpoint(run.path, checkpoint_name(self.shard))
        self._sending = Sending(
            self._scenario,
            self._link,
            run,
            self._checkpoint,
            clock=manifest.clock,
            now_us=self.now_us,
            on_row=on_row,
            each_second=each_second,
            shard=self.shard,
        )
        self.run = run
        return {"shared": str(run.path) == asked["run_path"], "path": str(run.path)}

    def send(self, asked: dict[str, Any], time_scale: float) -> None:
        """Send it all, from the common t0 on. Raises what went wrong."""
        assert self.run is not None
        plan = Plan(plan_file(self.run.path, self.shard), self._scenario.replay, time_scale, laps=self._laps)
        schedule = Schedule(
            plan=plan,
            t0_us=asked["t0_us"],
            measured_from_us=asked["measured_from_us"],
            last_due_us=asked["last_due_us"],
            endless=self._laps is not None,
        )
        try:
            self.sending.run(schedule)
        finally:
            self._checkpoint.close()

    def set_clock(self, offset_us: int) -> None:
        """Take how far this machine's clock is ahead of the master's."""
        self._offset_us = offset_us

    def _same_versions(self, wanted: dict[str, str]) -> None:
        found = versions()
        for package in _SAME:
            if found.get(package) != wanted.get(package):
                raise BadInputError(
                    f"{package} is {found.get(package)} here and {wanted.get(package)} on the master; install the same"
                )

    def _own(self, scenario: Scenario) -> Scenario:
        """Return the master's scenario in this worker's words."""
        trace, target = scenario.trace, scenario.target
        if self._trace is not None:
            trace = msgspec.structs.replace(trace, path=self._trace)
        if target.url is not None and target.url.endswith("?***"):
            if self._target is None:
                raise BadInputError(
                    f"the query of {target.url} may be a key, so the master does not send it; give this worker the "
                    "whole address with --target, or in RAMPTRACE_TARGET"
                )
            if shown_address(self._target) != target.url:
                raise BadInputError(f"--target {shown_address(self._target)} is not the master's {target.url}")
            target = msgspec.structs.replace(target, url=self._target)
        return msgspec.structs.replace(scenario, trace=trace, target=target)

    def _place(self, path: Path, manifest: Manifest) -> RunDir:
        if (path / MANIFEST).is_file() and RunDir.open(path).manifest().run_id == manifest.run_id:
            return RunDir(path)
        own = self._run_path or Path(self._scenario.run.directory) / f"{manifest.run_id}-worker{self.shard}"
        manifest.part = self.shard
        return RunDir.create(own, manifest)
