"""DescribeEndpointConfig and DescribeModel: what the endpoint is made of, as snapshots without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from loadgen.collect.aws import Api, Permission
from loadgen.collect.base import DeniedError, Reading
from loadgen.collect.variant import Watched, variant_of

REDACTED = "***"
_PERIOD_POLLS = 12
_OPEN_KEYS = re.compile(
    r"(?:OPTION_|SM_VLLM_|SM_NUM_GPUS|SERVING_|MAX_|TENSOR_PARALLEL|NUM_SHARD|DTYPE|QUANTIZE|HF_MODEL_ID|MODEL_ID)[A-Z0-9_]*"
)
_CLOSED_KEYS = re.compile(r"TOKEN(?!IZER|S\b|S_)|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|AUTH|COOKIE")
_PLAIN_VALUE = re.compile(r"[\w./:,+ -]{0,120}")
_LONG_WORD = re.compile(r"[A-Za-z0-9+/=_]{32,}")


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
    )

    def __init__(self, api: Api, watched: Watched, period_us: int) -> None:
        self.period_us = period_us * _PERIOD_POLLS
        self._api = api
        self._watched = watched
        self._model_denied = False

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return both snapshots; a model that may not be read is reported as a failure of that part."""
        endpoint = (await self._api.call("describe_endpoint", EndpointName=self._watched.endpoint)).data
        name = endpoint.get("EndpointConfigName")
        if not name:
            return Reading()
        config = (await self._api.call("describe_endpoint_config", EndpointConfigName=name)).data
        reading = Reading(snapshots={"describe-endpoint-config": redact_environment(config)})
        model = (variant_of(config, self._watched.variant) or {}).get("ModelName")
        if model and not self._model_denied:
            try:
                described = await self._api.call("describe_model", ModelName=model)
                reading.snapshots["describe-model"] = redact_environment(described.data)
            except DeniedError as error:
                self._model_denied = True
                reading.failures.append(error)
        return reading


def redact_environment(document: Any) -> Any:
    """Return a copy in which every container environment keeps its keys, but only harmless settings their values.

    A value stays when its key is a known setting of a serving engine, does not sound like a secret, and the value is
    short and plain. Image names stay.
    """
    if isinstance(document, Mapping):
        return {
            key: _redacted(value) if key == "Environment" and isinstance(value, Mapping) else redact_environment(value)
            for key, value in document.items()
        }
    if isinstance(document, list | tuple):
        return [redact_environment(value) for value in document]
    return document


def _redacted(environment: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) if _is_open(key, str(value)) else REDACTED for key, value in environment.items()}


def _is_open(key: str, value: str) -> bool:
    key = key.upper()
    if not _OPEN_KEYS.fullmatch(key) or _CLOSED_KEYS.search(key):
        return False
    return bool(_PLAIN_VALUE.fullmatch(value)) and not _LONG_WORD.search(value) and not value.startswith("hf_")
