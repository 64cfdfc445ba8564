"""Thresholds held against what was measured, bounds included. Pure.

A value is an interval: what a platform hides has bounds only. A threshold passes when the whole interval meets it and
fails when none of it does; one that lies in between is *inconclusive*. What was not measured, or on too few events, is
*skipped*, with the reason: neither is a pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from analysis.analyse import RunAnalysis
from analysis.records import ScaleOutResult
from traces.errors import BadInputError
from traces.manifest import Manifest
from traces.schema import HEADLINES
from traces.thresholds import Quantity, Threshold, parse_threshold
from traces.units import US_PER_MS, US_PER_S, format_duration

Status = Literal["pass", "fail", "inconclusive", "skipped"]
Undecided = Literal["fail", "pass", "skip"]

LATENCIES: Final = {
    "ttft": "ttft_from_due",
    "ttft_sent": "ttft_from_sent",
    "e2e": "end_to_end_from_due",
    "e2e_sent": "end_to_end_from_sent",
}
_SHARE_OF: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}


class GateSection(msgspec.Struct, frozen=True, kw_only=True):
    """What the manifest keeps of the scenario's [gate]; `undecided` is what an inconclusive threshold counts as."""

    thresholds: tuple[str, ...] = ()
    undecided: Undecided = msgspec.field(default="fail", name="inconclusive")
    baseline: str | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A value within [lo, hi] (µs, a fraction, or a count); `n` events are behind it."""

    lo: float
    at: float
    hi: float
    n: int


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one threshold; `reason` is a sentence for people, `measured` is null when it was skipped."""

    threshold: Threshold
    status: Status
    reason: str
    measured: Measured | None = None


class NotMeasuredError(Exception):
    """A quantity that this run does not have; the message says why."""


class UndecidedError(Exception):
    """A quantity that this run has begun and not ended; the message says why."""


def judge(threshold: Threshold, run: RunAnalysis, baseline: Sequence[RunAnalysis] = ()) -> Judgement:
    """Return what came of a threshold for `run`; `baseline` are the runs to compare with."""
    try:
        found = _measure(threshold.quantity, run, baseline)
    except NotMeasuredError as error:
        return Judgement(threshold=threshold, status="skipped", reason=str(error))
    except UndecidedError as error:
        return Judgement(threshold=threshold, status="inconclusive", reason=str(error))
    ends = {threshold.holds(found.lo), threshold.holds(found.hi)}
    status: Status = "inconclusive" if len(ends) == 2 else "pass" if ends == {True} else "fail"
    reason = f"measured {told(found, threshold.quantity)}"
    if status == "inconclusive" and not math.isinf(found.at):
        reason += ": the limit lies within the bounds"
    if status == "fail" and threshold.quantity.function == "regression":
        reason += _blame(threshold.quantity, run, baseline)
    return Judgement(threshold=threshold, status=status, reason=reason, measured=found)


def gate_of(manifest: Manifest) -> GateSection:
    """Return what the run's scenario says of its gate. Raises `BadInputError` where the manifest cannot be read."""
    try:
        return msgspec.convert(manifest.scenario.get("gate") or {}, GateSection)
    except msgspec.ValidationError as error:
        raise BadInputError(
            f"{manifest.run_id}: [gate] in its manifest cannot be read ({error}); give --expr"
        ) from error


def held(run: RunAnalysis) -> list[Judgement]:
    """Return what came of the thresholds of the run's own scenario; without a baseline, which `gate` takes."""
    return [judge(parse_threshold(text), run) for text in gate_of(run.manifest).thresholds]


def told(found: Measured, quantity: Quantity) -> str:
    """Return a measured value for people, with its bounds where they differ."""
    write = _writer(quantity)
    if math.isinf(found.at):
        return f"at least {write(found.lo)}: a scale-out had not ended"
    bounds = "" if found.lo == found.hi else f" [{write(found.lo)} … {write(found.hi)}]"
    if quantity.function == "count":
        return f"{write(found.at)}{bounds}"
    what = "request" if (quantity.of or quantity).function in {"of_requests", "requests"} else "scale-out"
    return f"{write(found.at)}{bounds} ({found.n:,} {what}{'' if found.n == 1 else 's'})"


def _writer(quantity: Quantity) -> Callable[[float], str]:
    if quantity.dimension == "share":
        return lambda v: "∞" if math.isinf(v) else f"{v:.1%}"
    if quantity.dimension == "count":
        return lambda v: f"{v:g}"
    return lambda v: "∞" if math.isinf(v) else format_duration(v)


def _measure(quantity: Quantity, run: RunAnalysis, baseline: Sequence[RunAnalysis]) -> Measured:
    if quantity.function == "count":
        n = len(run.scale_outs)
        return Measured(lo=n, at=n, hi=n, n=n)
    if quantity.function == "of_requests":
        return _of_requests(quantity, run)
    if quantity.function == "requests":
        return _counted(quantity, run)
    if quantity.function == "regression":
        return _regression(quantity, run, baseline)
    values = [_span(quantity, found, run.seen_until_us) for found in run.scale_outs]
    if not values:
        raise NotMeasuredError("no scale-out was seen")
    return _over(values, quantity)


def _of_requests(quantity: Quantity, run: RunAnalysis) -> Measured:
    stat = quantity.stat or "max"
    if quantity.name == "lag":
        value, n = run.fidelity.get(f"lag_{stat}_ms"), run.request_count
        value = None if value is None else value * US_PER_MS
    else:
        row = run.latency["all"][LATENCIES[quantity.name]]
        value, n = row[f"{stat}_s"], int(row["n"])
        value = None if value is None else value * US_PER_S
    needed = 1 if stat == "max" else math.ceil(1 / (1 - _SHARE_OF[stat]) - 1e-9)
    if value is None or n < needed:
        raise NotMeasuredError(f"{stat} takes {needed} successful requests, there were {n}")
    return Measured(lo=value, at=value, hi=value, n=n)


def _counted(quantity: Quantity, run: RunAnalysis) -> Measured:
    if not run.request_count:
        raise NotMeasuredError("no request was recorded")
    outcomes = run.latency["all"]["outcomes"]
    total = sum(outcomes.values())
    if quantity.name == "failed":
        count = sum(n for outcome, n in outcomes.items() if outcome not in {"ok", "cancelled"})
    else:
        # Clients that left did so on purpose: they were not kept waiting longer than they wanted.
        count = total - outcomes.get("cancelled", 0) - run.attained
    if not total:
        raise NotMeasuredError("every request was warm-up")
    return Measured(lo=count / total, at=count / total, hi=count / total, n=total)


def _span(quantity: Quantity, found: ScaleOutResult, until_us: int | None) -> Measured:
    """Return the span of one scale-out that was watched `until_us`; hi is infinite where it had not ended by then."""
    lo, at, hi = _length(quantity.name, found, until_us)
    if quantity.function == "share":
        return _share(lo, at, hi, _total("time_to_capacity", found, until_us))
    if quantity.function == "lo":
        return Measured(lo=lo, at=lo, hi=lo, n=1)
    if quantity.function == "hi":
        return Measured(lo=hi, at=hi, hi=hi, n=1)
    return Measured(lo=lo, at=at, hi=hi, n=1)


def _share(lo: float, at: float, hi: float, whole: tuple[float, float, float]) -> Measured:
    whole_lo, whole_at, whole_hi = whole
    if math.isinf(whole_at):
        raise UndecidedError("a scale-out had not reached its capacity, so that shares of it are not known")
    if not whole_at:
        raise NotMeasuredError("capacity was there at once: there is no time to share")
    # Outer bounds: both lengths may move by themselves.
    return Measured(lo=min(lo / whole_hi, 1.0), at=at / whole_at, hi=min(hi / whole_lo, 1.0) if whole_lo else 1.0, n=1)


def _length(name: str, found: ScaleOutResult, until_us: int | None) -> tuple[float, float, float]:
    """Return (lo, at, hi) in µs of a total, or of a phase's time on the critical path."""
    if name in {"time_to_capacity", "startup"}:
        return _total(name, found, until_us)
    if name == "unattributed":
        if found.unattributed_us is None:
            raise UndecidedError("a scale-out had not reached its capacity, so that what is unattributed is not known")
        return found.unattributed_us, found.unattributed_us, found.unattributed_us
    wanted = {leaf for part in name.split("+") for leaf in (part, *HEADLINES.get(part, ()))}
    rows = [row for row in found.phases if row.parent is None]
    parts = [row for row in found.phases if row.parent is not None and row.phase in wanted]
    lo = at = hi = 0.0
    seen = False
    for row in rows:
        leaves = set(row.phase.removeprefix("wait:").split("+"))
        leaves |= {leaf for one in leaves for leaf in HEADLINES.get(one, ())}
        if not leaves & wanted:
            continue
        seen = True
        whole = set(row.phase.split("+")) <= wanted
        # Of a joint phase that holds more than was asked for nothing at all may have been this.
        lo, at, hi = lo + (row.critical_lo_us if whole else 0), at + row.critical_us, hi + row.critical_hi_us
    if not seen and parts:
        return (
            float(sum(row.critical_lo_us for row in parts)),
            float(sum(row.critical_us for row in parts)),
            float(sum(row.critical_hi_us for row in parts)),
        )
    if not seen:
        raise NotMeasuredError(f"no signal shows {name} here; the phases are {', '.join(row.phase for row in rows)}")
    return lo, at, hi


def _total(name: str, found: ScaleOutResult, until_us: int | None) -> tuple[float, float, float]:
    since_lo = since_hi = found.decision.at_us
    if name == "time_to_capacity":
        if found.onset is None:
            raise NotMeasuredError("a scale-out has no onset: the load that caused it is not in the run")
        since_lo, since_hi = found.onset.lo_us, found.onset.hi_us
    else:
        since_lo, since_hi = found.decision.lo_us or since_lo, found.decision.hi_us or since_hi
    at = found.time_to_capacity_us if name == "time_to_capacity" else found.startup_us
    if found.in_service is None or at is None:
        last = max([a.at_us for a in found.anchors] + ([] if until_us is None else [until_us]), default=since_hi)
        return float(max(last - since_hi, 0)), math.inf, math.inf
    ready = found.in_service
    lo = (ready.lo_us if ready.lo_us is not None else ready.at_us) - since_hi
    hi = (ready.hi_us if ready.hi_us is not None else ready.at_us) - since_lo
    return float(min(max(lo, 0), at)), float(at), float(max(hi, at))


def _over(values: Sequence[Measured], quantity: Quantity) -> Measured:
    """Return the statistic over scale-outs; each of lo, at and hi by itself, which bounds it."""
    share = _SHARE_OF[quantity.stat or "max"]
    needed = 1 if share in {0.5, 1.0} else math.ceil(1 / (1 - share) - 1e-9)
    if len(values) < needed:
        raise NotMeasuredError(f"{quantity.stat} takes {needed} scale-outs, there were {len(values)}")

    def ranked(pick: Callable[[Measured], float]) -> float:
        return sorted(map(pick, values))[max(math.ceil(share * len(values)) - 1, 0)]

    return Measured(
        lo=ranked(lambda v: v.lo), at=ranked(lambda v: v.at), hi=ranked(lambda v: v.hi), n=sum(v.n for v in values)
    )


def _regression(quantity: Quantity, run: RunAnalysis, baseline: Sequence[RunAnalysis]) -> Measured:
    """Return the relative growth over the baseline: 0.1 is a tenth longer. Medians of scale-outs where no other."""
    if not baseline:
        raise NotMeasuredError("there is no baseline; name one with --baseline or [gate] baseline")
    assert quantity.of is not None
    of = quantity.of
    if of.function == "of_requests":
        now = _of_requests(of, run)
        then = _over([_of_requests(of, one) for one in baseline], msgspec.structs.replace(of, stat="p50"))
    else:
        of = msgspec.structs.replace(of, stat=of.stat or "p50")
        now = _measure(of, run, ())
        pooled = [_span(of, found, one.seen_until_us) for one in baseline for found in one.scale_outs]
        if not pooled:
            raise NotMeasuredError("no scale-out was seen in the baseline")
        then = _over(pooled, of)
    if not then.at or math.isinf(then.at) or not then.lo:
        raise NotMeasuredError("the baseline has no such length to compare with")
    lo = 0.0 if math.isinf(then.hi) else now.lo / then.hi
    return Measured(lo=lo - 1, at=now.at / then.at - 1, hi=now.hi / then.lo - 1, n=now.n)


def _blame(quantity: Quantity, run: RunAnalysis, baseline: Sequence[RunAnalysis]) -> str:
    """Return which phase grew most, for a regression of a total."""
    if quantity.name not in {"time_to_capacity", "startup"}:
        return ""
    now, then = _medians([run]), _medians(baseline)
    grown = {
        name: us - then.get(name, 0.0) for name, us in now.items() if name != "detection" or quantity.name != "startup"
    }
    if not grown:
        return ""
    name = max(grown, key=lambda one: grown[one])
    return f"; most of it is {name}: {format_duration(max(grown[name], 0))} longer" if grown[name] > 0 else ""


def _medians(runs: Sequence[RunAnalysis]) -> dict[str, float]:
    lengths: dict[str, list[int]] = {}
    for run in runs:
        for found in run.scale_outs:
            for row in found.phases:
                if row.parent is None:
                    lengths.setdefault(row.phase, []).append(row.critical_us)
    return {name: float(sorted(found)[(len(found) - 1) // 2]) for name, found in lengths.items()}
