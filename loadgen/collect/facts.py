"""What an endpoint's configuration says about its start: pure, from the answers of the Describe operations.

Two of the defaults changed in June 2026, so two endpoints that look alike may differ by when their configuration was
made; a comparison has to know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

from loadgen.collect.variant import variant_of

DetailedObservability = bool | None
Place = Literal["platform", "container", "none", "unknown"]

IMAGE_CACHING_SINCE: Final = datetime(2026, 6, 16, tzinfo=UTC)
"""Announcement of container image caching, on by itself for accelerator instances."""

DETAILED_BY_DEFAULT_SINCE: Final = datetime(2026, 6, 18, tzinfo=UTC)
"""Configurations made after 17 June 2026 have detailed observability on unless they say otherwise."""

_ACCELERATOR = re.compile(r"ml\.(?:g\d|p\d|inf\d|trn\d)")
_MODEL_KEYS = ("HF_MODEL_ID", "OPTION_MODEL_ID", "MODEL_ID", "SM_VLLM_MODEL", "SERVING_LOAD_MODELS")
_LOCAL = ("/opt/ml", "/")


def facts(
    config: Mapping[str, Any], model: Mapping[str, Any] | None, component: Mapping[str, Any] | None, variant: str
) -> dict[str, Any]:
    """Return what dates, caches and metrics depend on; `None` where the answers do not tell.

    `config` is DescribeEndpointConfig's answer, `model` DescribeModel's, `component` DescribeInferenceComponent's.
    """
    production = variant_of(config, variant) or {}
    metrics = config.get("MetricsConfig") or {}
    specification = _specification(component)
    created = config.get("CreationTime")
    instance_type = production.get("InstanceType") or specification.get("InstanceType")
    return {
        "instance_type": instance_type,
        "instance_pools": [pool.get("InstanceType") for pool in production.get("InstancePools") or ()],
        "accelerator": None if instance_type is None else is_accelerator(instance_type),
        "image": _image(model, specification),
        "model_download": download_place(model, component),
        "routing": (production.get("RoutingConfig") or {}).get("RoutingStrategy"),
        "managed_instance_scaling": (production.get("ManagedInstanceScaling") or {}).get("Status"),
        "data_cache": (specification.get("DataCacheConfig") or {}).get("EnableCaching"),
        "enhanced_metrics": metrics.get("EnableEnhancedMetrics", False),
        "detailed_observability": detailed_observability(metrics, created),
        "metric_publish_s": metrics.get("MetricPublishFrequencyInSeconds", 60),
        "config_created": created,
        "config_era": era(created),
        "image_caching_expected": image_caching_expected(instance_type, created),
    }


def is_accelerator(instance_type: str) -> bool:
    """Tell whether an instance type is of an accelerator family, as container image caching asks for.

    >>> is_accelerator("ml.g6.2xlarge"), is_accelerator("ml.m5.large")
    (True, False)
    """
    return _ACCELERATOR.match(instance_type) is not None


def detailed_observability(metrics: Mapping[str, Any], created: Any) -> DetailedObservability:
    """Return whether operation metrics are published: as configured, else the default of the configuration's time."""
    stated = metrics.get("EnableDetailedObservability")
    if stated is not None:
        return bool(stated)
    return created >= DETAILED_BY_DEFAULT_SINCE if isinstance(created, datetime) else None


def era(created: Any) -> str | None:
    """Return in which time's defaults a configuration was made."""
    if not isinstance(created, datetime):
        return None
    return "before-2026-06" if created < IMAGE_CACHING_SINCE else "since-2026-06"


def image_caching_expected(instance_type: str | None, created: Any) -> bool | None:
    """Tell whether the platform would cache the container image; no field of its API says so, hence only expected.

    The feature needs no new configuration, so an older one does not rule it out.
    """
    if instance_type is None or not is_accelerator(instance_type):
        return None if instance_type is None else False
    return True if isinstance(created, datetime) and created >= IMAGE_CACHING_SINCE else None


def download_place(model: Mapping[str, Any] | None, component: Mapping[str, Any] | None) -> Place:
    """Return who brings the model: the platform before the container starts, or the container while it starts.

    They are different phases with different sources. `none` is an image that holds its model.
    """
    specification = _specification(component)
    container = (model or {}).get("PrimaryContainer") or next(iter((model or {}).get("Containers") or ()), None)
    container = container or specification.get("Container")
    if not container:
        return "unknown"
    if container.get("ModelDataUrl") or container.get("ModelDataSource") or container.get("ArtifactUrl"):
        return "platform"
    environment = container.get("Environment") or {}
    named = [str(environment[key]) for key in _MODEL_KEYS if environment.get(key)]
    if any(not value.startswith(_LOCAL) for value in named):
        return "container"
    return "none"


def _specification(component: Mapping[str, Any] | None) -> Mapping[str, Any]:
    document = component or {}
    found: Any = document.get("Specification") or next(iter(document.get("Specifications") or ()), {})
    return found if isinstance(found, Mapping) else {}


def _image(model: Mapping[str, Any] | None, specification: Mapping[str, Any]) -> str | None:
    container = (model or {}).get("PrimaryContainer") or next(iter((model or {}).get("Containers") or ()), None) or {}
    deployed = (specification.get("Container") or {}).get("DeployedImage") or {}
    image = container.get("Image") or deployed.get("ResolvedImage") or deployed.get("SpecifiedImage")
    return None if image is None else str(image)
