"""What a finished replay comes to: its verdict, its summary, and shards that can be opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from loadgen.guard import Estimate
from loadgen.recorder import writers_of
from loadgen.scenario import Scenario
from loadgen.summary import counts, errors, fidelity, latencies_ms, stalls, tokens, without_warm_up
from loadgen.verdict import ClientState, verdict
from traces.manifest import Manifest
from traces.run import RunDir

_COMPACT_ROWS = 2_000_000


def conclude(
    run: RunDir,
    manifest: Manifest,
    scenario: Scenario,
    *,
    client: ClientState,
    never_taken: Mapping[str, int],
    aborted: str | None,
    estimate: Estimate | None,
) -> dict[str, Any]:
    """Form the verdict into the manifest, and return the run's summary (the document that `--json` prints)."""
    requests, time_scale = run.scan("requests"), manifest.time_scale
    found = fidelity(
        requests,
        limits=scenario.verdict,
        time_scale=time_scale,
        t0_us=manifest.t0_us or 0,
        warm_ups_us=manifest.warm_ups_us,
        never_taken=never_taken,
        aborted=aborted,
        stalls=stalls(run.scan("samples"), time_scale),
        client=client,
        workers=manifest.workers,
        max_in_flight=scenario.replay.max_in_flight,
    )
    manifest.verdict = verdict(found, scenario.verdict)
    return {
        "schema": 1,
        "run": str(run.path),
        "emulated": manifest.emulated,
        "condition": manifest.condition,
        "estimate": None if estimate is None else msgspec.to_builtins(estimate),
        "verdict": manifest.verdict,
        "workers": msgspec.to_builtins(manifest.workers),
        "requests": counts(requests, never_taken),
        "errors": errors(requests),
        "resent": client.resent,
        "tokens": tokens(requests),
        "latency_ms": latencies_ms(without_warm_up(requests, manifest.warm_ups_us), time_scale),
    }


def compact(run: RunDir, manifest: Manifest, *, whole: bool, planned: int | None) -> None:
    """Merge shards: all requests of a run that is over; of one that may go on, those of its own senders.

    A worker that was lost may still be writing: its shards stay as they are.
    """
    senders = [part.shard for part in manifest.workers if part.state != "lost"] if manifest.workers else [0]
    whole = whole and len(senders) >= len(manifest.workers)
    merge_all = whole and planned is not None and planned <= _COMPACT_ROWS
    if merge_all:
        run.compact("requests")
    for writers in map(writers_of, senders):
        if not merge_all:
            run.compact("requests", writer=writers.requests)
        run.compact("samples", writer=writers.samples)
