"""The doctor: what a collection of this scenario will see, what it will not, and the cheapest thing that would help.

It reads with the very sources that a collection reads with, each once; a permission is tested by the call it is for.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from loadgen.collect.aws import PROMQL, Api, Aws, Permission
from loadgen.collect.base import DeniedError, Looking, MissingError, Reading, Source, SourceError, Stream
from loadgen.collect.opening import context_of, opened
from loadgen.collect.platform import SEEN, ClusterRule, Examined, Finding, Identified, PhaseView, Platform, Say, Scoped
from loadgen.collect.policy import policies, scoped
from loadgen.collect.redaction import redact, said
from loadgen.collect.registry import make_platforms, needs_of, permissions_of
from loadgen.collect.session import find_endpoint_clock
from loadgen.scenario import CollectSection
from traces.clock import ClientClock, EndpointClock
from traces.units import US_PER_S

IDENTITY = Permission("sts", "get_caller_identity", (), "who is asking", optional=True)

_LOOKBACK_US = _HOUR_US = 3_600 * US_PER_S
_OFFSET_NOTED_US = 1 * US_PER_S


class Diagnosis(msgspec.Struct, kw_only=True):
    """All that was found."""

    findings: list[Finding]
    phases: list[PhaseView]
    policies: dict[str, Any]

    @property
    def failed(self) -> bool:
        """Whether something stands in the way of measuring a scale-out."""
        return any(finding.status == "fail" for finding in self.findings)


def needed_policies(section: CollectSection) -> dict[str, Any]:
    """Return the least-privilege policies for a section; nothing is connected."""
    context = context_of(section, ClientClock(), EndpointClock(), since_us=0, say=lambda _line: None)
    platforms = make_platforms(context)
    needed: list[Permission | ClusterRule] = []
    for platform in platforms:
        # Each platform's own: what the log groups of one are called says nothing about another's.
        names = platform.arn_names if isinstance(platform, Scoped) else {}
        needs = needs_of(platform)
        needed += [scoped(need, names) if isinstance(need, Permission) else need for need in needs]
    names = {"partition": "aws", **({"region": context.aws.region} if context.aws.region else {})}
    return policies(needed, names)


async def examine(section: CollectSection, emulator_url: str | None, say: Say) -> Diagnosis:
    """Read everything once. Raises `BadInputError` or `UnreachableError` where nothing can be read at all."""
    clock = ClientClock()
    endpoint_clock, emulated = await find_endpoint_clock(section, emulator_url, clock)
    since_us = endpoint_clock.to_endpoint_us(clock.now_us()) - _LOOKBACK_US
    found = [Finding("platform", "ok", "emulated")] if emulated else []
    warnings: list[str] = []
    views: list[PhaseView] = []
    async with opened(section, clock, endpoint_clock, since_us=since_us, say=warnings.append) as (platforms, aws):
        found += [Finding("reachable", "ok", platform.resource) for platform in platforms]
        found += [Finding("reachable", "warn", warning) for warning in warnings]
        if any(permissions_of(platform) for platform in platforms):
            found.append(await _identity(aws))
        for platform in platforms:
            say(f"reading every source of {platform.resource} once")
            now_us = endpoint_clock.to_endpoint_us(clock.now_us())
            if isinstance(platform, Identified):
                found.append(await platform.identity())
            snapshots, outcomes, cost = await _read(platform, aws, now_us)
            found += [*_permissions(platform, aws), *_rules(platform, outcomes), *_failures(outcomes), cost]
            if isinstance(platform, Examined):
                found += platform.findings(snapshots)
                views += platform.phases(snapshots)
        found.append(_clock_finding(aws))
    return Diagnosis(findings=found, phases=views, policies=needed_policies(section))


async def _identity(aws: Aws) -> Finding:
    try:
        await aws.open([IDENTITY])
        answer = await aws.api("sts").call("get_caller_identity")
    except SourceError as error:
        return Finding("identity", "unknown", str(error))
    return Finding("identity", "ok", redact(str(answer.data.get("Arn"))))


Outcomes = dict[str, list[SourceError]]
"""Source → what of it could not be read."""


async def _read(platform: Platform, aws: Aws, now_us: int) -> tuple[dict[str, Any], Outcomes, Finding]:
    """Read every source once, streams side by side; returns the snapshots, what failed, and the cost."""
    snapshots: dict[str, Any] = {}
    outcomes: Outcomes = {}
    calls_per_h = metrics_per_h = 0.0
    sources = platform.sources()
    polled = [source for source in sources if isinstance(source, Source)]
    streams = [source for source in sources if not isinstance(source, Source)]
    readings = await asyncio.gather(*(_tried(stream, now_us) for stream in streams))
    for stream, reading in zip(streams, readings, strict=True):
        snapshots |= reading.snapshots
        outcomes[stream.name] = reading.failures
    for source in polled:
        before = aws.limiter.calls.total()
        reading = await _tried(source, now_us)
        polls_per_h = _HOUR_US / source.period_us
        calls_per_h += (aws.limiter.calls.total() - before) * polls_per_h
        metrics_per_h += reading.billed_metrics * polls_per_h
        snapshots |= reading.snapshots
        outcomes[source.name] = reading.failures
    snapshots[SEEN] = sorted(name for name, failures in outcomes.items() if not failures)
    costs = [f"about {calls_per_h:,.0f} AWS calls an hour, which read {metrics_per_h:,.0f} billed CloudWatch metrics"]
    costs = costs if calls_per_h else []
    costs += [f"{len(streams)} watches kept open"] if streams else []
    return snapshots, outcomes, Finding("cost", "ok", ", ".join(costs) or "no calls of a platform's API")


async def _tried(source: Source | Stream, now_us: int) -> Reading:
    """Return what one reading gave, or its failure; a stream that cannot be read once gives nothing."""
    try:
        if isinstance(source, Looking):
            return await source.look()
        return await source.poll(now_us) if isinstance(source, Source) else Reading()
    except SourceError as error:
        return Reading(failures=[error])
    except Exception as error:
        return Reading(failures=[SourceError(f"{type(error).__name__}: {said(error)}")])


def _failures(outcomes: Outcomes) -> list[Finding]:
    """Return the sources that failed; a denial is told as a permission, and what is not there is no failure."""
    return [
        Finding(f"source {name}", "fail", str(error), "see what the service says")
        for name, failures in outcomes.items()
        for error in failures
        if not isinstance(error, DeniedError | MissingError)
    ]


def _rules(platform: Platform, outcomes: Outcomes) -> list[Finding]:
    """Return how the reads went that a Kubernetes role allows."""
    found = []
    for source in platform.sources():
        for rule in source.permissions:
            if not isinstance(rule, ClusterRule):
                continue
            topic = f"permission {', '.join(rule.resources)} ({', '.join(rule.verbs)})"
            failures = outcomes.get(source.name) or []
            if any(isinstance(error, DeniedError) for error in failures):
                found.append(_denied(topic, rule.purpose, optional=rule.optional))
            elif any(isinstance(error, MissingError) for error in failures):
                found.append(Finding(topic, "unknown", "the cluster has none"))
            elif not failures:
                found.append(Finding(topic, "ok", "allowed"))
    return found


def _permissions(platform: Platform, aws: Aws) -> list[Finding]:
    found = []
    once = {(permission.service, permission.operation): permission for permission in permissions_of(platform)}
    for permission in once.values():
        if permission.service == PROMQL or not permission.actions:
            continue
        found.append(_permission(permission, aws.api(permission.service)))
    return found


def _permission(permission: Permission, api: Api) -> Finding:
    topic = f"permission {permission.actions[0]}"
    if permission.operation not in api.outcomes:
        return Finding(topic, "unknown", "there was nothing to read with it yet")
    outcome = api.outcomes[permission.operation]
    if isinstance(outcome, DeniedError):
        return _denied(topic, permission.purpose, optional=permission.optional)
    return Finding(topic, "ok", "allowed")


def _denied(topic: str, purpose: str, *, optional: bool) -> Finding:
    advice = f"without it not seen: {purpose}; ramptrace doctor --print-policy"
    return Finding(topic, "warn" if optional else "fail", "denied", advice)


def _clock_finding(aws: Aws) -> Finding:
    bounds = aws.offsets.bounds()
    if not bounds:
        return Finding("clock", "unknown", "no service told its time")
    lead_us = aws.offsets.lead_us()
    width_us = max(hi - lo for lo, hi in bounds.values())
    text = f"the services are {lead_us / US_PER_S:+.1f} s ahead, known to {width_us / US_PER_S / 2:.1f} s"
    if abs(lead_us) < _OFFSET_NOTED_US:
        return Finding("clock", "ok", text)
    return Finding("clock", "warn", text, "set this machine's clock; runs are corrected by what was measured")
