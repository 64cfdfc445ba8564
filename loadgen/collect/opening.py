"""The platforms of a scenario, opened: their clients, and the first reading of what is watched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from loadgen.collect.aws import Aws
from loadgen.collect.platform import Context, Platform, Say
from loadgen.collect.registry import make_platforms, permissions_of
from loadgen.scenario import CollectSection
from traces.clock import ClientClock, EndpointClock


def context_of(
    section: CollectSection,
    clock: ClientClock,
    endpoint_clock: EndpointClock,
    *,
    since_us: int,
    until_us: int | None = None,
    before: Mapping[str, Any] | None = None,
    say: Say,
) -> Context:
    """Return what platforms are made with; nothing is connected yet."""
    aws = Aws(
        clock,
        endpoint_clock,
        region=section.region,
        endpoint_url=section.endpoint_url,
        verify_tls=section.verify_tls,
    )
    return Context(
        section=section,
        clock=clock,
        endpoint_clock=endpoint_clock,
        aws=aws,
        since_us=since_us,
        until_us=until_us,
        before=before or {},
        say=say,
    )


@asynccontextmanager
async def opened(
    section: CollectSection, clock: ClientClock, endpoint_clock: EndpointClock, *, say: Say, **scope: Any
) -> AsyncIterator[tuple[list[Platform], Aws]]:
    """Open all platforms that a section asks for; `scope` is `context_of`'s. Warnings are said.

    Raises `BadInputError` or `UnreachableError`, fit for a user.
    """
    context = context_of(section, clock, endpoint_clock, say=say, **scope)
    async with context.aws, AsyncExitStack() as stack:
        platforms = make_platforms(context)
        permissions = [p for platform in platforms for p in permissions_of(platform)]
        if permissions:
            await context.aws.open(permissions)
        for platform in platforms:
            for warning in await platform.open(stack):
                say(warning)
        yield platforms, context.aws
