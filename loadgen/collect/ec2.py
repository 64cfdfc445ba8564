"""An EC2 Auto Scaling group: its sources, and the check before the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from loadgen.collect import ec2_view
from loadgen.collect.alarms import Alarms
from loadgen.collect.anchors import EC2
from loadgen.collect.base import Source, Stream
from loadgen.collect.ec2_activities import Activities
from loadgen.collect.ec2_groups import LAST, Group, GroupPolicies, GroupState, Instances, found_group, learn
from loadgen.collect.first_call import first_call
from loadgen.collect.platform import Context, Finding, PhaseView
from loadgen.collect.probe import Probe, probe_urls
from loadgen.collect.scaling import Scaled
from loadgen.collect.target_health import TargetHealth


class Ec2:
    """The platform: one group."""

    name = "ec2"
    permissions = ()

    def __init__(self, context: Context) -> None:
        section = context.section.ec2
        assert section is not None
        self._context, self._section = context, section
        self._group = Group(section.group, context.since_us)
        self.resource = self._group.resource

    async def open(self, stack: AsyncExitStack) -> list[str]:  # noqa: ARG002 - the port passes it
        """Read the group once."""
        group = self._group

        async def call() -> None:
            api = self._context.aws.api("autoscaling")
            answer = await api.call("describe_auto_scaling_groups", AutoScalingGroupNames=[group.name])
            learn(group, found_group(answer, group.name))

        return await first_call(call, f"Auto Scaling group {group.name}", self._context.section.endpoint_url)

    def sources(self) -> Sequence[Source | Stream]:
        """Return all sources of the group, those that others rely on first."""
        context, group = self._context, self._group
        aws, poll_us = context.aws, context.section.poll_us
        scaling = aws.api("autoscaling")
        policies = GroupPolicies(scaling, group, poll_us)
        scaled = Scaled("autoscaling", group.resource, "", group.since_us)
        found: list[Source | Stream] = [
            GroupState(scaling, group, poll_us, context.before.get(LAST)),
            Instances(aws.api("ec2"), group, poll_us),
            policies,
            Activities(scaling, group, poll_us),
            Alarms(aws.api("cloudwatch"), scaled, poll_us, policies.alarms),
            TargetHealth(
                aws.api("elbv2"),
                poll_us,
                groups=lambda: group.target_groups or [],
                unit_of=_instance,
                signals=EC2,
                resource=group.resource,
            ),
        ]
        if self._section.probe_port is not None:
            found.append(Probe(context, lambda: probe_urls(group.addresses, self._section.probe_port)))
        return found

    def findings(self, snapshots: Mapping[str, Any]) -> list[Finding]:
        """Return what is set up well and what is not."""
        return ec2_view.findings(snapshots)

    def phases(self, snapshots: Mapping[str, Any]) -> list[PhaseView]:
        """Return how well each phase will be seen."""
        return ec2_view.phases(snapshots, probed=self._section.probe_port is not None)


def _instance(target: Mapping[str, Any]) -> str | None:
    name = target.get("Id")
    return str(name) if isinstance(name, str) and name.startswith("i-") else None
