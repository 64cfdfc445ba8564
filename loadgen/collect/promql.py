"""Detailed observability over PromQL: the durations that SageMaker itself reports for each scaling operation.

These series are event-driven: a query over steps would repeat a stale sample, so an instant query with a range
selector reads the raw samples. No botocore operation reaches them; this is a small signed HTTP client.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from yarl import URL

from loadgen.collect.anchors import SAGEMAKER
from loadgen.collect.aws import PROMQL, Aws, Permission, is_loopback, retry_after_s
from loadgen.collect.base import (
    Answer,
    DeniedError,
    ExpiredError,
    MalformedError,
    Reading,
    Row,
    SourceError,
    SourceUnreachableError,
    ThrottledError,
)
from loadgen.collect.redaction import redact, said
from loadgen.collect.rows import observation, sample
from loadgen.collect.variant import Watched
from traces.clock import ClientClock
from traces.units import US_PER_S

ALIASES: Final = {
    "model_download_time": ("model_download_time", "ModelDownloadTime"),
    "container_start_time": ("container_start_time", "ContainerStartDuration", "ContainerStartTime"),
    "gpu_load_time": ("gpu_load_time", "GPULoadTime"),
    "e2e_duration": ("e2e_duration", "E2EScalingLatency"),
    "ice_count": ("ice_count", "ICECount"),
}
"""Canonical name → the names under which the platform's documents list the series."""

_ENDPOINT, _VARIANT, _HOST = "aws.sagemaker.endpoint.name", "aws.sagemaker.variant.name", "@resource.host.id"
_COMPONENT, _CONTAINER = "aws.sagemaker.inference_component.name", "aws.sagemaker.container.id"
_DIRECTION = "aws.sagemaker.scaling.direction"
_LABELS = re.compile(r"aws\.sagemaker\..+|@resource\.(?:host\.|cloud\.availability_zone).*")
"""The platform's own labels; others may be the user's."""

_SERIES_AT_MOST = 500
_RANGE_AT_MOST_S = 7 * 86_400
_TIMEOUT = aiohttp.ClientTimeout(total=25, connect=5)


class PromApi:
    """Signed GET requests to a Prometheus-shaped API; open between `async with`."""

    def __init__(self, aws: Aws, clock: ClientClock) -> None:
        self._aws = aws
        self._clock = clock
        self._base = ""
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._base = self._aws.monitoring_url.rstrip("/")
        self._http = aiohttp.ClientSession(timeout=_TIMEOUT, trust_env=not is_loopback(self._base))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()

    async def get(self, path: str, **parameters: str) -> Answer:
        """Return the `data` of a successful answer under the key `data`; raises `SourceError`."""
        return await self._aws.limiter.calling(f"{PROMQL}.{path}", lambda: self._once(path, parameters))

    async def _once(self, path: str, parameters: Mapping[str, str]) -> Answer:
        assert self._http is not None
        url = f"{self._base}{path}"
        if parameters:
            url += "?" + urlencode(parameters, quote_via=quote, safe="-_.~")
        headers = await self._signed(url)
        sent_us = self._clock.now_us()
        try:
            async with self._http.get(URL(url, encoded=True), headers=headers, ssl=self._aws.verify_tls) as response:
                body, status = await response.read(), response.status
                date, retry_after = response.headers.get("Date"), response.headers.get("Retry-After")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise SourceUnreachableError(redact(f"promql {path}: {error or type(error).__name__}")) from error
        received_us = self._clock.now_us()
        self._aws.offsets.read(PROMQL, date, sent_us, received_us)
        try:
            return Answer({"data": parse(body, status, path)}, sent_us, received_us)
        except SourceError as error:
            error.retry_s = retry_after_s(type(error), status, retry_after)
            raise

    async def _signed(self, url: str) -> dict[str, str]:
        credentials = await self._aws.credentials()
        if credentials is None:
            raise ExpiredError("promql: no AWS credentials")
        request = AWSRequest("GET", url, headers={"Accept": "application/json"})
        SigV4Auth(await credentials.get_frozen_credentials(), PROMQL, self._aws.region).add_auth(request)
        return dict(request.headers.items())


def parse(body: bytes, status: int, path: str) -> Any:
    """Return the `data` of a Prometheus envelope; raises the typed error that the status or the envelope states."""
    try:
        envelope = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        envelope = None
    told = envelope.get("error") or envelope.get("message") or "" if isinstance(envelope, dict) else ""
    if status != 200:
        raise _kind_of(status, str(told))(f"promql {path}: HTTP {status} {said(told)}")
    if not isinstance(envelope, dict) or envelope.get("status") != "success":
        raise MalformedError(f"promql {path}: the answer is no Prometheus envelope {said(told)}")
    return envelope.get("data")


def _kind_of(status: int, told: str) -> type[SourceError]:
    # This service answers 422 where a query met its limits; a query that cannot be parsed is a 400.
    if status in {422, 429}:
        return ThrottledError
    if status in {401, 403}:
        return ExpiredError if "expired" in told.lower() else DeniedError
    return SourceUnreachableError if status >= 500 else MalformedError


class OperationMetrics:
    """Reads the reported durations of the endpoint's scaling operations."""

    name = "promql"
    kept_us: int | None = _RANGE_AT_MOST_S * US_PER_S
    permissions: ClassVar = (
        # The service's documents disagree on which of these the interface checks.
        Permission(
            PROMQL,
            "/api/v1/query",
            (
                "cloudwatch:GetMetricData",
                "cloudwatch:ListMetrics",
                "cloudwatch:QueryMetrics",
                "cloudwatch:DescribeMetrics",
            ),
            "the durations that the platform reports: model download, weights, container start, the whole",
        ),
    )

    def __init__(self, api: PromApi, watched: Watched, period_us: int) -> None:
        self.period_us = period_us
        self._api = api
        self._watched = watched
        self._names: dict[str, str] = {}

    async def poll(self, now_us: int) -> Reading:
        """Return the rows of all samples since the start; what was seen before is dropped later by its id."""
        if len(self._names) < len(ALIASES):
            # A series appears in the list only after its first event, so the list is read again until all are there.
            listed = await self._api.get("/api/v1/label/__name__/values")
            self._names = resolve(listed.data["data"])
        reading = Reading()
        range_s = min(_RANGE_AT_MOST_S, max(1, math.ceil((now_us - self._watched.since_us) / US_PER_S)))
        for canonical, name in self._names.items():
            query = f'{name}{{"{_ENDPOINT}"="{_escaped(self._watched.endpoint)}"}}[{range_s}s]'
            try:
                answer = await self._api.get("/api/v1/query", query=query, time=f"{now_us / US_PER_S:.3f}")
            except (ThrottledError, SourceUnreachableError) as error:
                # The other series need not suffer.
                reading.failures.append(error)
                continue
            series = series_of(answer.data["data"])
            if len(series) >= _SERIES_AT_MOST:
                reading.failures.append(
                    MalformedError(f"promql {name}: the answer was cut at {_SERIES_AT_MOST} series")
                )
            rows = [row for one in series for row in series_rows(canonical, one, self._watched, answer)]
            (reading.samples if canonical == "ice_count" else reading.observations).extend(rows)
        return reading


def resolve(listed: Any) -> dict[str, str]:
    """Return canonical name → the name that the platform lists, for the series that it has.

    >>> resolve(["up", "ModelDownloadTime", "gpu_load_time"])
    {'model_download_time': 'ModelDownloadTime', 'gpu_load_time': 'gpu_load_time'}
    """
    if not isinstance(listed, list):
        raise MalformedError("promql: the list of metric names is no list")
    known = set(listed)
    chosen = {canonical: next((n for n in names if n in known), None) for canonical, names in ALIASES.items()}
    return {canonical: name for canonical, name in chosen.items() if name}


def series_of(data: Any) -> list[Mapping[str, Any]]:
    """Return the series of an answer; a range selector must give a matrix."""
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        raise MalformedError("promql: expected a matrix of raw samples")
    return [series for series in data["result"] if isinstance(series, dict)]


def series_rows(canonical: str, series: Mapping[str, Any], watched: Watched, answer: Answer) -> list[Row]:
    """Return the rows of one series of ours: durations as observations, the capacity error count as samples.

    A duration ended before its sample was taken; how long before is not documented, so there is no lower bound. A
    model download that the platform reports is the platform's own, before the container starts.
    """
    labels = {str(key): str(value) for key, value in (series.get("metric") or {}).items()}
    resource = watched.resource
    if labels.get(_VARIANT, watched.variant) != watched.variant:
        return []
    if watched.component is not None and labels.get(_COMPONENT, watched.component) != watched.component:
        return []
    shown = {key: value for key, value in labels.items() if _LABELS.fullmatch(key)}
    unit = _unit(labels, copies=watched.component is not None)
    place = {"place": "platform"} if canonical == "model_download_time" else {}
    identity = ",".join(f"{key}={value}" for key, value in sorted(shown.items()))
    if hidden := sorted(set(labels.items()) - set(shown.items()) - {("__name__", labels.get("__name__", ""))}):
        # They may hold the user's tags, but tell series apart.
        identity += f",#{hashlib.sha256(repr(hidden).encode()).hexdigest()[:8]}"
    rows = []
    for stamp, text in series.get("values") or ():
        value, at_us = float(text), round(float(stamp) * US_PER_S)
        if not math.isfinite(value):
            continue
        if canonical == "ice_count":
            rows.append(
                sample(
                    "promql",
                    canonical,
                    resource=f"{resource} {identity}",
                    unit_id=unit,
                    start_us=at_us,
                    value=value,
                    received_us=answer.received_us,
                )
            )
            continue
        rows.append(
            observation(
                SAGEMAKER[_signal(canonical, labels)],
                resource,
                f"{identity}@{at_us}",
                answer,
                unit_id=unit,
                hi_us=at_us,
                duration_us=round(value * US_PER_S),
                detail={"labels": shown, **place},
            )
        )
    return rows


def _unit(labels: Mapping[str, str], *, copies: bool) -> str | None:
    """Return the unit that labels name: an instance, or a copy by instance and container as its log stream has it."""
    host, container = labels.get(_HOST), labels.get(_CONTAINER)
    if not copies:
        return host or None
    return f"{host}-{container}" if host and container else None


def _signal(canonical: str, labels: Mapping[str, str]) -> str:
    inward = labels.get(_DIRECTION, "ScaleOut") != "ScaleOut"
    return f"promql.{canonical}.in" if canonical == "e2e_duration" and inward else f"promql.{canonical}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
