"""What each platform calls the thing that is scaled, the count that is set, and the metric that the policy tracks."""

from __future__ import annotations

import msgspec

from loadgen.emulator.config import EmulatorConfig


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """A platform's words, as Application Auto Scaling, alarms and metrics use them."""

    namespace: str
    resource_id: str
    dimension: str
    counted: str
    metric_namespace: str
    metric: str
    metric_dimensions: dict[str, str]

    def dimensions(self) -> list[dict[str, str]]:
        """Return the metric's dimensions as CloudWatch has them."""
        return [{"Name": name, "Value": value} for name, value in self.metric_dimensions.items()]


_OWN = {"metric_namespace": "Serving", "metric": "ConcurrentRequests"}


def words_of(config: EmulatorConfig) -> Words:
    """Return the words of a configuration's platform. Only SageMaker publishes a metric of concurrency of its own."""
    name, component = config.endpoint_name, config.component
    if config.platform == "ecs":
        return Words(
            namespace="ecs",
            resource_id=f"service/{name}/{name}",
            dimension="ecs:service:DesiredCount",
            counted="count",
            **_OWN,
            metric_dimensions={"Service": name},
        )
    if config.platform != "sagemaker":
        return Words(
            namespace="autoscaling",
            resource_id=name,
            dimension="",
            counted="capacity",
            **_OWN,
            metric_dimensions={"Service": name},
        )
    if component is not None:
        return Words(
            namespace="sagemaker",
            resource_id=config.resource_id,
            dimension="sagemaker:inference-component:DesiredCopyCount",
            counted="copy count",
            metric_namespace="AWS/SageMaker",
            metric="ConcurrentRequestsPerCopy",
            metric_dimensions={"InferenceComponentName": component.name},
        )
    return Words(
        namespace="sagemaker",
        resource_id=config.resource_id,
        dimension="sagemaker:variant:DesiredInstanceCount",
        counted="instance count",
        metric_namespace="AWS/SageMaker",
        metric="ConcurrentRequestsPerModel",
        metric_dimensions={"EndpointName": name, "VariantName": config.variant},
    )
