"""SageMaker's control plane: the endpoint, its configuration and its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadgen.emulator.api import ApiError, Handler, arn, at
from loadgen.emulator.autoscaler import ACCOUNT
from loadgen.emulator.config import EmulatorConfig
from loadgen.emulator.model import EndpointModel

_DIGEST = "sha256:5f0c8d3d2b1e4a6f9c7b8a1d2e3f40516273849586a7b8c9d0e1f2031425364a"


def describe_endpoint(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeEndpoint's members."""
    config, fleet = model.config, model.fleet
    name = request["EndpointName"]
    if name != config.endpoint_name:
        raise ApiError(
            "ValidationException", f'Could not find endpoint "{arn(config, "sagemaker", f"endpoint/{name}")}".'
        )
    variant: dict[str, Any] = {
        "VariantName": config.variant,
        "DeployedImages": [
            {
                "SpecifiedImage": _image(config),
                "ResolvedImage": f"{_image(config).rpartition(':')[0]}@{_DIGEST}",
                "ResolutionTime": at(fleet.created_us),
            }
        ],
        "CurrentWeight": 1.0,
        "DesiredWeight": 1.0,
        "CurrentInstanceCount": fleet.instance_counts()[0],
        "DesiredInstanceCount": fleet.instance_counts()[1],
        "RoutingConfig": {"RoutingStrategy": config.serving.routing},
    }
    if fleet.variant_status is not None:
        status = fleet.variant_status
        variant["VariantStatus"] = [
            {"Status": "Updating", "StatusMessage": status.message, "StartTime": at(status.started_us)}
        ]
    return {
        **_summary(model),
        "EndpointConfigName": _config_name(config),
        "ProductionVariants": [variant],
        "MetricsConfig": _metrics_config(config),
    }


def describe_endpoint_config(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeEndpointConfig's members."""
    config = model.config
    name = request["EndpointConfigName"]
    if name != _config_name(config):
        full = arn(config, "sagemaker", f"endpoint-config/{name}")
        raise ApiError("ValidationException", f'Could not find endpoint configuration "{full}".')
    variant = {
        "VariantName": config.variant,
        "ModelName": None if config.component is not None else _model_name(config),
        "InitialInstanceCount": config.scaling.min_instances,
        "InstanceType": config.instance_type,
        "InitialVariantWeight": 1.0,
        "ModelDataDownloadTimeoutInSeconds": 1200,
        "ContainerStartupHealthCheckTimeoutInSeconds": 1200,
        "RoutingConfig": {"RoutingStrategy": config.serving.routing},
    }
    return {
        "EndpointConfigName": name,
        "EndpointConfigArn": arn(config, "sagemaker", f"endpoint-config/{name}"),
        "ProductionVariants": [variant],
        "CreationTime": at(model.fleet.created_us),
        "EnableNetworkIsolation": False,
        "MetricsConfig": _metrics_config(config),
    }


def describe_model(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeModel's members; the environment holds a token, as real ones do, so that readers must redact."""
    config = model.config
    name = request["ModelName"]
    full = arn(config, "sagemaker", f"model/{name}")
    if name != _model_name(config):
        raise ApiError("ValidationException", f'Could not find model "{full}".')
    return {
        "ModelName": name,
        "PrimaryContainer": _container(config),
        "ExecutionRoleArn": f"arn:aws:iam::{ACCOUNT}:role/{config.endpoint_name}-execution",
        "CreationTime": at(model.fleet.created_us),
        "ModelArn": full,
        "EnableNetworkIsolation": False,
    }


def list_endpoints(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return ListEndpoints' members: the one endpoint, unless a filter leaves it out."""
    summary = _summary(model)
    left_out = (
        request.get("NameContains", "") not in summary["EndpointName"]
        or request.get("StatusEquals", summary["EndpointStatus"]) != summary["EndpointStatus"]
        or ("CreationTimeBefore" in request and summary["CreationTime"] >= request["CreationTimeBefore"])
        or ("CreationTimeAfter" in request and summary["CreationTime"] <= request["CreationTimeAfter"])
        or ("LastModifiedTimeBefore" in request and summary["LastModifiedTime"] >= request["LastModifiedTimeBefore"])
        or ("LastModifiedTimeAfter" in request and summary["LastModifiedTime"] <= request["LastModifiedTimeAfter"])
    )
    return {"Endpoints": [] if left_out else [summary]}


def describe_inference_component(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return DescribeInferenceComponent's members; an endpoint without components has none of any name."""
    config, fleet = model.config, model.fleet
    component, name = config.component, request["InferenceComponentName"]
    if component is None or name != component.name:
        full = arn(config, "sagemaker", f"inference-component/{name}")
        raise ApiError("ValidationException", f'Could not find inference component "{full}".')
    container = _container(config)
    specification = {
        "Container": {
            "DeployedImage": {"SpecifiedImage": container["Image"], "ResolvedImage": container["Image"]},
            "ArtifactUrl": container["ModelDataSource"]["S3DataSource"]["S3Uri"],
            "Environment": container["Environment"],
        },
        "StartupParameters": {
            "ModelDataDownloadTimeoutInSeconds": 1200,
            "ContainerStartupHealthCheckTimeoutInSeconds": 1200,
        },
        "ComputeResourceRequirements": {"NumberOfAcceleratorDevicesRequired": 1.0, "MinMemoryRequiredInMb": 1024},
        "DataCacheConfig": {"EnableCaching": component.data_cache},
    }
    return {
        **_component_summary(model),
        "Specification": specification,
        "RuntimeConfig": {
            "DesiredCopyCount": fleet.desired,
            "CurrentCopyCount": fleet.current,
            "PlacementStatus": [{"InstanceType": config.instance_type, "CurrentCopyCount": fleet.current}],
        },
    }


def list_inference_components(model: EndpointModel, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return ListInferenceComponents' members."""
    config = model.config
    ours = (
        config.component is not None
        and request.get("EndpointNameEquals", config.endpoint_name) == config.endpoint_name
        and request.get("VariantNameEquals", config.variant) == config.variant
    )
    return {"InferenceComponents": [_component_summary(model)] if ours else []}


OPERATIONS: dict[str, Handler] = {
    "DescribeEndpoint": describe_endpoint,
    "DescribeInferenceComponent": describe_inference_component,
    "ListInferenceComponents": list_inference_components,
    "DescribeEndpointConfig": describe_endpoint_config,
    "DescribeModel": describe_model,
    "ListEndpoints": list_endpoints,
}


def _summary(model: EndpointModel) -> dict[str, Any]:
    config, fleet = model.config, model.fleet
    return {
        "EndpointName": config.endpoint_name,
        "EndpointArn": arn(config, "sagemaker", f"endpoint/{config.endpoint_name}"),
        "CreationTime": at(fleet.created_us),
        "LastModifiedTime": at(fleet.modified_us),
        "EndpointStatus": "Updating" if fleet.updating else "InService",
    }


def _metrics_config(config: EmulatorConfig) -> dict[str, Any]:
    return {
        "EnableEnhancedMetrics": config.enhanced_metrics,
        "EnableDetailedObservability": True,
        "MetricPublishFrequencyInSeconds": config.metric_publish_s,
    }


def _image(config: EmulatorConfig) -> str:
    return f"763104351884.dkr.ecr.{config.region}.amazonaws.com/djl-inference:0.36.0-lmi18.0.0-cu128"


def _config_name(config: EmulatorConfig) -> str:
    return f"{config.endpoint_name}-config"


def _model_name(config: EmulatorConfig) -> str:
    return f"{config.endpoint_name}-model"


def _container(config: EmulatorConfig) -> dict[str, Any]:
    source = {
        "S3Uri": f"s3://{config.endpoint_name}-models/{config.model_name}/",
        "S3DataType": "S3Prefix",
        "CompressionType": "None",
    }
    return {
        "Image": _image(config),
        "Mode": "SingleModel",
        "ModelDataSource": {"S3DataSource": source},
        "Environment": {"HF_MODEL_ID": "/opt/ml/model", "HF_TOKEN": "emulated-secret-value"},
    }


def _component_summary(model: EndpointModel) -> dict[str, Any]:
    config, fleet = model.config, model.fleet
    assert config.component is not None
    name = config.component.name
    return {
        "InferenceComponentName": name,
        "InferenceComponentArn": arn(config, "sagemaker", f"inference-component/{name}"),
        "EndpointName": config.endpoint_name,
        "EndpointArn": arn(config, "sagemaker", f"endpoint/{config.endpoint_name}"),
        "VariantName": config.variant,
        "CreationTime": at(fleet.created_us),
        "LastModifiedTime": at(fleet.modified_us),
        "InferenceComponentStatus": "Updating" if fleet.updating else "InService",
    }
