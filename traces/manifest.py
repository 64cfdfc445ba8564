"""What `run.json` says: what a run is, what it replays, and the stretches and workers that it was sent by."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from traces.clock import EndpointClock
from traces.lineage import LineageStep
from traces.schema import SCHEMA_VERSION


class TraceUsed(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Which trace a run replays, and how it was cut.

    `transforms` are the steps that made the file, as its metadata states them; the window was cut after them.
    `sampling_percent`: the share of the real requests that its rows are, where that was declared.
    """

    source: str
    format: str | None = None
    sha256: str | None = None
    window: str | None = None
    rows: int | None = None
    transforms: list[LineageStep] = []
    sampling_percent: float | None = None


class Laps(msgspec.Struct, frozen=True, kw_only=True):
    """How a trace is repeated: `rows` in one lap, which lasts `length_us` (endpoint time).

    In lap k a row's arrival is k × `length_us` later, and its `row_id` k × `stride` higher. Arrivals from `until_us`
    on are not sent; null is no end.
    """

    rows: int
    length_us: int
    stride: int
    until_us: int | None = None


class Stretch(msgspec.Struct, kw_only=True):
    """A stretch of a replay without a break; a resumed run has several. Instants are client µs since 1970.

    `t0_us`: when the trace's start was due, or would have been (a resumed stretch begins later in the trace).
    `position`: how many rows of the plan lie before it. Rows due from `began_us` to `warm_up_until_us` are warm-up.
    """

    t0_us: int
    began_us: int
    position: int = 0
    warm_up_until_us: int | None = None
    ended_us: int | None = None


class WorkerPart(msgspec.Struct, kw_only=True):
    """One of the processes that sent a run's load; `shard` is what its request rows have as theirs.

    `planned` rows were its to send (null: no end). Its clock was read against the master's, over the network:
    instants are corrected by `clock_offset_us`, and may still be off by `clock_error_us`. `state` `lost`: it was out of
    reach before its end, and what it sent may be missing. `shared`: it wrote into this very directory.
    """

    shard: int
    host: str
    state: Literal["running", "finished", "stopped", "failed", "lost", "merged"] = "running"
    detail: str | None = None
    planned: int | None = None
    shared: bool = True
    clock_offset_us: int = 0
    clock_error_us: int = 0
    hub_latency_p99_us: int | None = None
    connect_p99_us: int | None = None
    cpu_share: float | None = None
    cpu_wait_share: float | None = None


class Manifest(msgspec.Struct, kw_only=True):
    """`run.json`: what a run is, from its start on. Instants are µs since 1970 UTC on the client clock.

    `state` is `running` until the replay (or the collector, alone) closes it; a run found `running` later was killed.
    `simulated` (seed and profile) tells a run in virtual time, in which nothing was sent over any network.
    `workers` is empty for a load sent by one process. `part` is the shard of a worker that wrote a directory of its own
    (the same `run_id`, that worker's rows alone, to be merged into the run's).
    """

    run_id: str
    schema_version: str = SCHEMA_VERSION
    name: str = "run"
    condition: str | None = None
    state: Literal["running", "finished", "interrupted"] = "running"
    emulated: bool = False
    simulated: dict[str, Any] | None = None
    created_us: int = 0
    t0_us: int | None = None
    finished_us: int | None = None
    clock: EndpointClock = msgspec.field(default_factory=EndpointClock)
    trace: TraceUsed | None = None
    scenario: dict[str, Any] = msgspec.field(default_factory=dict)
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    flush_s: float = 1.0
    collector: dict[str, Any] | None = None
    verdict: dict[str, Any] | None = None
    laps: Laps | None = None
    stretches: list[Stretch] = msgspec.field(default_factory=list)
    workers: list[WorkerPart] = msgspec.field(default_factory=list)
    part: int | None = None

    @property
    def warm_ups_us(self) -> list[tuple[int, int]]:
        """The warm-up windows [begin, end), client µs since 1970: what was due in them counts for no figure."""
        ends = ((s.began_us, s.warm_up_until_us) for s in self.stretches)
        return [(begin, end) for begin, end in ends if end is not None and end > begin]

    @property
    def time_scale(self) -> float:
        """How many endpoint seconds pass in one client second (1 on a real platform)."""
        return self.clock.time_scale
