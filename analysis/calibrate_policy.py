"""Measured runs → how the endpoint scales and serves: what its settings say, and what its lags and requests show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from analysis.analyse import RunAnalysis
from analysis.calibrate import Parameter
from analysis.inputs import RunInputs
from traces.units import US_PER_S

_FEW: Final = 20
_USUAL_LAG_S: Final = 4.0
_LEAST_TOKENS: Final = 8


def fit_scaling(run: RunAnalysis) -> tuple[dict[str, Any], dict[str, Parameter]]:
    """Return the policy's settings as read (a `scaling` table), and the fitted lags; what is not known is left out."""
    settings: dict[str, Any] = {}
    target = _first(run.snapshots, "scalable-targets", "ScalableTargets")
    policy = _first(run.snapshots, "scaling-policies", "ScalingPolicies")
    tracking = policy.get("TargetTrackingScalingPolicyConfiguration") or {}
    for key, source, name in (
        ("min_instances", target, "MinCapacity"),
        ("max_instances", target, "MaxCapacity"),
        ("target", tracking, "TargetValue"),
        ("scale_out_cooldown_s", tracking, "ScaleOutCooldown"),
        ("scale_in_cooldown_s", tracking, "ScaleInCooldown"),
    ):
        if source.get(name) is not None:
            settings[key] = source[name]
    settings |= _steps(policy, run)
    alarm = _high_alarm(run.snapshots)
    period_s = alarm.get("Period")
    if period_s in {10, 60}:
        settings |= {"metric_period_s": period_s, "evaluation_interval_s": period_s}
    if alarm.get("DatapointsToAlarm") or alarm.get("EvaluationPeriods"):
        settings["high_datapoints"] = alarm.get("DatapointsToAlarm") or alarm["EvaluationPeriods"]
    if alarm.get("Statistic") in {"Maximum", "Average"}:
        settings["statistic"] = alarm["Statistic"]
    return settings, _lags(run, settings)


def fit_serving(inputs: RunInputs, run: RunAnalysis) -> dict[str, Parameter]:
    """Return the serving parameters that the run's requests show; few or odd requests show nothing."""
    columns = inputs.requests.filter(pl.col("outcome") == "ok").select(
        "row_id",
        unit="unit_id",
        due=pl.col("sent").dt.epoch("us"),
        first=pl.col("first_token").dt.epoch("us"),
        done=pl.col("done").dt.epoch("us"),
        tokens=pl.coalesce("output_tokens", "planned_output_tokens"),
    )
    served = columns.drop_nulls(["due", "first", "done", "tokens"]).collect()
    if len(served) < _FEW:
        return {}
    fitted = _pace(served) | _prefill(served.join(inputs.trace.collect(), on="row_id", how="left"), run)
    slots = _slots(served)
    if slots is not None:
        fitted["slots_per_instance"] = slots
    return fitted


def _steps(policy: dict[str, Any], run: RunAnalysis) -> dict[str, Any]:
    configured = policy.get("StepScalingPolicyConfiguration") or {}
    adjustments = configured.get("StepAdjustments") or []
    if not adjustments or configured.get("AdjustmentType") != "ChangeInCapacity":
        return {}
    steps = [
        {"above": max(a.get("MetricIntervalLowerBound") or 0.0, 0.0), "add": a["ScalingAdjustment"]}
        for a in adjustments
        if (a.get("ScalingAdjustment") or 0) > 0
    ]
    threshold = _high_alarm(run.snapshots).get("Threshold")
    found: dict[str, Any] = {"policy": "step", "steps": steps} if steps else {}
    return found | ({"target": threshold} if threshold is not None else {})


def _lags(run: RunAnalysis, settings: dict[str, Any]) -> dict[str, Parameter]:
    """Return the publish lag (s) left between the last breaching period and the alarm, and the policy's reaction."""
    first = next((s for s in run.scale_outs), None)
    if first is None:
        return {}
    at = {anchor.anchor: anchor for anchor in first.anchors if anchor.unit_id is None}
    alarm, breach, decision = at.get("alarm"), at.get("breach"), at.get("decision")
    fitted = {}
    if alarm is not None and decision is not None:
        reaction_s = max(decision.at_us - alarm.at_us, 0) / US_PER_S
        fitted["reaction_s"] = Parameter(value=reaction_s, lo=reaction_s, hi=reaction_s, method="fitted")
    period_s, datapoints = settings.get("metric_period_s"), settings.get("high_datapoints")
    if alarm is not None and breach is not None and breach.hi_us is not None and period_s and datapoints:
        # The breach lies in its period, whose end is known to within the clocks' resolution.
        closed_us = round(breach.hi_us / (period_s * US_PER_S)) * period_s * US_PER_S
        left_s = (alarm.at_us - closed_us) / US_PER_S - (datapoints - 1) * period_s
        if left_s >= 0:
            # An evaluation comes round once per interval: how much of what is left was waiting for it is unknown.
            least_s = max(left_s - settings["evaluation_interval_s"], 0.0)
            fitted["publish_lag_s"] = Parameter(
                value=min(max(_USUAL_LAG_S, least_s), left_s), lo=least_s, hi=left_s, method="fitted"
            )
    return fitted


def _pace(served: pl.DataFrame) -> dict[str, Parameter]:
    """Return the time per token alone and in a full batch: what the fastest and the slowest tenth of requests had."""
    long = served.filter(pl.col("tokens") >= _LEAST_TOKENS)
    if len(long) < _FEW:
        return {}
    per_s = (long["done"] - long["first"]) / (long["tokens"] - 1) / US_PER_S
    alone, full = (_quantile(per_s, share) for share in (0.05, 0.95))
    if alone <= 0:
        return {}
    lo, hi = _quantile(per_s, 0.0), _quantile(per_s, 1.0)
    return {
        "token_s": Parameter(value=alone, lo=lo, hi=alone, method="fitted"),
        "token_full_batch_s": Parameter(value=full, lo=alone, hi=hi, method="fitted"),
    }


def _prefill(served: pl.DataFrame, run: RunAnalysis) -> dict[str, Parameter]:
    """Return the wait for a first token without a queue: a line over prompt length, from before demand rose."""
    onset = next((s.onset.at_us for s in run.scale_outs if s.onset is not None), None)
    quiet = served if onset is None else served.filter(pl.col("due") < onset)
    quiet = quiet.drop_nulls("input_tokens").with_columns(wait=(pl.col("first") - pl.col("due")) / US_PER_S)
    if len(quiet) < _FEW:
        return {}
    slope, wait, tokens = quiet.select(
        (pl.cov("input_tokens", "wait") / pl.col("input_tokens").var()).alias("slope"),
        pl.col("wait").mean().alias("wait"),
        pl.col("input_tokens").mean().alias("tokens"),
    ).row(0)
    slope = 0.0 if slope is None or math.isnan(slope) else max(slope, 0.0)
    base = max(wait - slope * tokens, 0.0)
    return {
        "prefill_base_s": Parameter(value=base, lo=base, hi=max(base, wait), method="fitted"),
        "prefill_per_1000_tokens_s": Parameter(value=slope * 1000, lo=0.0, hi=slope * 2000, method="fitted"),
    }


def _slots(served: pl.DataFrame) -> Parameter | None:
    """Return the most requests that one unit generated tokens for at once."""
    named = served.drop_nulls("unit")
    if named.is_empty():
        return None
    events = pl.concat(
        [
            named.select("unit", at="first", change=pl.lit(1, pl.Int32)),
            named.select("unit", at="done", change=pl.lit(-1, pl.Int32)),
        ]
    ).sort("at", "change")
    most = events.select(pl.col("change").cum_sum().over("unit").max()).item()
    return Parameter(value=most, lo=most, hi=most + 1, method="fitted") if most else None


def _quantile(values: pl.Series, share: float) -> float:
    found = values.quantile(share, "nearest")
    return 0.0 if found is None else float(found)


def _first(snapshots: dict[str, Any], name: str, key: str) -> dict[str, Any]:
    listed = (snapshots.get(name) or {}).get(key) or []
    return listed[0] if listed and isinstance(listed[0], dict) else {}


def _high_alarm(snapshots: dict[str, Any]) -> dict[str, Any]:
    alarms = (snapshots.get("alarms") or {}).get("MetricAlarms") or []
    above = [a for a in alarms if str(a.get("ComparisonOperator", "")).startswith("Greater")]
    return above[0] if above else {}


def settings_of(run: Sequence[RunAnalysis]) -> dict[str, Any]:
    """Return the endpoint's names as read: what the profile is called by."""
    found: dict[str, Any] = {}
    variant = _first(run[-1].snapshots, "describe-endpoint-config", "ProductionVariants")
    if variant.get("InstanceType"):
        found["instance_type"] = variant["InstanceType"]
    name = (run[-1].snapshots.get("describe-endpoint-first") or {}).get("EndpointName")
    return found | ({"endpoint_name": name} if name else {})
