"""Application Auto Scaling: the scalable target, its policy and its activities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadgen.emulator.api import Handler, arn, at, page
from loadgen.emulator.autoscaler import ACCOUNT, Activity
from loadgen.emulator.config import Scaling
from loadgen.emulator.model import EndpointModel

_PAGE = 50
_BAD_PAGE = "InvalidNextTokenException"


def describe_scalable_targets(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeScalableTargets' members."""
    config, scaler = model.config, model.autoscaler
    wanted = request.get("ResourceIds") or [scaler.resource_id]
    if not _is_ours(model, request) or scaler.resource_id not in wanted:
        return {"ScalableTargets": []}
    namespace = model.words.namespace
    kind = {"sagemaker": "SageMakerEndpoint", "ecs": "ECSService"}[namespace]
    role = f"aws-service-role/{namespace}.application-autoscaling.amazonaws.com"
    target = {
        **_identity(model),
        "MinCapacity": scaler.min_instances,
        "MaxCapacity": config.scaling.max_instances,
        "RoleARN": f"arn:aws:iam::{ACCOUNT}:role/{role}/AWSServiceRoleForApplicationAutoScaling_{kind}",
        "CreationTime": at(scaler.created_us),
        "SuspendedState": {
            "DynamicScalingInSuspended": False,
            "DynamicScalingOutSuspended": False,
            "ScheduledScalingSuspended": False,
        },
        "ScalableTargetARN": arn(config, "application-autoscaling", f"scalable-target/{config.endpoint_name}"),
    }
    return {"ScalableTargets": [target]}


def describe_scaling_policies(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeScalingPolicies' members."""
    scaler = model.autoscaler
    names = request.get("PolicyNames")
    scaling = model.config.scaling
    if not _is_ours(model, request) or not _is_resource(model, request) or scaling.policy == "none":
        return {"ScalingPolicies": []}
    tracking = {
        "TargetValue": scaling.target,
        **_metric_specification(model),
        "ScaleOutCooldown": round(scaling.scale_out_cooldown_s),
        "ScaleInCooldown": round(scaling.scale_in_cooldown_s),
        "DisableScaleIn": False,
    }
    configured = (
        {"PolicyType": "TargetTrackingScaling", "TargetTrackingScalingPolicyConfiguration": tracking}
        if scaling.policy == "target-tracking"
        else {"PolicyType": "StepScaling", "StepScalingPolicyConfiguration": _step_configuration(scaling)}
    )
    policy = {
        "PolicyARN": scaler.policy_arn,
        "PolicyName": scaler.policy_name,
        **_identity(model),
        **configured,
        "Alarms": [{"AlarmName": a.rule.name, "AlarmARN": a.rule.arn} for a in (scaler.high, scaler.low)],
        "CreationTime": at(scaler.created_us),
    }
    found = [policy, *_from_zero(model)]
    return {"ScalingPolicies": [one for one in found if not names or one["PolicyName"] in names]}


def _from_zero(model: EndpointModel) -> list[dict[str, Any]]:
    """Return the step policy that asks for the first copy, where there may be none."""
    scaler = model.autoscaler
    if scaler.zero is None:
        return []
    step = {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}],
        "Cooldown": 60,
        "MetricAggregationType": "Maximum",
    }
    return [
        {
            "PolicyARN": scaler.policy_arn.replace(scaler.policy_name, scaler.zero_policy_name),
            "PolicyName": scaler.zero_policy_name,
            **_identity(model),
            "PolicyType": "StepScaling",
            "StepScalingPolicyConfiguration": step,
            "Alarms": [{"AlarmName": scaler.zero.rule.name, "AlarmARN": scaler.zero.rule.arn}],
            "CreationTime": at(scaler.created_us),
        }
    ]


def describe_scaling_activities(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeScalingActivities' members, newest first; those that scaled nothing only when asked for."""
    if not _is_ours(model, request) or not _is_resource(model, request):
        return {"ScalingActivities": []}
    everything = request.get("IncludeNotScaledActivities", False)
    activities = [a for a in model.autoscaler.activities if everything or a.not_scaled is None]
    limit = min(request.get("MaxResults", _PAGE), _PAGE)
    chosen, token = page(
        activities, token=request.get("NextToken"), limit=limit, newest_first=True, bad_token=_BAD_PAGE
    )
    return {"ScalingActivities": [_activity(model, activity) for activity in chosen], "NextToken": token}


OPERATIONS: dict[str, Handler] = {
    "DescribeScalableTargets": describe_scalable_targets,
    "DescribeScalingPolicies": describe_scaling_policies,
    "DescribeScalingActivities": describe_scaling_activities,
}


def _is_ours(model: EndpointModel, request: Mapping[str, Any]) -> bool:
    words = model.words
    namespace: str = request["ServiceNamespace"]
    dimension: str = request.get("ScalableDimension", words.dimension)
    return namespace == words.namespace and dimension == words.dimension


def _is_resource(model: EndpointModel, request: Mapping[str, Any]) -> bool:
    resource_id = model.autoscaler.resource_id
    stated: str = request.get("ResourceId", resource_id)
    return stated == resource_id


def _identity(model: EndpointModel) -> dict[str, Any]:
    return {
        "ServiceNamespace": model.words.namespace,
        "ResourceId": model.autoscaler.resource_id,
        "ScalableDimension": model.words.dimension,
    }


def _step_configuration(scaling: Scaling) -> dict[str, Any]:
    """Each step reaches up to the next one's lower bound."""
    steps = sorted(scaling.steps, key=lambda step: step.above)
    ends: list[float | None] = [*(step.above for step in steps[1:]), None]
    return {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": [
            {"MetricIntervalLowerBound": step.above, "MetricIntervalUpperBound": end, "ScalingAdjustment": step.add}
            for step, end in zip(steps, ends, strict=True)
        ],
        "Cooldown": round(scaling.scale_out_cooldown_s),
        "MetricAggregationType": scaling.statistic,
    }


def _metric_specification(model: EndpointModel) -> dict[str, Any]:
    """The predefined type exists for 10 s only; on 60 s the same metric is a customised one."""
    config = model.config
    if config.platform == "sagemaker" and config.scaling.metric_period_s == 10:
        name = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
        if config.component is not None:
            name = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
        return {"PredefinedMetricSpecification": {"PredefinedMetricType": name}}
    words = model.words
    specification = {
        "MetricName": words.metric,
        "Namespace": words.metric_namespace,
        "Dimensions": words.dimensions(),
        "Statistic": config.scaling.statistic,
    }
    return {"CustomizedMetricSpecification": specification}


def _activity(model: EndpointModel, activity: Activity) -> dict[str, Any]:
    members: dict[str, Any] = {
        "ActivityId": activity.activity_id,
        **_identity(model),
        "Description": activity.description,
        "Cause": activity.cause,
        "StartTime": at(activity.started_us),
        "EndTime": None if activity.ended_us is None else at(activity.ended_us),
        "StatusCode": activity.status,
        "StatusMessage": activity.message,
    }
    if activity.not_scaled is not None:
        scaling = model.config.scaling
        limits: dict[str, dict[str, int]] = {
            "AlreadyAtMaxCapacity": {"MaxCapacity": scaling.max_instances},
            "AlreadyAtMinCapacity": {"MinCapacity": scaling.min_instances},
            "AlreadyAtDesiredCapacity": {"CurrentCapacity": activity.capacity},
        }
        members["NotScaledReasons"] = [{"Code": activity.not_scaled, **limits[activity.not_scaled]}]
    return members
