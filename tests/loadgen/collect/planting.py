"""Secrets planted in platforms' answers: in every free text, under unknown keys, and in every field left out.

What a field is comes from the platforms' own models (botocore's shapes, kubernetes_asyncio's classes). A secret carries
the path of its field, so that a leak names it. Names, ids, states and instants are left as they are: they are what a
trace is made of.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import botocore.session
from kubernetes_asyncio import client

SECRET = "s3cr3t"
NAMES = frozenset(
    """
    ActivityId AdjustmentType AlarmARN AlarmArn AlarmName AutoScalingGroupARN AutoScalingGroupName AvailabilityZone
    AvailabilityZones BaseInferenceComponentName ClusterArn ComparisonOperator EndpointArn EndpointConfigArn
    EndpointConfigName EndpointName EventId EventName EvaluationState ExtendedStatistic HealthCheckType HealthStatus
    HistoryItemType Id Image ImageId InferenceComponentArn InferenceComponentName InstanceId InstanceType
    LaunchConfigurationName LaunchTemplateId LaunchTemplateName LifecycleState MetricAggregationType MetricName
    MetricsEndpointPath MlReservationArn ModelArn ModelName Namespace NextToken nextToken OnDemandAllocationStrategy
    PolicyARN PolicyName PolicyType PredefinedMetricType PrivateIpAddress ProcessName ResolvedImage ResourceId
    ResourceLabel S ScalableDimension ScalableTargetARN ServiceNamespace SpecifiedImage SpotAllocationStrategy Stat
    State StateValue Statistic Status StatusCode TargetGroupARNs TerminationPolicies TreatMissingData Type Unit
    VariantName VersionNumber WeightedCapacity Version
    autoScalingGroupArn capacityProviderArn capacityProviderName capacityProvider clusterArn containerArn
    containerInstanceArn containerName ec2InstanceId family id image imageDigest lastStatus name platformFamily
    platformVersion serviceArn serviceName status targetGroupArn taskArn taskArns taskDefinition taskDefinitionArn type
    privateIpv4Address rolloutState desiredStatus
    apiVersion kind uid resourceVersion namespace nodeName podIP hostIP providerID containerRuntimeVersion imageID
    imagePullPolicy fieldPath continue reason awslogs-group awslogs-stream-prefix streamName logStreamName ip addresses
    node.kubernetes.io/instance-type DesiredCapacityType selectPolicy logDriver Granularity field
    """.split()  # noqa: SIM905 - a list of so many quoted names is not easier to read
)
"""Fields that name a thing or a state; whoever puts a secret there has told it to everybody."""
_STATED = re.compile(r"(?:Time|Timestamp|At|Date|stamp)$|^\d")
_NAMED_BESIDES = {("Dimensions", "Value"), ("Dimensions", "Name")}
_DEEPEST = 7


def plant(document: Any, shape: Any = None, path: tuple[str, ...] = ()) -> Any:
    """Return an answer with secrets planted; `shape` tells which fields it could have had besides."""
    if isinstance(document, Mapping):
        members = dict(_members(shape))
        found = {key: plant(value, members.get(key), (*path, str(key))) for key, value in document.items()}
        for key, of in members.items():
            if key not in found and (filled := _filled(of, (*path, key))) is not None:
                found[key] = filled
        return found | {f"{SECRET}-key": SECRET, "unknownKey": _secret(path, "unknownKey")}
    if isinstance(document, list):
        return [plant(value, _element(shape), path) for value in document]
    if not isinstance(document, str) or getattr(shape, "enum", None):
        return document
    return _text(document, path)


@cache
def aws_shape(service: str, operation: str) -> Any:
    """Return the shape of an operation's answer."""
    model = botocore.session.get_session().get_service_model(service)
    names = {name.lower(): name for name in model.operation_names}
    return model.operation_model(names[operation.replace("_", "")]).output_shape


def kube_shape(kind: str) -> Any:
    """Return the class of a kind of Kubernetes object, `None` for an operator's own."""
    kinds = {"pods": "V1Pod", "nodes": "V1Node", "events": "CoreV1Event", "deployments": "V1Deployment"}
    kinds |= {"horizontalpodautoscalers": "V2HorizontalPodAutoscaler", "endpointslices": "V1EndpointSlice"}
    return kinds.get(kind)


def _text(text: str, path: tuple[str, ...]) -> str:
    key = path[-1] if path else ""
    if text.startswith("{"):
        return json.dumps(plant(json.loads(text), None, path))
    if _names(path) or _STATED.search(key) or _STATED.search(text):
        return text
    if key.endswith(("Url", "Uri")):
        return f"{text}?token={_secret(path)}"
    # A cause ends with a policy's name.
    return f"{_secret(path)} {text}" if key == "Cause" else f"{text} {_secret(path)}"


def _names(path: tuple[str, ...]) -> bool:
    return path[-1:] != () and (path[-1] in NAMES or path[-2:] in _NAMED_BESIDES)


def _secret(path: tuple[str, ...], *more: str) -> str:
    return f"{SECRET}-" + ".".join((*path, *more))


def _filled(shape: Any, path: tuple[str, ...]) -> Any:
    """Return a value for a field that the answer left out, made of secrets."""
    kind = _kind(shape)
    if len(path) > _DEEPEST or _STATED.search(path[-1]) or path.count(path[-1]) > 1:
        return None
    if kind == "text":
        return None if _names(path) or getattr(shape, "enum", None) else _secret(path)
    if kind == "map":
        return {f"{SECRET}-in-map": _secret(path), "plain": _secret(path)}
    if kind == "list":
        one = _filled(_element(shape), path)
        return None if one is None else [one]
    if kind == "object":
        found = {key: value for key, of in _members(shape) if (value := _filled(of, (*path, key))) is not None}
        return found or None
    return None


def _kind(shape: Any) -> str:
    if isinstance(shape, str):
        if shape.startswith("dict("):
            return "map"
        if shape.startswith("list["):
            return "list"
        return "text" if shape == "str" else "object" if hasattr(client, shape) else "other"
    name = getattr(shape, "type_name", None)
    return {"string": "text", "map": "map", "list": "list", "structure": "object"}.get(name or "", "other")


def _members(shape: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(shape, str) and _kind(shape) == "object":
        model = getattr(client, shape)
        yield from ((model.attribute_map[name], of) for name, of in model.openapi_types.items())
    elif _kind(shape) == "object":
        yield from shape.members.items()


def _element(shape: Any) -> Any:
    if isinstance(shape, str):
        return shape[5:-1] if shape.startswith("list[") else None
    return getattr(shape, "member", None)
