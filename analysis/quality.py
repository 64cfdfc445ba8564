"""What a reader has to know about the data of a run before trusting its figures."""

from __future__ import annotations

from statistics import median
from typing import Any

import polars as pl

from analysis.inputs import RunInputs
from analysis.records import Finding
from traces.clock import to_datetime
from traces.units import US_PER_S, format_duration

_DATE_RESOLUTION_US = US_PER_S


def assess(inputs: RunInputs, never_recorded: int) -> list[Finding]:
    """Return the findings on a run's data, in a fixed order; `never_recorded` trace rows have no request row."""
    of_requests = [*_unfinished(inputs, never_recorded), *_workers(inputs), *_missing(inputs)]
    return [*of_requests, *_collector(inputs), *_gaps(inputs), *_clocks(inputs)]


def offset_beyond_date_us(inputs: RunInputs) -> int:
    """Return how far client and service clocks disagree beyond what the Date header's whole seconds explain.

    A Date header is cut to its second, so that clocks in step show offsets between −1 s and 0 (plus the transfer).
    """
    at = inputs.samples.filter((pl.col("source") == "collector") & (pl.col("metric") == "clock_offset_us"))["value"]
    if at.is_empty():
        return 0
    middle = int(median(at.to_list()))
    slack = round(max(inputs.clock.error_us, 50_000) * inputs.manifest.time_scale)
    if middle > slack:
        return middle
    return min(middle + _DATE_RESOLUTION_US + slack, 0)


def _finding(code: str, severity: Any, text: str) -> Finding:
    return Finding(code=code, severity=severity, text=text)


def _unfinished(inputs: RunInputs, lost: int) -> list[Finding]:
    found = []
    state = inputs.manifest.state
    sent, not_sent = sent_or_not(inputs)
    if state == "running":
        text = (
            f"the run was never closed: its replay was killed, or it still runs; {sent} requests are recorded as sent"
        )
        found.append(_finding("unfinished", "error", text))
    elif state == "interrupted":
        text = "the run was interrupted"
        text += f": {sent} requests were sent, {not_sent} were not" if sent + not_sent else " before any request"
        found.append(_finding("interrupted", "warning", text))
    if lost and inputs.request_rows:
        text = f"{lost} of {inputs.trace_rows} trace rows have no request row: in flight when it ended, or never sent"
        found.append(_finding("rows-lost", "error" if state == "running" else "warning", text))
    return found


def _workers(inputs: RunInputs) -> list[Finding]:
    """Tell which workers did not do their share of the load, and how much of it has no row."""
    manifest = inputs.manifest
    if manifest.part is not None:
        text = f"only what worker {manifest.part} recorded: add it to the run of its master with `ramptrace merge`"
        return [_finding("part-of-a-run", "error", text)]
    found = []
    for part in manifest.workers:
        if part.state in {"finished", "merged"}:
            continue
        rows = inputs.requests.filter(pl.col("shard") == part.shard)
        total, sent = rows.select(pl.len(), (pl.col("outcome") != "not_sent").sum()).collect(engine="streaming").row(0)
        planned = "its rows" if part.planned is None else f"its {part.planned} rows"
        missing = "" if part.planned is None else f", {part.planned - total} have no row at all"
        why = f" ({part.detail})" if part.detail else ""
        text = f"worker {part.shard} of {len(manifest.workers)} on {part.host}: {part.state}{why}; of {planned} "
        found.append(_finding("worker-lost", "error", text + f"{sent} were attempted{missing}"))
    return found


def sent_or_not(inputs: RunInputs) -> tuple[int, int]:
    """Return how many recorded requests were attempted, and how many were given up before."""
    counted = inputs.requests.select((pl.col("outcome") == "not_sent").sum()).collect(engine="streaming")
    not_sent = int(counted.item() or 0)
    return inputs.request_rows - not_sent, not_sent


def _missing(inputs: RunInputs) -> list[Finding]:
    found = []
    if not inputs.trace_rows:
        found.append(
            _finding("no-trace", "warning", "trace.parquet is missing or empty: what was to be sent is unknown")
        )
    if not inputs.request_rows:
        found.append(_finding("no-requests", "warning", "no request is recorded: demand and latency are unknown"))
    if inputs.observations.is_empty():
        found.append(_finding("no-observations", "warning", "no scaling event is recorded: nothing can be attributed"))
    return found


def _collector(inputs: RunInputs) -> list[Finding]:
    """Tell when the collector was absent, or stopped before the load did."""
    state = (inputs.manifest.collector or {}).get("state")
    if state == "died":
        why = (inputs.manifest.collector or {}).get("detail") or "no reason known"
        text = f"the collector died ({why}); the replay went on"
        # That it left no sign is no news of a collector that died.
        silent = [found for found in _silence(inputs) if found.code != "no-collector"]
        return [_finding("collector-died", "error", text), *silent]
    return _silence(inputs)


def _silence(inputs: RunInputs) -> list[Finding]:
    beats = inputs.samples.filter((pl.col("source") == "collector") & (pl.col("metric") == "heartbeat"))
    at = beats["received"].dt.epoch("us")
    wanted = bool(inputs.manifest.scenario.get("collect"))
    if at.is_empty():
        if inputs.observations.is_empty():
            text = "no sign of a collector" + (
                ", though the scenario asks for one" if wanted else "; none was asked for"
            )
            return [_finding("no-collector", "warning", text)]
        return []
    last: int = at.max()  # type: ignore[assignment]
    ended = _load_end_us(inputs)
    patience = round(max(5 * US_PER_S, 5 * inputs.manifest.flush_s * US_PER_S) * inputs.manifest.time_scale)
    if ended is None or ended - last <= patience:
        return []
    text = (
        f"collector silent from {_clock(last)} to the end of the load at {_clock(ended)} "
        f"({format_duration(ended - last)}): what happened then was not seen"
    )
    return [_finding("collector-silent", "error", text)]


def _load_end_us(inputs: RunInputs) -> int | None:
    """Return when the load ended, or was to end in a run that was killed.

    It ends with the last arrival, not the last answer: a backlog may drain long after the collector was to stop. What
    an interrupted run no longer sent was no load.
    """
    due = inputs.requests
    if inputs.manifest.state == "interrupted":
        due = due.filter(pl.col("sent").is_not_null())
    last: int | None = due.select(pl.col("due").max().dt.epoch("us")).collect(engine="streaming").item()
    if inputs.manifest.state != "running" or inputs.load_start_us is None or not inputs.trace_rows:
        return last
    planned: int = inputs.trace.select(pl.col("arrival_us").max()).collect(engine="streaming").item()
    return max(inputs.load_start_us + planned, last or 0)


def _gaps(inputs: RunInputs) -> list[Finding]:
    found = []
    if inputs.gaps.is_empty():
        return []
    grouped = inputs.gaps.filter(pl.col("reason") != "stopped").group_by("source", "reason").agg(
        n=pl.len(),
        total=(pl.col("end") - pl.col("start")).dt.total_microseconds().sum(),
        open=pl.col("end").is_null().any(),
        longest=(pl.col("end") - pl.col("start")).dt.total_microseconds().max(),
    )  # fmt: skip
    for row in grouped.sort("source", "reason").iter_rows(named=True):
        until = ", and not readable at the end" if row["open"] else ""
        long = f", longest {format_duration(row['longest'])}" if row["longest"] else ""
        what = "lost rows, the disk was full," if row["reason"] == "disk" else "could not be read"
        why = "" if row["reason"] == "disk" else f": {row['reason']}"
        text = f"{row['source']} {what} {row['n']} time(s){why}{long}{until}"
        found.append(_finding("gap", "warning", text))
    return found


def _clocks(inputs: RunInputs) -> list[Finding]:
    beyond = offset_beyond_date_us(inputs)
    if not beyond:
        return []
    text = (
        f"client and service clocks disagree by {format_duration(abs(beyond))}; bounds that mix the two are "
        "widened by it"
    )
    return [_finding("clock-offset", "warning", text)]


def _clock(us: int) -> str:
    return to_datetime(us).strftime("%H:%M:%S")
