"""The master's side of the talk with its workers, over Locust's own messages: who is there, questions, losses.

Each message has `do`. A question has a `call` number besides, which its answer repeats; an answer with `error` and
`exit_code` is a refusal. Workers say `hello` until they are welcomed: Locust may know of one before it can listen.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import gevent
import gevent.event
import msgspec
from locust.env import Environment

from traces.clock import ClientClock
from traces.errors import BadInputError, RamptraceError

MESSAGE = "ramptrace"
LOST_AFTER_S = 7.0
"""How long a worker may be silent once Locust, after three seconds without a heartbeat, calls it missing."""

_HELLO_S = 30.0
_LOOK_S = 0.1

logger = logging.getLogger("ramptrace")


class Member(msgspec.Struct, kw_only=True):
    """One worker of a run."""

    client_id: str
    shard: int
    host: str
    pid: int
    missing_since: float | None = None
    lost: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """What a worker answered, and when that arrived (µs, the run's clock)."""

    data: dict[str, Any]
    received_us: int


class WorkerRefusedError(RamptraceError):
    """A worker cannot take part; ends the command with the worker's own exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Crew:
    """The workers of one Locust master. `is_gone` tells of a process of ours, by its pid, that it has ended."""

    def __init__(self, environment: Environment, is_gone: Callable[[int], bool] = lambda _pid: False) -> None:
        self._environment = environment
        self._is_gone = is_gone
        self._known: dict[str, dict[str, Any]] = {}
        self._calls = itertools.count(1)
        self._open_calls: dict[int, gevent.event.AsyncResult] = {}
        self._clock = ClientClock()
        self.members: list[Member] = []
        self.on_news: Callable[[Member, dict[str, Any]], None] | None = None
        self._runner.register_message(MESSAGE, self._on_message)

    @property
    def _runner(self) -> Any:
        return self._environment.runner

    @property
    def present(self) -> int:
        """How many workers are connected and speak our language."""
        return sum(client_id in self._known for client_id in self._connected())

    @property
    def remaining(self) -> list[Member]:
        """The members that were not lost."""
        return [member for member in self.members if member.lost is None]

    def muster(self, clock: ClientClock, stopped: gevent.event.Event) -> None:
        """Make all connected workers members, in the order in which they came; later ones are not taken.

        Raises `BadInputError` when there is none, or one that does not speak our language.
        """
        self._clock, self.members = clock, []
        self._wait_for_hellos(stopped)
        connected = self._connected()
        if not connected:
            raise BadInputError("no worker is connected; start workers first, or replay without --master")
        self.members = [
            Member(client_id=client_id, shard=shard, host=known["host"], pid=known["pid"])
            for shard, client_id in enumerate(connected)
            for known in [self._known[client_id]]
        ]

    def dismiss(self) -> None:
        """Let go of the members: the run is over, and workers that come are welcome to the next."""
        self.members, self.on_news = [], None

    def tell(self, member: Member, do: str, **data: Any) -> None:
        """Send a message that has no answer."""
        self._runner.send_message(MESSAGE, {"do": do, **data}, member.client_id)

    def ask(
        self,
        do: str,
        data_of: Callable[[Member], dict[str, Any]],
        *,
        cut_short: gevent.event.Event | None = None,
        among: Iterable[Member] | None = None,
    ) -> dict[int, Answer]:
        """Return the members' answers by shard. Raises `WorkerRefusedError` for one that refused, or was lost.

        Empty when `cut_short` is set meanwhile.
        """
        waiting: dict[int, tuple[Member, Any]] = {}
        for member in self.remaining if among is None else among:
            call, box = next(self._calls), gevent.event.AsyncResult()
            self._open_calls[call] = box
            waiting[call] = member, box
            self.tell(member, do, call=call, **data_of(member))
        answers: dict[int, Answer] = {}
        try:
            while len(answers) < len(waiting):
                left = [box for member, box in waiting.values() if member.shard not in answers]
                gevent.wait(left, timeout=_LOOK_S, count=1)
                for member, box in waiting.values():
                    if box.ready() and member.shard not in answers:
                        answers[member.shard] = _accepted(member, box.get())
                    elif not box.ready() and self.loss(member) is not None:
                        raise WorkerRefusedError(f"{shown(member)} was lost: {member.lost}; start again", 5)
                if cut_short is not None and cut_short.is_set():
                    return {}
        finally:
            for call in waiting:
                self._open_calls.pop(call, None)
        return answers

    def loss(self, member: Member) -> str | None:
        """Return why a worker counts as lost from now on, `None` while it does not."""
        if member.lost is None:
            member.lost = self._loss(member)
        return member.lost

    def _loss(self, member: Member) -> str | None:
        if self._is_gone(member.pid):
            return "its process ended"
        node = self._runner.clients.get(member.client_id)
        if node is None:
            return "it quit"
        if node.state != "missing":
            member.missing_since = None
            return None
        member.missing_since = member.missing_since or time.monotonic()
        if time.monotonic() - member.missing_since < LOST_AFTER_S:
            return None
        return "it is out of reach (killed, or the link was cut)"

    def _connected(self) -> list[str]:
        runner = self._runner
        nodes = [*runner.clients.ready, *runner.clients.spawning, *runner.clients.running]
        return sorted((node.id for node in nodes), key=runner.get_worker_index)

    def _wait_for_hellos(self, stopped: gevent.event.Event) -> None:
        deadline = time.monotonic() + _HELLO_S
        while silent := [client_id for client_id in self._connected() if client_id not in self._known]:
            if stopped.is_set():
                return
            if time.monotonic() > deadline:
                name = silent[0].rpartition("_")[0]
                raise BadInputError(
                    f"the worker on {name} does not answer: start it with `ramptrace replay --worker`, or with "
                    "ramptrace's locustfile, of the same version"
                )
            gevent.sleep(_LOOK_S)

    def _on_message(self, environment: Environment, msg: Any) -> None:  # noqa: ARG002 - as Locust calls it
        received_us = self._clock.now_us()
        data = msg.data
        if not isinstance(data, dict):
            return
        if data.get("do") == "hello":
            self._welcome(msg.node_id, data)
        elif "call" in data:
            box = self._open_calls.get(data["call"])
            if box is not None:
                box.set(Answer(data, received_us))
        else:
            member = next((m for m in self.members if m.client_id == msg.node_id), None)
            if member is not None and self.on_news is not None:
                self.on_news(member, data)

    def _welcome(self, client_id: str, data: dict[str, Any]) -> None:
        self._known[client_id] = data
        is_late = bool(self.members) and all(member.client_id != client_id for member in self.members)
        if is_late:
            logger.warning("a worker on %s came after the run had begun: it takes no part in it", data["host"])
        stays = self._environment.web_ui is not None
        self._runner.send_message(MESSAGE, {"do": "late" if is_late else "welcome", "stays": stays}, client_id)


def shown(member: Member) -> str:
    """Return a worker's name in messages."""
    return f"worker {member.shard} on {member.host}"


def _accepted(member: Member, answer: Answer) -> Answer:
    error = answer.data.get("error")
    if error is not None:
        raise WorkerRefusedError(f"{shown(member)}: {error}", int(answer.data.get("exit_code", 1)))
    return answer
