"""A SageMaker real-time endpoint with one watched variant: its sources, and the checks before the start."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol

from botocore.exceptions import ClientError

from loadgen.collect import component_state, endpoint_state, sagemaker_view
from loadgen.collect.alarms import Alarms
from loadgen.collect.aws import Api, Aws, Permission
from loadgen.collect.base import (
    DeniedError,
    ExpiredError,
    MalformedError,
    Source,
    SourceError,
    SourceUnreachableError,
    Stream,
)
from loadgen.collect.component_state import ComponentState
from loadgen.collect.configuration import Configuration
from loadgen.collect.endpoint_state import EndpointState
from loadgen.collect.events import Events, queue_arn
from loadgen.collect.image_size import ImageSize
from loadgen.collect.instance_metrics import Instances
from loadgen.collect.logs import Logs
from loadgen.collect.metrics import Metrics
from loadgen.collect.platform import Context, Finding, PhaseView
from loadgen.collect.promql import OperationMetrics, PromApi
from loadgen.collect.scaling import Scaled, ScalingActivities, ScalingPolicies
from loadgen.collect.trail import Trail
from loadgen.collect.variant import NAMESPACE, Watched, variant_of
from loadgen.scenario import CollectSection
from traces.errors import BadInputError, UnreachableError, did_you_mean
from traces.units import US_PER_S

_PATIENCE_S = 20.0
_TRAIL_PERIOD_US = 60 * US_PER_S


class SageMaker:
    """The platform: a variant of a real-time endpoint."""

    name = "sagemaker"
    permissions = (
        Permission(
            "sagemaker",
            "list_endpoints",
            ("sagemaker:ListEndpoints",),
            "the names to choose from when the endpoint is not found",
            optional=True,
        ),
    )

    def __init__(self, context: Context) -> None:
        section = context.section
        assert section.endpoint_name is not None
        self._section, self._context = section, context
        self._watched = Watched(section.endpoint_name, section.variant, context.since_us, section.inference_component)
        self.resource = self._watched.resource
        self._prom = PromApi(context.aws, context.clock)

    @property
    def arn_names(self) -> dict[str, str]:
        """What stands for the placeholders in the resources of the permissions."""
        names = {"endpoint": self._watched.endpoint, "log_group": "/aws/sagemaker/*"}
        if self._section.event_queue is not None:
            names["queue"] = queue_arn(self._section.event_queue, self._context.aws.region)
        return names

    def findings(self, snapshots: Mapping[str, Any]) -> list[Finding]:
        """Return what is set up well and what is not."""
        return sagemaker_view.findings(snapshots)

    def phases(self, snapshots: Mapping[str, Any]) -> list[PhaseView]:
        """Return how well each phase will be seen."""
        return sagemaker_view.phases(snapshots)

    async def open(self, stack: AsyncExitStack) -> list[str]:
        """Read the endpoint once. Raises `BadInputError` or `UnreachableError`."""
        await stack.enter_async_context(self._prom)
        warning = await check(self._section, self._watched.endpoint, self._context.aws)
        return [warning] if warning else []

    def sources(self) -> Sequence[Source | Stream]:
        """Return all sources of the endpoint, those that others rely on first."""
        context = self._context
        present_us = context.endpoint_clock.to_endpoint_us(context.clock.now_us())
        age_us = max(0, present_us - context.since_us)
        return sources(self._section, context.aws, self._prom, self._watched, context.before, age_us=age_us)


class Services(Protocol):
    """Where the sources get their clients from: `Aws`, or what stands in for it."""

    def api(self, service: str) -> Api:
        """Return a service's client."""
        ...


def sources(
    section: CollectSection,
    aws: Services,
    prom: PromApi,
    watched: Watched,
    before: Mapping[str, Any],
    *,
    age_us: int = 0,
) -> list[Source | Stream]:
    """Return all sources of what is watched, those that others rely on first; `before` as `Context` has it.

    `age_us` is how long ago the stretch to read begins: finer metrics are kept for less time.
    """
    scaling, cloudwatch, sagemaker = (aws.api(name) for name in ("application-autoscaling", "cloudwatch", "sagemaker"))
    scaled = Scaled(NAMESPACE, watched.resource, watched.dimension, watched.since_us)
    policies = ScalingPolicies(scaling, scaled, section.poll_us)
    configuration = Configuration(sagemaker, watched, section.poll_us)
    logs = Logs(aws.api("logs"), watched, section.poll_us)

    def instances() -> Instances:
        if not configuration.facts.get("enhanced_metrics"):
            return Instances()
        return Instances(logs.new_units, configuration.facts["metric_publish_s"])

    found: list[Source | Stream] = [
        EndpointState(sagemaker, watched, section.poll_us, before.get(endpoint_state.LAST)),
        configuration,
        policies,
        ScalingActivities(scaling, scaled, section.poll_us),
        Alarms(cloudwatch, scaled, section.poll_us, policies.alarms),
        logs,
        Metrics(cloudwatch, watched, section.metrics_poll_us, instances, age_us),
        OperationMetrics(prom, watched, section.metrics_poll_us),
    ]
    if watched.component is not None:
        component = before.get(component_state.LAST)
        found.insert(0, ComponentState(sagemaker, watched, section.poll_us, component))
    if section.event_queue is not None:
        found.append(Events(aws.api("sqs"), watched, section.event_queue, section.poll_us, policies.alarms))
    if section.cloudtrail:
        found.append(Trail(aws.api("cloudtrail"), watched, _TRAIL_PERIOD_US))
    if section.image_size:
        found.append(ImageSize(aws.api("ecr"), section.poll_us, lambda: configuration.facts.get("image")))
    return found


async def check(section: CollectSection, endpoint: str, aws: Aws) -> str | None:
    """Read the endpoint once; returns what to warn of. Raises `BadInputError` or `UnreachableError`, fit for a user."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            answer = await aws.api("sagemaker").call("describe_endpoint", EndpointName=endpoint)
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
        # In AWS's own words, of which the error's message leaves out what is not known to be harmless.
        if "could not find" in str(error.__cause__).lower():
            raise BadInputError(await _unknown_endpoint(endpoint, aws)) from error
        raise BadInputError(f"{error}; check the endpoint's name, the region and --endpoint-url") from error
    except SourceError as error:
        return str(error)
    if variant_of(answer.data, section.variant) is None:
        known = [str(v.get("VariantName")) for v in answer.data.get("ProductionVariants") or ()]
        hint = did_you_mean(section.variant, known)
        raise BadInputError(
            f'endpoint "{endpoint}" has no variant "{section.variant}"{hint}; it has: {", ".join(known)}'
        )
    return None


async def _unknown_endpoint(name: str, aws: Aws) -> str:
    region = aws.region
    try:
        listed = await aws.api("sagemaker").call("list_endpoints", MaxResults=100, SortBy="CreationTime")
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
