"""How well a scale-out of an EC2 Auto Scaling group will be seen, from what its sources read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from loadgen.collect.ec2_groups import LAST
from loadgen.collect.ecs_view import recovery, was_read
from loadgen.collect.platform import Finding, PhaseView
from loadgen.collect.scaling_view import alarms, detection, limits, named_policies

_NEEDED: Final = {"Launch", "AlarmNotification", "AddToLoadBalancer", "HealthCheck"}
_PROBE: Final = "probe_port asks each instance's server itself, and bounds it by when it listens and when it is ready"


def findings(snapshots: Mapping[str, Any]) -> list[Finding]:
    """Return what is set up well and what is not: the group's limits, its policies, its alarms, its processes."""
    group = snapshots.get(LAST)
    if group is None:
        return [Finding("group", "unknown", "it could not be read")]
    policies = (snapshots.get("scaling-policies") or {}).get("ScalingPolicies") or []
    off = [str(policy.get("PolicyName")) for policy in policies if policy.get("Enabled") is False]
    found = [
        limits(group.get("MinSize"), group.get("MaxSize"), "MaxSize"),
        named_policies([str(policy.get("PolicyName")) for policy in policies]),
        *([Finding("scaling policies", "warn", f"switched off: {', '.join(off)}", "enable them")] if off else []),
        *alarms(snapshots),
    ]
    suspended = {str(one.get("ProcessName")) for one in group.get("SuspendedProcesses") or ()} & _NEEDED
    if suspended:
        found.append(Finding("processes", "fail", f"suspended: {', '.join(sorted(suspended))}", "resume them"))
    if group.get("WarmPoolConfiguration"):
        found.append(Finding("warm pool", "ok", "in place: the provisioning of its instances is a resume"))
    if group.get("DefaultInstanceWarmup"):
        text = f"{group['DefaultInstanceWarmup']} s, which an activity's end includes: it only bounds the service"
        found.append(Finding("instance warm-up", "ok", text))
    balanced = bool(group.get("TargetGroupARNs"))
    text = "a target group says when an instance serves" if balanced else "none: InService says nothing of a server"
    advice = None if balanced else "a lifecycle hook that waits for the server, or a target group"
    return [*found, Finding("load balancer", "ok" if balanced else "warn", text, advice)]


def phases(snapshots: Mapping[str, Any], *, probed: bool) -> list[PhaseView]:
    """Return how well each phase will be seen, in causal order; `probed` where the instances are asked themselves."""
    balanced = bool((snapshots.get(LAST) or {}).get("TargetGroupARNs")) and was_read(snapshots, "elbv2:target-health")
    seen: Any = "bounded" if probed else "invisible"
    told = (
        "the probe: from running to listening to ready" if probed else "nothing tells what happens inside an instance"
    )
    advice = None if probed else _PROBE
    return [
        *detection(snapshots, "scale on a metric that is published every 10 s"),
        PhaseView("provisioning", "measured", "LaunchTime, and the state running, polled"),
        *(PhaseView(phase, seen, told, advice) for phase in ("pull", "download", "start", "weights")),
        PhaseView(
            "registration", "bounded", "the target's health, polled" if balanced else "the lifecycle state, polled"
        ),
        recovery(probed=probed),
    ]
