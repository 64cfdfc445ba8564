"""Asking the units themselves: when something listens, when it is ready, when it has answered its first request.

For platforms that tell little. The unit's own clock is not used: a change lies between the last question that got the
old answer and the first answer that was new.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import aiohttp

from loadgen.collect import probe_view
from loadgen.collect.anchors import PROBE
from loadgen.collect.base import Answer, Reading, Row, Source, Stream
from loadgen.collect.platform import Context, Finding, PhaseView
from loadgen.collect.polled import Polled
from loadgen.collect.rows import observation
from traces.units import US_PER_S

_TIMEOUT: Final = aiohttp.ClientTimeout(total=5)
_LARGEST_METRICS: Final = 4 * 1024 * 1024
PROBED: Final = "probe"
STAGES: Final = ("unreachable", "listening", "not-ready", "ready")
"""How far a unit is: nothing answers; it takes connections; it answers, but not with success; it is ready."""
_SERVED: Final = re.compile(
    r"^(?:vllm:request_success_total|vllm:generation_tokens_total|sglang:num_requests_total|tgi_request_success"
    r"|nv_inference_request_success)(?:\{[^}]*\})? +([0-9.eE+-]+)",
    re.MULTILINE,
)
"""Counters that grow with the first answer: vLLM, SGLang, TGI, Triton."""


class Probe:
    """Polls each unit's health address, and its metrics until they show a first answer. Its failures are no gaps.

    `urls` gives (unit, address) as they are known at the moment; a unit that is new was not there at the poll before.
    """

    name = "probe"
    kept_us: int | None = 0
    permissions = ()

    def __init__(self, context: Context, urls: Callable[[], Mapping[str, str]], *, resource: str = "units") -> None:
        section = context.section.probe
        self.period_us = section.period_us if section is not None else context.section.poll_us
        self._health = section.health if section is not None else "/health"
        self._metrics = section.metrics if section is not None else "/metrics"
        self._clock, self._resource, self._urls = context.clock, resource, urls
        self._verify = context.section.verify_tls
        self._polled = Polled()
        self._ready: set[str] = set()
        self._served: set[str] = set()

    async def poll(self, now_us: int) -> Reading:  # noqa: ARG002 - the port passes it to every source
        """Return the stages that changed."""
        reading = Reading()
        async with _session(self._verify) as http:
            # Side by side: one that does not answer in time may not widen the others' intervals.
            asked = [self._unit_rows(http, unit, url) for unit, url in sorted(self._urls().items())]
            for rows in await asyncio.gather(*asked):
                reading.observations += rows
        return reading

    async def _unit_rows(self, http: aiohttp.ClientSession, unit: str, url: str) -> list[Row]:
        answer = await self._stage(http, url)
        rows = self._stage_rows(unit, answer)
        if unit not in self._served and answer.data["stage"] == "ready" and self._metrics:
            rows += await self._served_rows(http, unit, url)
        return rows

    async def _stage(self, http: aiohttp.ClientSession, url: str) -> Answer:
        sent_us = self._clock.now_us()
        status = None
        try:
            async with http.get(url.rstrip("/") + self._health, allow_redirects=False) as response:
                status = response.status
                stage = "ready" if 200 <= status < 300 else "not-ready"
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, aiohttp.ClientResponseError):
            stage = "listening"
        except (aiohttp.ClientError, OSError, TimeoutError):
            stage = "unreachable"
        return Answer({"stage": stage, "status": status}, sent_us, self._clock.now_us())

    def _stage_rows(self, unit: str, answer: Answer) -> list[Row]:
        stage = answer.data["stage"]
        change = self._polled.changed((unit, "stage"), stage, answer)
        if change is None:
            return []
        rows = [
            self._row(
                "stage",
                unit,
                f"{change.old}->{stage}:{answer.received_us}",
                answer,
                lo_us=change.lo_us,
                was=change.old,
                stage=stage,
                status=answer.data["status"],
                milestone=f"probe-{stage}",
            )
        ]
        if stage == "ready" and unit not in self._ready:
            self._ready.add(unit)
            rows.append(self._row("ready", unit, "ready", answer, lo_us=change.lo_us, was=change.old))
        return rows

    async def look(self) -> Reading:
        """Return each unit's stage, and whether its metrics tell of answers, as a snapshot by unit."""
        async with _session(self._verify) as http:
            asked = {unit: self._looked(http, url) for unit, url in sorted(self._urls().items())}
            told = await asyncio.gather(*asked.values())
        return Reading(snapshots={PROBED: dict(zip(asked, told, strict=True))})

    async def _looked(self, http: aiohttp.ClientSession, url: str) -> dict[str, Any]:
        stage = (await self._stage(http, url)).data["stage"]
        counted = stage == "ready" and self._metrics and await self._has_served(http, url) is not None
        return {"stage": stage, "counter": bool(counted)}

    async def _served_rows(self, http: aiohttp.ClientSession, unit: str, url: str) -> list[Row]:
        sent_us = self._clock.now_us()
        served = await self._has_served(http, url)
        if served is None:
            return []
        answer = Answer({}, sent_us, self._clock.now_us())
        change = self._polled.changed((unit, "served"), served, answer)
        if served:
            self._served.add(unit)
        if change is None or not served:
            return []
        return [self._row("first-served", unit, "first-served", answer, lo_us=change.lo_us)]

    async def _has_served(self, http: aiohttp.ClientSession, url: str) -> bool | None:
        """Return whether a unit's metrics show an answer; `None` where they cannot be read, or do not tell."""
        try:
            async with http.get(url.rstrip("/") + self._metrics) as response:
                text = (await response.content.read(_LARGEST_METRICS)).decode(errors="replace")
                return served_any(text) if response.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    def _row(self, signal: str, unit: str, name: str, told: Answer, *, lo_us: int, **detail: Any) -> Row:
        return observation(
            PROBE[signal],
            self._resource,
            f"{unit}:{name}",
            told,
            unit_id=unit,
            lo_us=lo_us,
            hi_us=told.received_us,
            resolution_us=told.received_us - lo_us,
            detail=detail,
        )


class ProbePlatform:
    """The platform where nothing else tells: addresses that the scenario lists."""

    name = "probe"
    permissions = ()

    def __init__(self, context: Context) -> None:
        section = context.section.probe
        assert section is not None
        self._context, self._section = context, section
        self.resource = ", ".join(sorted(section.units))

    async def open(self, stack: AsyncExitStack) -> list[str]:  # noqa: ARG002 - the port passes it
        """Nothing is asked: a unit that does not answer yet is what it is here for."""
        return []

    def sources(self) -> Sequence[Source | Stream]:
        """Return the one source."""
        return [Probe(self._context, lambda: self._section.units, resource=self.resource)]

    def findings(self, snapshots: Mapping[str, Any]) -> list[Finding]:
        """Return what each unit answered."""
        return probe_view.findings(snapshots.get(PROBED) or {})

    def phases(self, snapshots: Mapping[str, Any]) -> list[PhaseView]:
        """Return how well each phase will be seen."""
        return probe_view.phases(snapshots.get(PROBED) or {}, self._section.period_us / US_PER_S)


def served_any(metrics: str) -> bool | None:
    """Return whether an engine's metrics show that it has answered; `None` without a known counter.

    >>> served_any('vllm:request_success_total{model_name="m"} 0.0'), served_any("tgi_request_success 3")
    (False, True)
    """
    found = [float(value) for value in _SERVED.findall(metrics)]
    return None if not found else any(value > 0 for value in found)


def probe_urls(addresses: Mapping[str, str], port: int | None) -> dict[str, str]:
    """Return unit → address to ask, from the units' own addresses.

    >>> probe_urls({"pod-a": "10.0.0.7", "pod-b": "fd00::1"}, 8000)
    {'pod-a': 'http://10.0.0.7:8000', 'pod-b': 'http://[fd00::1]:8000'}
    """
    return {unit: f"http://{f'[{host}]' if ':' in host else host}:{port}" for unit, host in addresses.items()}


@asynccontextmanager
async def _session(verify_tls: bool) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=verify_tls, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as http:
        yield http
