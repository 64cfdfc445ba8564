"""The Kubernetes API on the wire: lists in pages, watches with bookmarks and their faults, pods' logs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from loadgen.emulator.api import ApiError
from loadgen.emulator.driver import Driver
from loadgen.emulator.faults import Injector
from loadgen.emulator.kube_objects import KubeObjects
from loadgen.emulator.kube_store import Change
from traces.clock import to_datetime
from traces.units import US_PER_S

_KINDS = {
    ("v1", "pods"): ("pods", "Pod"),
    ("v1", "nodes"): ("nodes", "Node"),
    ("v1", "events"): ("events", "Event"),
    ("v1", "configmaps"): ("configmaps", "ConfigMap"),
    ("apps/v1", "deployments"): ("deployments", "Deployment"),
    ("autoscaling/v2", "horizontalpodautoscalers"): ("hpa", "HorizontalPodAutoscaler"),
    ("discovery.k8s.io/v1", "endpointslices"): ("endpointslices", "EndpointSlice"),
    ("karpenter.sh/v1", "nodeclaims"): ("nodeclaims", "NodeClaim"),
}
"""(group and version, plural) → kind in the store, kind in answers."""
_PATH = re.compile(
    r"/apis?/(?P<group>(?:[\w.-]+/)?v\w+)(?:/namespaces/[\w.-]+)?/(?P<plural>[a-z]+)"
    r"(?:/(?P<name>[\w.-]+))?(?P<log>/log)?"
)
_LOOK_S = 0.01
_BOOKMARK_S = 5.0
_LONGEST_WATCH_S = 3_600.0
Wanted = Callable[[Mapping[str, Any]], bool]


class KubeError(Exception):
    """An error as the API server reports it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason

    def body(self) -> dict[str, Any]:
        """Return the Status object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.status,
        }


class KubeApi:
    """Handlers of one cluster's API. Chance decides which requests are throttled and which watches go wrong."""

    def __init__(self, driver: Driver, objects: KubeObjects, seed: int) -> None:
        self._driver = driver
        self._store = objects.store
        self._faults = driver.model.config.faults
        self._random = random.Random(f"{seed}:kubernetes")
        self._injector = Injector(self._faults, seed, driver.model.now_us)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a GET below `/api` or `/apis`."""
        found = _PATH.fullmatch(request.path)
        plural = "" if found is None else "log" if found["log"] else found["plural"]
        trouble = self._injector.trouble("kubernetes", self._driver.now_us(), plural)
        try:
            await asyncio.sleep(trouble.wait_us / self._driver.clock.time_scale / US_PER_S)
            if trouble.error is not None:
                raise _kube_error(trouble.error)
            kind = None if found is None else _KINDS.get((found["group"], found["plural"]))
            if found is None or kind is None:
                raise KubeError(404, "NotFound", "the server could not find the requested resource")
            self._driver.sync()
            if found["log"]:
                return self._log(found["name"], request.query)
            wanted = selected(request.query)
            if found["name"]:
                return web.json_response(self._one(kind[0], found["name"]))
            if request.query.get("watch", "").lower() in {"1", "true"}:
                response = web.StreamResponse(headers={"Content-Type": "application/json"})
                with contextlib.suppress(ConnectionError):  # the client went away
                    await self._watch(request, response, kind[0], wanted)
                return response
            return web.json_response(self._list(found["group"], kind, wanted, request.query))
        except KubeError as error:
            return web.json_response(error.body(), status=error.status)

    async def who(self, _request: web.Request) -> web.Response:
        """Answer a SelfSubjectReview: everybody is the same user."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        return web.json_response(review | {"status": {"userInfo": {"username": "emulated"}}}, status=201)

    def _one(self, kind: str, name: str) -> dict[str, Any]:
        for item in self._store.items(kind):
            if item["metadata"]["name"] == name:
                return item
        raise KubeError(404, "NotFound", f'{kind} "{name}" not found')

    def _list(self, group: str, kind: tuple[str, str], wanted: Wanted, query: Mapping[str, str]) -> dict[str, Any]:
        items = [item for item in self._store.items(kind[0]) if wanted(item)]
        limit = int(query.get("limit") or 0)
        begin = int(base64.urlsafe_b64decode(query["continue"])) if query.get("continue") else 0
        metadata = {"resourceVersion": str(self._store.version)}
        if limit and begin + limit < len(items):
            metadata["continue"] = base64.urlsafe_b64encode(str(begin + limit).encode()).decode()
        shown = items[begin : begin + limit] if limit else items
        return {"kind": f"{kind[1]}List", "apiVersion": group, "metadata": metadata, "items": shown}

    def _log(self, pod: str, query: Mapping[str, str]) -> web.Response:
        now_us = self._driver.now_us()
        unit = next((u for u in self._driver.model.fleet.instances if u.unit_id == pod), None)
        if unit is None or unit.timeline.container_started_us > now_us:
            raise KubeError(404, "NotFound", f'pods "{pod}" not found')
        since = query.get("sinceTime", "")
        lines = [(_nanoseconds(event.at_us), event.message) for event in unit.log if event.at_us <= now_us]
        text = "".join(f"{at} {message}\n" for at, message in lines if at >= since)
        return web.Response(text=text)

    async def _watch(self, request: web.Request, response: web.StreamResponse, kind: str, wanted: Wanted) -> None:
        """Send changes as they come, until the time asked for is over, or a fault ends it earlier."""
        stated = request.query.get("resourceVersion") or "0"
        position = 0
        if stated != "0":
            if self._random.random() < self._faults.gone_share:
                raise KubeError(410, "Expired", f"too old resource version: {stated} ({self._store.version})")
            if not stated.isdecimal():
                raise KubeError(400, "BadRequest", f"invalid resource version {stated!r}")
            position = self._store.position_after(int(stated))
        response.enable_chunked_encoding()
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        began = loop.time()
        until = began + min(float(request.query.get("timeoutSeconds") or _LONGEST_WATCH_S), _LONGEST_WATCH_S)
        lasts_s = self._faults.watch_lasts_s / self._driver.clock.time_scale
        bookmark_at = began + _BOOKMARK_S
        while loop.time() < until and request.transport is not None and not request.transport.is_closing():
            if lasts_s and loop.time() > began + lasts_s:
                request.transport.abort()
                return
            position = await self._send_new(response, position, kind, wanted)
            if request.query.get("allowWatchBookmarks", "").lower() == "true" and loop.time() > bookmark_at:
                bookmark_at = loop.time() + _BOOKMARK_S
                await response.write(_line("BOOKMARK", _bookmark(self._sent_version(position))))
            await asyncio.sleep(_LOOK_S)
        await response.write_eof()

    def _sent_version(self, position: int) -> int:
        history = self._store.history
        return history[position - 1].version if position else 0

    async def _send_new(self, response: web.StreamResponse, position: int, kind: str, wanted: Wanted) -> int:
        """Send what is due from a position in the history on; return the position after it."""
        self._driver.sync()
        now_us = self._driver.now_us()
        for change in self._store.since(position):
            if change.at_us + self._late_us(change) > now_us:
                break
            position += 1
            if change.kind != kind or not wanted(change.object):
                continue
            await response.write(_line(change.change, change.object))
            if self._random.random() < self._faults.duplicate_share:
                await response.write(_line(change.change, change.object))
        return position

    def _late_us(self, change: Change) -> int:
        """Return how late a change is told: the same for every watch."""
        late_us = self._faults.late_s * US_PER_S
        return round(random.Random(change.version).random() * late_us) if late_us else 0


def selected(query: Mapping[str, str]) -> Wanted:
    """Return which objects a list or a watch is about, by its label and field selectors.

    >>> selected({"labelSelector": "app=a"})({"metadata": {"labels": {"app": "b"}}})
    False
    """
    tests: list[Wanted] = []
    for part in filter(None, (query.get("labelSelector") or "").split(",")):
        key, equals, value = part.replace("==", "=").partition("=")
        if not equals or key.endswith("!"):
            raise KubeError(400, "BadRequest", f"the emulator knows labels that are equal to a value, not {part!r}")
        tests.append(lambda item, key=key, value=value: _labels(item).get(key) == value)  # type: ignore[misc]
    for part in filter(None, (query.get("fieldSelector") or "").split(",")):
        path, equals, value = part.replace("==", "=").partition("=")
        if not equals:
            raise KubeError(400, "BadRequest", f"invalid field selector {part!r}")
        tests.append(lambda item, path=path, value=value: str(_at(item, path)) == value)  # type: ignore[misc]
    return lambda item: all(test(item) for test in tests)


def _kube_error(error: ApiError) -> KubeError:
    """Return an AWS-like error in the cluster's words."""
    status, reason = {
        "ThrottlingException": (429, "TooManyRequests"),
        "ExpiredTokenException": (401, "Unauthorized"),
        "AccessDeniedException": (403, "Forbidden"),
    }.get(error.code, (error.status, "InternalError"))
    return KubeError(status, reason, str(error))


def _labels(item: Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] = item["metadata"].get("labels") or {}
    return labels


def _at(item: Any, path: str) -> Any:
    for key in path.split("."):
        item = item.get(key) if isinstance(item, Mapping) else None
    return item


def _line(change: str, item: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"type": change, "object": item}) + b"\n"


def _bookmark(version: int) -> dict[str, Any]:
    return {"kind": "Bookmark", "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}}


def _nanoseconds(at_us: int) -> str:
    return f"{to_datetime(at_us):%Y-%m-%dT%H:%M:%S.%f}000Z"
