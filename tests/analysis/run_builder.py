"""Builds run directories from a known truth: the reference case, with what a collector would have seen of it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

from traces.clock import EndpointClock, to_datetime
from traces.manifest import Manifest, TraceUsed
from traces.run import RunDir, ShardWriter, columns_of, write_parquet
from traces.schema import TABLES, Trace

S = 1_000_000
EPOCH = 1_790_000_000 * S
"""Endpoint time of the trace's start."""


@dataclass
class Unit:
    name: str
    provisioning_s: float = 120.0
    pull_s: float = 333.0
    download_s: float = 168.0
    start_s: float = 72.0
    weights_s: float = 30.0


def before_units():
    return [Unit("i-0aaa", provisioning_s=118.0), Unit("i-0bbb", provisioning_s=120.0)]


def after_units():
    return [
        Unit("i-0ccc", provisioning_s=119.0, pull_s=0.0, download_s=77.0, start_s=61.0),
        Unit("i-0ddd", provisioning_s=120.0, pull_s=0.0, download_s=77.0, start_s=61.0),
    ]


@dataclass
class Case:
    """The truth. Seconds are endpoint time from the trace's start."""

    units: list[Unit] = field(default_factory=before_units)
    time_scale: float = 1.0
    onset_s: float = 130.0
    end_s: float = 900.0
    base_rate: float = 1.0
    burst_rate: float = 12.0
    unit_rate: float = 4.5
    units_before: int = 1
    breach_period_s: float = 10.0
    breach_start_s: float = 130.0
    alarm_s: float = 165.3
    decision_s: float = 170.4
    noticed_after_s: float = 0.5
    poll_s: float = 5.0
    condition: str | None = "image-cache-off"
    run_id: str = "20261201T000000Z-before"
    name: str = "before"
    seed: int = 1
    promql: bool = True
    unit_labels: bool = True
    container_logs: bool = True
    ready_logs: bool = False
    activities: bool = True
    counts: bool = True
    emulated: bool = True
    trace_sha: str = "ab" * 32
    instance_type: str = "ml.g6.2xlarge"
    lag_ms: float = 0.3
    complete: bool = True

    def times(self, unit: Unit):
        launched = self.decision_s + unit.provisioning_s
        container = launched + max(unit.pull_s, unit.download_s)
        ready = container + unit.start_s
        return {"launched": launched, "container_started": container, "ready": ready, "in_service": ready}

    @property
    def in_service_s(self):
        return max(self.times(u)["in_service"] for u in self.units)

    @property
    def clock(self):
        scale = self.time_scale
        # The client clock reads something else altogether when time is compressed.
        epoch = EPOCH if scale == 1 else EPOCH + 12_345 * S
        return EndpointClock(client_epoch_us=epoch, endpoint_epoch_us=EPOCH, time_scale=scale, error_us=500)

    def client(self, endpoint_s: float):
        return to_datetime(self.clock.to_client_us(EPOCH + round(endpoint_s * S)))


def at(seconds: float):
    return to_datetime(EPOCH + round(seconds * S))


def build(path: Path, case: Case, *, state="finished", shuffle=None, double=False) -> Path:
    manifest = Manifest(
        run_id=case.run_id,
        name=case.name,
        condition=case.condition,
        state=state,
        emulated=case.emulated,
        created_us=case.clock.to_client_us(EPOCH) - 2 * S,
        t0_us=case.clock.to_client_us(EPOCH),
        clock=case.clock,
        trace=TraceUsed(source="synthetic", sha256=case.trace_sha),
        versions={"ramptrace": "0.1.0"},
        scenario={"collect": {"endpoint_name": "demo"}},
        collector={"exit_code": 0},
        verdict={"verdict": "VALID", "reasons": []} if state == "finished" else None,
    )
    run = RunDir.create(path, manifest)
    arrivals = arrivals_of(case)
    trace = [
        {"row_id": i, "arrival_us": round(t * S), "input_tokens": 200, "output_tokens": 100}
        for i, t in enumerate(arrivals)
    ]
    import polars as pl

    write_parquet(path / "trace.parquet", pl.DataFrame(columns_of(trace, Trace), schema=pl.Schema(Trace)))
    write(run, "requests", requests_of(case, arrivals))
    rows = observations_of(case)
    if double:
        rows = rows + rows
    if shuffle is not None:
        random.Random(shuffle).shuffle(rows)
    write(run, "observations", rows)
    write(run, "samples", samples_of(case))
    run.write_snapshot("describe-endpoint-first", endpoint(case.units_before))
    run.write_snapshot("describe-endpoint-config", {"ProductionVariants": [{"InstanceType": case.instance_type}]})
    run.write_snapshot("describe-model", {"PrimaryContainer": {"Image": "repo/image:1"}})
    return path


def write(run, table, rows):
    ShardWriter(run, table, "test").write(columns_of(rows, TABLES[table]))


def endpoint(count):
    return {
        "EndpointName": "demo",
        "ProductionVariants": [{"CurrentInstanceCount": count, "DesiredInstanceCount": count}],
    }


def arrivals_of(case: Case):
    rng = random.Random(case.seed)
    times, t = [], 0.0
    while True:
        rate = case.base_rate if t < case.onset_s else case.burst_rate
        step = rng.expovariate(rate)
        if t < case.onset_s < t + step:
            t = case.onset_s
            times.append(t)
            continue
        t += step
        if t >= case.end_s:
            return times
        times.append(t)


def requests_of(case: Case, arrivals):
    """First come, first served, at the ready units' joint rate."""
    ready = sorted(case.times(u)["in_service"] for u in case.units)
    rows, free = [], 0.0
    for i, due in enumerate(arrivals):
        begin = max(due, free)
        units = case.units_before + sum(1 for r in ready if r <= begin)
        free = begin + 1 / (case.unit_rate * units)
        first, done = begin + 0.2, max(free, begin + 0.4)
        sent = due + case.lag_ms / 1000 * case.time_scale
        rows.append(
            {
                "row_id": i,
                "shard": 0,
                "due": case.client(due),
                "sent": case.client(sent),
                "headers": case.client(first),
                "first_token": case.client(first),
                "done": case.client(done),
                "outcome": "ok",
                "http_status": 200,
                "planned_output_tokens": 100,
                "output_tokens": 100,
                "endpoint": "openai",
            }
        )
    return rows


def observations_of(case: Case):
    end = case.in_service_s
    detail = {
        "description": f"Setting desired instance count to {case.units_before + len(case.units)}.",
        "desired": case.units_before + len(case.units),
        "cause": "monitor alarm TargetTracking-demo-AlarmHigh in state ALARM triggered policy",
        "status_code": "Successful",
    }
    rows = []
    if case.activities:
        rows.append(
            observation(
                case,
                "application-autoscaling:activity",
                "decision",
                case.decision_s,
                case.decision_s,
                "event",
                "service",
                "act-1:decision",
                scaling_id="act-1",
                detail=detail,
            )
        )
        if case.complete:
            noticed = end + case.noticed_after_s
            rows.append(
                observation(
                    case,
                    "application-autoscaling:activity",
                    "in_service",
                    case.decision_s,
                    noticed,
                    "event",
                    "service",
                    "act-1:in_service",
                    scaling_id="act-1",
                    detail=detail,
                )
            )
    alarm = {"alarm_name": "TargetTracking-demo-AlarmHigh", "period_s": case.breach_period_s}
    stem = f"TargetTracking-demo-AlarmHigh:{EPOCH + round(case.alarm_s * S)}"
    rows.append(
        observation(
            case,
            "cloudwatch:alarm-history",
            "alarm",
            case.alarm_s,
            case.alarm_s,
            "event",
            "service",
            f"{stem}:alarm",
            detail=alarm,
        )
    )
    rows.append(
        observation(
            case,
            "cloudwatch:alarm-history",
            "breach",
            case.breach_start_s,
            case.breach_start_s + case.breach_period_s,
            "event",
            "service",
            f"{stem}:breach",
            detail=alarm,
            resolution_us=round(case.breach_period_s * S),
        )
    )
    rows += polled_rows(case)
    rows.append(
        observation(
            case,
            "logs:first-event",
            "container_started",
            -500,
            -500,
            "event",
            "instance",
            "/aws/sagemaker/Endpoints/demo:AllTraffic/i-0old",
            unit_id="i-0old",
        )
    )
    for unit in case.units:
        rows += unit_rows(case, unit)
    return rows


def polled_rows(case: Case):
    if not case.counts:
        return []
    after = case.units_before + len(case.units)
    rows = []
    lo, hi = bracket(case, case.decision_s)
    rows.append(
        observation(
            case,
            "sagemaker:describe-endpoint",
            "decision",
            lo,
            hi,
            "polled",
            "client",
            f"desired:{case.units_before}->{after}:{hi}",
            detail={"from": case.units_before, "to": after},
        )
    )
    count = case.units_before
    for t in sorted(case.times(u)["in_service"] for u in case.units):
        if not case.complete:
            break
        lo, hi = bracket(case, t)
        rows.append(
            observation(
                case,
                "sagemaker:describe-endpoint",
                "in_service",
                lo,
                hi,
                "polled",
                "client",
                f"current:{count}->{count + 1}:{hi}:{t}",
                detail={"from": count, "to": count + 1},
            )
        )
        count += 1
    return rows


def bracket(case: Case, t: float):
    """The two polls around an instant, with the round trip's width."""
    lo = (t // case.poll_s) * case.poll_s + 0.37
    lo = lo if lo <= t else lo - case.poll_s
    return lo, lo + case.poll_s + 0.06


def unit_rows(case: Case, unit: Unit):
    t, label, rows = case.times(unit), unit.name if case.unit_labels else None, []
    if case.container_logs:
        first = t["container_started"] + 0.25
        rows.append(
            observation(
                case,
                "logs:first-event",
                "container_started",
                first,
                first,
                "event",
                "instance",
                f"/aws/sagemaker/Endpoints/demo:AllTraffic/{unit.name}",
                unit_id=unit.name,
            )
        )
    if case.ready_logs:
        rows.append(
            observation(
                case,
                "logs:pattern",
                "ready",
                t["ready"],
                t["ready"],
                "event",
                "instance",
                f"event-{unit.name}",
                unit_id=unit.name,
            )
        )
    if case.promql and case.complete:
        sampled = t["ready"] + 3
        for anchor, name, value in (
            ("download_finished", "model_download_time", unit.download_s),
            ("ready", "container_start_time", unit.start_s),
            ("load_finished", "gpu_load_time", unit.weights_s),
        ):
            rows.append(
                observation(
                    case,
                    f"promql:{name}",
                    anchor,
                    None,
                    sampled,
                    "reported",
                    "service",
                    f"{unit.name}:{sampled}",
                    unit_id=label,
                    duration_us=round(value * S),
                    resolution_us=S,
                )
            )
    return rows


def observation(case: Case, source, anchor, lo, hi, method, clock, native_id, *, detail=None, **more):
    stamp = case.client if clock == "client" else at
    known = hi if hi is not None else lo
    return {
        "platform": "sagemaker",
        "resource": "endpoint/demo/variant/AllTraffic",
        "anchor": anchor,
        "lo": None if lo is None else stamp(lo),
        "hi": None if hi is None else stamp(hi),
        "source": source,
        "method": method,
        "native_id": native_id,
        "clock": clock,
        "request_sent": case.client(known + 1),
        "response_received": case.client(known + 1.1),
        "verified": True,
        "detail": None if detail is None else json.dumps(detail),
        **more,
    }


def samples_of(case: Case):
    last = max(case.end_s, case.in_service_s) + 60
    return [
        {
            "source": "collector",
            "metric": "heartbeat",
            "resource": "collector",
            "start": at(t),
            "period_us": 0,
            "statistic": "Value",
            "value": 1.0,
            "received": case.client(t),
        }
        for t in range(0, round(last), 5)
    ]


def after_case(**changes) -> Case:
    settings = {
        "units": after_units(),
        "condition": "image-cache-on",
        "run_id": "20261201T010000Z-after",
        "name": "after",
        "seed": 2,
    } | changes
    return Case(**settings)
