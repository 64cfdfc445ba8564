"""How well the detection of a load will be seen, wherever CloudWatch alarms decide. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from loadgen.collect.platform import Finding, PhaseView

FINE_S: Final = 10


def detection(snapshots: Mapping[str, Any], advice: str) -> list[PhaseView]:
    """Return how well the three parts of detection will be seen; `advice` is how to get a finer metric."""
    period_s = high_period_s(snapshots)
    seen = "no alarm was found" if period_s is None else f"datapoints of {period_s:g} s"
    fine = period_s is not None and period_s <= FINE_S
    return [
        PhaseView("emission", "invisible" if period_s is None else "bounded", seen, None if fine else advice),
        PhaseView("evaluation", "invisible" if period_s is None else "measured", "the alarm's history"),
        PhaseView("decision", "measured", "scaling activities"),
    ]


def scaling(snapshots: Mapping[str, Any], what: str) -> list[Finding]:
    """Return whether Application Auto Scaling can add units to `what`, and by which policies."""
    targets = (snapshots.get("scalable-targets") or {}).get("ScalableTargets") or []
    policies = (snapshots.get("scaling-policies") or {}).get("ScalingPolicies") or []
    if not targets:
        advice = "register a scalable target and a policy, or there is nothing to measure"
        return [Finding("scaling limits", "fail", f"{what} does not scale by itself", advice)]
    found = [limits(targets[0].get("MinCapacity"), targets[0].get("MaxCapacity"), "MaxCapacity")]
    suspended = targets[0].get("SuspendedState") or {}
    if suspended.get("DynamicScalingOutSuspended"):
        found.append(Finding("scaling limits", "fail", "scaling out is suspended", "resume dynamic scaling"))
    return [*found, named_policies([str(policy.get("PolicyName")) for policy in policies])]


def limits(low: Any, high: Any, key: str) -> Finding:
    """Return whether there is room to scale between two limits; `key` is the one to raise."""
    text = f"{low} to {high} units"
    if low != high:
        return Finding("scaling limits", "ok", text)
    return Finding("scaling limits", "fail", f"{text}: no scale-out is possible", f"raise {key}")


def named_policies(names: list[str]) -> Finding:
    """Return which policies scale."""
    if names:
        return Finding("scaling policies", "ok", ", ".join(names))
    return Finding("scaling policies", "fail", "none", "put a target-tracking policy")


def alarms(snapshots: Mapping[str, Any]) -> list[Finding]:
    """Return whether the policies' alarms are in place, and how fine their metric is."""
    listed = (snapshots.get("alarms") or {}).get("MetricAlarms") or []
    if not listed:
        return [Finding("alarms", "fail", "no alarm of the policies was found", "detection cannot be measured")]
    found = [Finding("alarms", "ok", f"{len(listed)} in place")]
    period_s = high_period_s(snapshots)
    if period_s is not None:
        text = f"{period_s:g} s"
        fine = period_s <= FINE_S
        advice = "a high-resolution metric shows the load up to a minute sooner"
        found.append(Finding("metric resolution", "ok" if fine else "warn", text, None if fine else advice))
    if any(alarm.get("ActionsEnabled") is False for alarm in listed):
        found.append(Finding("alarms", "fail", "an alarm's actions are off", "enable them"))
    return found


def high_period_s(snapshots: Mapping[str, Any]) -> float | None:
    """Return the period of the finest alarm that asks for more (s), `None` where there is none."""
    listed = (snapshots.get("alarms") or {}).get("MetricAlarms") or []
    periods = [a.get("Period") for a in listed if str(a.get("ComparisonOperator", "")).startswith("Greater")]
    return min((float(period) for period in periods if period), default=None)
