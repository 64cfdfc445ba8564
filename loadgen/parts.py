"""What the workers of a run come to together. Pure, but for the request table that is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadgen.verdict import ClientState
from traces.manifest import WorkerPart
from traces.run import RunDir

LOST = "worker_lost"
"""`error_kind` of rows that were a lost worker's to send, and were not sent, or are not known to be."""

BROKEN = ("lost", "failed", "stopped")
"""States of a worker that did not do its share."""


def recorded_per_shard(run: RunDir) -> dict[int, int]:
    """Return how many rows the request table has of each worker."""
    counted = run.scan("requests").group_by("shard").len().collect(engine="streaming")
    return dict(counted.iter_rows())


def unaccounted(workers: Sequence[WorkerPart], recorded: Mapping[int, int], stop_reason: str | None) -> dict[str, int]:
    """Return how many planned rows have no row in the table, by reason; those of a plan without end are not counted.

    >>> workers = [WorkerPart(shard=0, host="a", planned=9, state="finished"),
    ...     WorkerPart(shard=1, host="b", planned=9, state="lost")]
    >>> unaccounted(workers, {0: 9, 1: 4}, None)
    {'worker_lost': 5}
    """
    found: dict[str, int] = {}
    for part in workers:
        missing = 0 if part.planned is None else part.planned - recorded.get(part.shard, 0)
        if missing > 0:
            reason = LOST if part.state in BROKEN else stop_reason or "internal_error"
            found[reason] = found.get(reason, 0) + missing
    return found


def broken(workers: Sequence[WorkerPart]) -> list[str]:
    """Return what became of each worker that did not do its share, in words."""
    return [
        f"worker {part.shard} on {part.host} {'was ' if part.state != 'failed' else ''}{part.state}"
        + (f" ({part.detail})" if part.detail else "")
        + ("" if part.shared else "; add what it recorded with `ramptrace merge`")
        for part in workers
        if part.state in BROKEN
    ]


def worst(workers: Sequence[WorkerPart]) -> ClientState:
    """Return the worst figure of any worker: one that is saturated spoils its part of the load."""

    def highest(name: str) -> float | None:
        return max((value for part in workers if (value := getattr(part, name)) is not None), default=None)

    return ClientState(
        hub_latency_p99_us=_whole(highest("hub_latency_p99_us")),
        connect_p99_us=_whole(highest("connect_p99_us")),
        cpu_share=highest("cpu_share"),
        cpu_wait_share=highest("cpu_wait_share"),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
