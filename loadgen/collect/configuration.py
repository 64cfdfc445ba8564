"""What the endpoint is made of, as snapshots without secrets: configuration, model, inference components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import DeniedError, Reading, SourceError
from loadgen.collect.facts import facts
from loadgen.collect.variant import Watched, variant_of

_PERIOD_POLLS = 12


_COMPONENTS = ("arn:{partition}:sagemaker:{region}:{account}:inference-component/*",)


class Configuration:
    """Reads the endpoint's configuration and its model, again now and then, since a deployment changes both."""

    name = "sagemaker:configuration"
    kept_us: int | None = 0
    permissions: ClassVar = (
        Permission(
            "sagemaker",
            "describe_endpoint_config",
            ("sagemaker:DescribeEndpointConfig",),
            "instance type, routing, time-outs and which metrics are on",
            ("arn:{partition}:sagemaker:{region}:{account}:endpoint-config/*",),
        ),
        Permission(
            "sagemaker",
            "describe_model",
            ("sagemaker:DescribeModel",),
            "the image, and whether the platform or the container downloads the model",
            ("arn:{partition}:sagemaker:{region}:{account}:model/*",),
        ),
        Permission(
            "sagemaker",
            "describe_inference_component",
            ("sagemaker:DescribeInferenceComponent",),
            "a component's container, caches and time-outs",
            _COMPONENTS,
        ),
        Permission(
            "sagemaker",
            "list_inference_components",
            ("sagemaker:ListInferenceComponents",),
            "which other components share the instances",
            optional=True,
        ),
    )

    def __init__(self, api: Api, watched: Watched, period_us: int) -> None:
        self.period_us = period_us * _PERIOD_POLLS
        self._api = api
        self._watched = watched
        self._denied: set[str] = set()
        self.facts: dict[str, Any] = {}

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return the snapshots; a part that may not be read is reported as a failure of that part."""
        endpoint = (await self._api.call("describe_endpoint", EndpointName=self._watched.endpoint)).data
        name = endpoint.get("EndpointConfigName")
        if not name:
            return Reading()
        config = (await self._api.call("describe_endpoint_config", EndpointConfigName=name)).data
        reading = Reading(snapshots={"describe-endpoint-config": config})
        component = await self._component(reading)
        model = (variant_of(config, self._watched.variant) or {}).get("ModelName") or _model_of(component)
        described = await self._part(reading, "describe_model", ModelName=model) if model else None
        self.facts = facts(config, described, component, self._watched.variant)
        reading.snapshots["endpoint-facts"] = self.facts
        return reading

    async def _component(self, reading: Reading) -> dict[str, Any] | None:
        watched = self._watched
        if watched.component is None:
            return None
        scope = {"EndpointNameEquals": watched.endpoint, "VariantNameEquals": watched.variant}
        await self._part(reading, "list_inference_components", **scope)
        return await self._part(reading, "describe_inference_component", InferenceComponentName=watched.component)

    async def _part(self, reading: Reading, operation: str, **parameters: Any) -> dict[str, Any] | None:
        """Return one more answer and keep it as a snapshot; one that may not be read is not asked for again."""
        if operation in self._denied:
            return None
        try:
            answer = await self._api.call(operation, **parameters)
        except DeniedError as error:
            self._denied.add(operation)
            reading.failures.append(error)
            return None
        except SourceError as error:
            reading.failures.append(error)
            return None
        reading.snapshots[operation.replace("_", "-")] = answer.data
        return answer.data


def _model_of(component: Mapping[str, Any] | None) -> str | None:
    name = ((component or {}).get("Specification") or {}).get("ModelName")
    return None if name is None else str(name)
