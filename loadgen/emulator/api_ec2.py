"""EC2 Auto Scaling and EC2: the group, its activities, its policies, its warm pool, and the instances."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from loadgen.emulator.api import ApiError, Handler, arn, at, page
from loadgen.emulator.api_ecs import address, target_group
from loadgen.emulator.kube_store import stamp
from loadgen.emulator.model import EndpointModel
from loadgen.emulator.units import Unit

_BAD_PAGE = "InvalidNextToken"
_ZONE = "us-east-1a"


def describe_auto_scaling_groups(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeAutoScalingGroups' members."""
    config = model.config
    if config.endpoint_name not in request.get("AutoScalingGroupNames", [config.endpoint_name]):
        return {"AutoScalingGroups": []}
    group: dict[str, Any] = {
        "AutoScalingGroupName": config.endpoint_name,
        "AutoScalingGroupARN": _group_arn(model),
        "MinSize": config.scaling.min_instances,
        "MaxSize": config.scaling.max_instances,
        "DesiredCapacity": model.fleet.desired,
        "DefaultCooldown": 300,
        "AvailabilityZones": [_ZONE],
        "TargetGroupARNs": [target_group(config)] if config.cluster.load_balancer else [],
        "HealthCheckType": "ELB" if config.cluster.load_balancer else "EC2",
        "HealthCheckGracePeriod": 600,
        "Instances": [_instance(model, unit) for unit in _members(model)],
        "CreatedTime": at(model.fleet.created_us),
        "DefaultInstanceWarmup": round(config.cluster.instance_warmup_s),
    }
    if config.startup.warm_pool:
        group["WarmPoolConfiguration"] = {"MinSize": config.startup.warm_pool, "PoolState": "Stopped"}
        group["WarmPoolSize"] = config.startup.warm_pool
    return {"AutoScalingGroups": [group]}


def describe_scaling_activities(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeScalingActivities' members, newest first: one per instance, and per failed try."""
    name = request.get("AutoScalingGroupName", model.config.endpoint_name)
    if name != model.config.endpoint_name:
        raise ApiError("ValidationError", f"AutoScalingGroup name not found - AutoScalingGroup {name} not found")
    found = sorted(_activities(model), key=lambda activity: activity["StartTime"])
    limit, token = min(request.get("MaxRecords", 100), 100), request.get("NextToken")
    chosen, following = page(found, token=token, limit=limit, newest_first=True, bad_token=_BAD_PAGE)
    return {"Activities": chosen, "NextToken": following}


def describe_policies(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribePolicies' members."""
    config, scaler = model.config, model.autoscaler
    other = request.get("AutoScalingGroupName", config.endpoint_name) != config.endpoint_name
    if other or config.scaling.policy == "none":
        return {"ScalingPolicies": []}
    policy = {
        "AutoScalingGroupName": config.endpoint_name,
        "PolicyName": scaler.policy_name,
        "PolicyARN": scaler.policy_arn,
        "PolicyType": "TargetTrackingScaling",
        "Alarms": [{"AlarmName": a.rule.name, "AlarmARN": a.rule.arn} for a in (scaler.high, scaler.low)],
        "Enabled": True,
    }
    return {"ScalingPolicies": [policy]}


def describe_warm_pool(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeWarmPool's members: what of the pool no decision has used yet."""
    if request["AutoScalingGroupName"] != model.config.endpoint_name:
        raise ApiError("ValidationError", "AutoScalingGroup name not found")
    size = model.config.startup.warm_pool
    if not size:
        return {"Instances": []}
    return {"WarmPoolConfiguration": {"MinSize": size, "PoolState": "Stopped"}, "Instances": []}


def describe_instances(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return EC2's DescribeInstances' members."""
    wanted = set(request.get("InstanceIds", []))
    for found in request.get("Filters", []):
        if found.get("Name") == "instance-id":
            wanted |= set(found.get("Values", []))
    instances = []
    for unit in _members(model):
        machine = unit.timeline.machine
        if machine is None or (wanted and unit.unit_id not in wanted):
            continue
        running = machine.running_us <= model.now_us
        instances.append(
            {
                "InstanceId": unit.unit_id,
                "InstanceType": model.config.instance_type.removeprefix("ml."),
                "LaunchTime": at(machine.requested_us // 1_000_000 * 1_000_000),
                "State": {"Code": 16 if running else 0, "Name": "running" if running else "pending"},
                "PrivateIpAddress": address(unit),
            }
        )
    return {"Reservations": [{"ReservationId": "r-0", "OwnerId": "123456789012", "Instances": instances}]}


OPERATIONS: dict[str, Handler] = {
    "DescribeAutoScalingGroups": describe_auto_scaling_groups,
    "DescribeScalingActivities": describe_scaling_activities,
    "DescribePolicies": describe_policies,
    "DescribeWarmPool": describe_warm_pool,
}
INSTANCE_OPERATIONS: dict[str, Handler] = {"DescribeInstances": describe_instances}


def _members(model: EndpointModel) -> list[Unit]:
    """Return the instances that are in the group now."""
    assert model.units is not None
    return [
        unit
        for unit in model.units.instances
        if unit.state != "terminated"
        and unit.timeline.machine is not None
        and unit.timeline.machine.requested_us <= model.now_us
    ]


def _instance(model: EndpointModel, unit: Unit) -> dict[str, Any]:
    return {
        "InstanceId": unit.unit_id,
        "InstanceType": model.config.instance_type.removeprefix("ml."),
        "AvailabilityZone": _ZONE,
        "LifecycleState": _lifecycle(model, unit),
        "HealthStatus": "Healthy",
        "ProtectedFromScaleIn": False,
    }


def _lifecycle(model: EndpointModel, unit: Unit) -> str:
    """Behind a load balancer an instance is InService once it runs; without, a hook holds it until it is ready."""
    start, now_us = unit.timeline, model.now_us
    machine = start.machine
    assert machine is not None
    if unit.ended_us is not None:
        return "Terminating"
    if now_us < machine.running_us:
        return "Pending"
    if model.config.cluster.load_balancer:
        return "InService" if now_us >= machine.joined_us else "Pending"
    if now_us >= start.in_service_us:
        return "InService"
    return "Pending:Wait" if now_us < start.healthy_us else "Pending:Proceed"


def _activities(model: EndpointModel) -> list[dict[str, Any]]:
    assert model.units is not None
    found = []
    for unit in model.units.instances:
        start, now_us = unit.timeline, model.now_us
        machine = start.machine
        if machine is None or unit.activity is None:
            continue
        for number, at_us in enumerate(start.capacity_errors_us):
            if at_us <= now_us:
                text = "We currently do not have sufficient capacity in the Availability Zone you requested."
                text += " Launching EC2 instance failed."
                found.append(_activity(model, unit, f"error-{number}", at_us, failed=text))
        if machine.requested_us <= now_us:
            found.append(_activity(model, unit, "launch", machine.requested_us))
    return found


def _activity(model: EndpointModel, unit: Unit, key: str, at_us: int, failed: str | None = None) -> dict[str, Any]:
    start, decision = unit.timeline, unit.activity
    machine = start.machine
    assert decision is not None
    assert machine is not None
    warmed_up_us = start.settled_us if not model.config.cluster.load_balancer else machine.joined_us + 1_000_000
    ended_us = at_us + 500_000 if failed else warmed_up_us
    ended = ended_us <= model.now_us
    before, after = decision.capacity, decision.desired
    alarm = model.autoscaler.high.rule.name
    cause = (
        f"At {stamp(decision.started_us)} a monitor alarm {alarm} in state ALARM triggered policy "
        f"{model.autoscaler.policy_name} changing the desired capacity from {before} to {after}.  "
        f"At {stamp(at_us)} an instance was started in response to a difference between desired and actual capacity, "
        f"increasing the capacity from {before} to {after}."
    )
    source = " from warm pool" if machine.from_warm_pool else ""
    what = "Launching a new EC2 instance" + ("" if failed else f"{source}: {unit.unit_id}")
    status = "Failed" if failed else "Successful" if ended else "PreInService"
    return {
        "ActivityId": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{unit.unit_id}:{key}")),
        "AutoScalingGroupName": model.config.endpoint_name,
        "AutoScalingGroupARN": _group_arn(model),
        "Description": what,
        "Cause": cause,
        "StartTime": at(at_us),
        "EndTime": at(ended_us) if ended else None,
        "StatusCode": status,
        "StatusMessage": failed,
        "Progress": 100 if ended else 30,
        "Details": f'{{"Availability Zone":"{_ZONE}"}}',
    }


def _group_arn(model: EndpointModel) -> str:
    name = model.config.endpoint_name
    return arn(model.config, "autoscaling", f"autoScalingGroup:0000:autoScalingGroupName/{name}")
