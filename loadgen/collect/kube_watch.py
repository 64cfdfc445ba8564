"""One kind of object, listed and then watched: from the last version seen on, through breaks and forgotten history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from loadgen.collect.base import Answer, MissingError, Reading, Take
from loadgen.collect.kube_client import ClusterApi, GoneError, refused, whole_list
from loadgen.collect.platform import ClusterRule

_WATCH_S: Final = 240
"""How long a server lets one watch last, client time; it is opened again from where it ended."""
_LOOK_S: Final = 1


class Kind(Protocol):
    """What the objects of one kind tell. `old` is the object as it was last seen, `None` the first time.

    `told.sent_us` is when the last request was sent that returned `old` (or, the first time, `new`).
    """

    def seen(self, old: Mapping[str, Any] | None, new: Mapping[str, Any], told: Answer) -> Reading:
        """Return the rows of an object that is new, changed, or seen again."""
        ...

    def gone(self, old: Mapping[str, Any], told: Answer) -> Reading:
        """Return the rows of an object that was deleted."""
        ...


class ObjectStream:
    """Follows one kind; one that the cluster need not have (an operator's) is `optional`, and waited for.

    `kept_us` is how long the cluster keeps what is not there any more. `query` gives the parameters that select the
    objects, once the platform is open.
    """

    def __init__(
        self,
        name: str,
        api: ClusterApi,
        path: str,
        kind: Kind,
        *,
        period_us: int,
        query: Callable[[], Mapping[str, str]] = dict,
        optional: bool = False,
        kept_us: int = 0,
        permissions: Sequence[ClusterRule] = (),
    ) -> None:
        self.name = name
        self.period_us = period_us
        self.kept_us: int | None = kept_us
        self.permissions = permissions
        self._api = api
        self._path = path
        self._kind = kind
        self._query = query
        self._optional = optional
        self._version: str | None = None
        self._sent_us = 0
        self._objects: dict[str, Mapping[str, Any]] = {}

    async def follow(self, take: Take) -> None:
        """Hand over what the list and the watch tell; returns when the server ended the watch in good order."""
        try:
            if self._version is None:
                take(await self._list())
            await self._watch(take)
        except GoneError:
            self._version = None
            raise
        except MissingError:
            self._version = None
            if not self._optional:
                raise
            take(Reading())

    async def look(self) -> Reading:
        """List once, and watch for a moment: each needs its own permission."""
        reading = await self._list()
        async for told in self._api.watch(self._path, self._watching(_LOOK_S)):
            _extend(reading, self._event(told))
        return reading

    async def _list(self) -> Reading:
        answer = await whole_list(self._api, self._path, self._query())
        reading = Reading()
        listed: dict[str, Mapping[str, Any]] = {}
        for item in answer.data["items"]:
            uid = uid_of(item)
            old = self._objects.get(uid)
            since_us = self._sent_us if old is not None else answer.sent_us
            _extend(reading, self._kind.seen(old, item, Answer({}, since_us, answer.received_us)))
            listed[uid] = item
        for uid, old in self._objects.items():
            if uid not in listed:
                _extend(reading, self._kind.gone(old, Answer({}, self._sent_us, answer.received_us)))
        self._objects, self._sent_us = listed, answer.sent_us
        self._version = str((answer.data.get("metadata") or {}).get("resourceVersion") or "0")
        return reading

    async def _watch(self, take: Take) -> None:
        async for told in self._api.watch(self._path, self._watching(_WATCH_S)):
            take(self._event(told))

    def _watching(self, seconds: int) -> dict[str, str]:
        return {
            **self._query(),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "0",
            "timeoutSeconds": str(seconds),
        }

    def _event(self, told: Answer) -> Reading:
        """Return the rows of one event. One that was seen already, or comes late, changes nothing."""
        change, item = told.data.get("type"), told.data.get("object") or {}
        if change == "ERROR":
            raise refused(int(item.get("code") or 500), str(item.get("message") or ""), self._path)
        version = (item.get("metadata") or {}).get("resourceVersion")
        reading = Reading()
        if change in {"ADDED", "MODIFIED", "DELETED"}:
            uid = uid_of(item)
            old = self._objects.get(uid)
            if old is not None and change != "DELETED" and _stale(item, old):
                return reading
            since = Answer({}, self._sent_us, told.received_us)
            if change == "DELETED":
                self._objects.pop(uid, None)
                reading = self._kind.gone(item, since)
            else:
                reading = self._kind.seen(old, item, since)
                self._objects[uid] = item
        if version is not None and _number(version) >= _number(self._version):
            self._version = str(version)
        return reading


def uid_of(item: Mapping[str, Any]) -> str:
    """Return an object's uid."""
    return str((item.get("metadata") or {}).get("uid"))


def _extend(reading: Reading, more: Reading) -> None:
    reading.observations += more.observations
    reading.samples += more.samples
    reading.snapshots |= more.snapshots


def _stale(item: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Tell whether an object is the one seen already, or an earlier one that comes late.

    Versions are numbers that grow, as clients may rely on since Kubernetes 1.35; of others only the same is stale.
    """
    new_version, old_version = (str((o.get("metadata") or {}).get("resourceVersion")) for o in (item, old))
    if new_version.isdecimal() and old_version.isdecimal():
        return int(new_version) <= int(old_version)
    return new_version == old_version


def _number(version: Any) -> int:
    text = str(version)
    return int(text) if text.isdecimal() else 0
