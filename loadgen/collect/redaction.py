"""What of the platform's documents may be written: an allow-list. Pure.

Of text, only what stands under a known key is kept; numbers, truth values and instants say nothing about anybody.
Containers' environments keep their keys, and the values of harmless settings of serving engines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from loadgen.collect.rows import redact

REDACTED = "***"
_OPEN_KEYS = re.compile(
    r"(?:OPTION_|SM_VLLM_|SM_NUM_GPUS|SERVING_|MAX_|TENSOR_PARALLEL|NUM_SHARD|DTYPE|QUANTIZE|HF_MODEL_ID|MODEL_ID)[A-Z0-9_]*"
)
_CLOSED_KEYS = re.compile(r"TOKEN(?!IZER|S\b|S_)|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|AUTH|COOKIE")
_PLAIN_VALUE = re.compile(r"[\w./:,+ -]{0,120}")
_LONG_WORD = re.compile(r"[A-Za-z0-9+/=_]{32,}")
_OPEN_TEXT: Final = frozenset(
    """
    AcceleratorType AdjustmentType AlarmARN AlarmArn AlarmName AlarmType ArtifactUrl BaseInferenceComponentName
    CapacityReservationPreference ComparisonOperator CompressionType DataType EndpointArn EndpointConfigArn
    EndpointConfigName EndpointName EndpointStatus FailureReason Id Image InferenceAmiVersion
    InferenceComponentArn InferenceComponentName InferenceComponentStatus InstanceType MetricAggregationType
    MetricName MlReservationArn Mode ModelArn ModelDataUrl ModelName Name Namespace NotScaledReasons
    PlacementStrategy PolicyARN PolicyName PolicyType PredefinedMetricType ResolvedImage ResourceId ResourceLabel
    RoutingStrategy S ScalableDimension ScalableTargetARN ServiceNamespace SpecifiedImage Stat StateValue
    Statistic Status StatusMessage Strategy TreatMissingData Type Unit Uri Value VariantName imageDigest imageTags
    repositoryName
    """.split()  # noqa: SIM905 - a list of a hundred quoted names is not easier to read
)
"""Keys whose text names things or states; the text of every other key is left out."""

_FREE_TEXT = frozenset({"FailureReason", "StatusMessage"})


def kept(document: Any, key: str = "") -> Any:
    """Return a copy of a document in which only allowed text is left; `key` is the one that it stands under."""
    if isinstance(document, Mapping):
        if key == "Environment":
            return _redacted(document)
        return {str(name): kept(value, str(name)) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [kept(value, key) for value in document]
    if not isinstance(document, str):
        return document
    if key not in _OPEN_TEXT:
        return REDACTED
    # A signed address carries its signature in the query.
    return redact(document) if key in _FREE_TEXT else document.partition("?")[0]


def redact_environment(document: Any) -> Any:
    """Return a copy whose containers' environments are redacted; its other keys were chosen one by one."""
    if isinstance(document, Mapping):
        return {
            key: _redacted(value) if key == "Environment" and isinstance(value, Mapping) else redact_environment(value)
            for key, value in document.items()
        }
    return [redact_environment(value) for value in document] if isinstance(document, list | tuple) else document


def _redacted(environment: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) if _is_open(key, str(value)) else REDACTED for key, value in environment.items()}


def _is_open(key: str, value: str) -> bool:
    key = key.upper()
    if not _OPEN_KEYS.fullmatch(key) or _CLOSED_KEYS.search(key):
        return False
    return bool(_PLAIN_VALUE.fullmatch(value)) and not _LONG_WORD.search(value) and not value.startswith("hf_")
