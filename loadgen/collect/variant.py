"""The SageMaker endpoint's variant under watch, and where it stands in an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

NAMESPACE = "sagemaker"
DIMENSION = "sagemaker:variant:DesiredInstanceCount"


class Watched(NamedTuple):
    """The endpoint's variant under watch; events before `since_us` (endpoint time) do not count."""

    endpoint: str
    variant: str
    since_us: int = 0

    @property
    def resource(self) -> str:
        """The variant in Application Auto Scaling's words."""
        return f"endpoint/{self.endpoint}/variant/{self.variant}"

    @property
    def log_group(self) -> str:
        """Where its containers log."""
        return f"/aws/sagemaker/Endpoints/{self.endpoint}"


def variant_of(endpoint: Mapping[str, Any], variant: str) -> Mapping[str, Any] | None:
    """Return the summary of one variant, or `None` when the answer has none of that name."""
    for summary in endpoint.get("ProductionVariants") or ():
        if summary.get("VariantName") == variant:
            found: Mapping[str, Any] = summary
            return found
    return None
