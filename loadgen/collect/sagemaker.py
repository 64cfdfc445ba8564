"""A SageMaker real-time endpoint with one watched variant: its sources, and the checks before the start."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from loadgen.collect.alarms import Alarms
from loadgen.collect.aws import Platform
from loadgen.collect.base import (
    DeniedError,
    ExpiredError,
    MalformedError,
    Source,
    SourceError,
    SourceUnreachableError,
    Watched,
)
from loadgen.collect.configuration import Configuration
from loadgen.collect.endpoint_state import EndpointState, variant_of
from loadgen.collect.logs import Logs
from loadgen.collect.metrics import Metrics
from loadgen.collect.promql import OperationMetrics, PromApi
from loadgen.collect.scaling import ScalingActivities, ScalingPolicies
from loadgen.scenario import CollectSection
from traces.errors import BadInputError, UnreachableError, did_you_mean

_PATIENCE_S = 20.0


def sources(
    section: CollectSection, platform: Platform, prom: PromApi, watched: Watched, before: Mapping[str, Any] | None
) -> list[Source]:
    """Return all sources of an endpoint, those that others rely on first.

    `before` is the last state that an earlier collector of the same run saw.
    """
    scaling, logs = platform.api("application-autoscaling"), platform.api("logs")
    cloudwatch, sagemaker = platform.api("cloudwatch"), platform.api("sagemaker")
    policies = ScalingPolicies(scaling, watched, section.poll_us)
    return [
        EndpointState(sagemaker, watched, section.poll_us, before),
        Configuration(sagemaker, watched, section.poll_us),
        policies,
        ScalingActivities(scaling, watched, section.poll_us),
        Alarms(cloudwatch, watched, section.poll_us, lambda: policies.alarm_names),
        Metrics(cloudwatch, watched, section.metrics_poll_us),
        Logs(logs, watched, section.poll_us),
        OperationMetrics(prom, watched, section.metrics_poll_us),
    ]


async def check(section: CollectSection, platform: Platform) -> str | None:
    """Read the endpoint once; returns what to warn of. Raises `BadInputError` or `UnreachableError`, fit for a user."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            answer = await platform.api("sagemaker").call("describe_endpoint", EndpointName=section.endpoint_name)
    except TimeoutError:
        raise UnreachableError(
            f"SageMaker gave no answer within {_PATIENCE_S:.0f} s{_what_to_check(section)}"
        ) from None
    except SourceUnreachableError as error:
        raise UnreachableError(f"{error}{_what_to_check(section)}") from error
    except ExpiredError as error:
        raise BadInputError(f"the AWS credentials have expired ({error}); renew them, then start again") from error
    except DeniedError as error:
        if _code(error) not in {"AccessDenied", "AccessDeniedException"}:
            raise BadInputError(f"AWS does not accept the credentials ({error}); check AWS_PROFILE and keys") from error
        return f"{error}; going on with what may be read"
    except MalformedError as error:
        if "could not find" in str(error).lower():
            raise BadInputError(await _unknown_endpoint(section, platform)) from error
        raise BadInputError(f"{error}; check the endpoint's name, the region and --endpoint-url") from error
    except SourceError as error:
        return str(error)
    if variant_of(answer.data, section.variant) is None:
        known = [str(v.get("VariantName")) for v in answer.data.get("ProductionVariants") or ()]
        hint = did_you_mean(section.variant, known)
        raise BadInputError(
            f'endpoint "{section.endpoint_name}" has no variant "{section.variant}"{hint}; it has: {", ".join(known)}'
        )
    return None


async def _unknown_endpoint(section: CollectSection, platform: Platform) -> str:
    name, region = section.endpoint_name, platform.region
    try:
        listed = await platform.api("sagemaker").call("list_endpoints", MaxResults=100, SortBy="CreationTime")
    except SourceError:
        return f'no endpoint "{name}" in {region}; check the name and the region'
    known = [str(e.get("EndpointName")) for e in listed.data.get("Endpoints") or ()]
    hint = did_you_mean(name, known)
    there = f"; there are: {', '.join(known[:10])}" if known else "; there is none at all"
    return f'no endpoint "{name}" in {region}{hint}{there}'


def _what_to_check(section: CollectSection) -> str:
    if section.endpoint_url:
        return f"; check that something listens at {section.endpoint_url}"
    return "; check the network, the region and the proxy settings"


def _code(error: SourceError) -> str:
    cause = error.__cause__
    return str(cause.response.get("Error", {}).get("Code", "")) if isinstance(cause, ClientError) else ""
