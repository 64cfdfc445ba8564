"""What of a SageMaker endpoint is watched, and where it stands in an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

NAMESPACE = "sagemaker"


class Watched(NamedTuple):
    """An endpoint's variant, or an inference component on it; events before `since_us` (endpoint time) do not count.

    A variant scales instances. A component scales copies; instances are launched and released beneath them.
    """

    endpoint: str
    variant: str
    since_us: int = 0
    component: str | None = None

    @property
    def resource(self) -> str:
        """The scaled thing in Application Auto Scaling's words."""
        if self.component is not None:
            return f"inference-component/{self.component}"
        return f"endpoint/{self.endpoint}/variant/{self.variant}"

    @property
    def dimension(self) -> str:
        """What is scaled, in the same words."""
        if self.component is not None:
            return "sagemaker:inference-component:DesiredCopyCount"
        return "sagemaker:variant:DesiredInstanceCount"

    @property
    def log_group(self) -> str:
        """The containers' log group. The component's is widely used but not in the official table."""
        if self.component is not None:
            return f"/aws/sagemaker/InferenceComponents/{self.component}"
        return f"/aws/sagemaker/Endpoints/{self.endpoint}"


def variant_of(endpoint: Mapping[str, Any], variant: str) -> Mapping[str, Any] | None:
    """Return the summary of one variant, or `None` when the answer has none of that name."""
    for summary in endpoint.get("ProductionVariants") or ():
        if summary.get("VariantName") == variant:
            found: Mapping[str, Any] = summary
            return found
    return None
