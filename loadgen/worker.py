"""The worker's side of the talk with its master: questions about its share answered, the share sent, news told."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import gevent.event
import msgspec
from locust.env import Environment

from loadgen import locust_stats
from loadgen.crew import MESSAGE
from loadgen.firing import fire_request
from loadgen.gathering import list_shards, read_piece
from loadgen.recorder import RequestRow
from loadgen.share import Share
from traces.errors import EXIT_INTERRUPTED, BadInputError, RamptraceError, UnreachableError

MASTER_LOST_S = 10.0
"""How long a worker goes on without a word from its master: load that nobody watches must not go on."""

_HELLO_EVERY_S = 1.0
_MASTER_FIRST_S = 0.5  # a Ctrl-C reaches master and workers alike: the master's reason is the better one

logger = logging.getLogger("ramptrace")


class WorkerHost:
    """Takes part in the runs of a Locust master, one after the other; see `Share` for the options."""

    def __init__(
        self,
        environment: Environment,
        *,
        trace: str | None = None,
        target: str | None = None,
        run_path: Path | None = None,
    ) -> None:
        locust_stats.install()
        self._environment = environment
        self._own: dict[str, Any] = {"trace": trace, "target": target, "run_path": run_path}
        self._share: Share | None = None
        self._ended = gevent.event.Event()
        self._ended.set()
        self._welcome = gevent.event.Event()
        self._heard_s = time.monotonic()
        self._told_to_stop = False
        self._answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "check": self._check,
            "open": self._open,
            "go": self._go,
            "list": lambda _asked: list_shards(self._part(), self._ready_share().shard),
            "piece": lambda asked: read_piece(self._part(), asked),
        }
        environment.process_exit_code = 0
        self._runner.register_message(MESSAGE, self._on_message)
        environment.events.heartbeat_received.add_listener(self._on_heartbeat)
        environment.events.quitting.add_listener(lambda **_: self.leave())
        gevent.spawn(self._say_hello)
        gevent.spawn(self._prune)

    @property
    def _runner(self) -> Any:
        return self._environment.runner

    def leave(self) -> None:
        """Stop sending, of this worker's own accord, and wait until what is under way has ended; twice: at once."""
        if self._ended.is_set() or self._share is None:
            return
        if self._told_to_stop:
            self._share.sending.abandon()
        else:
            gevent.sleep(_MASTER_FIRST_S)
            if not self._told_to_stop:
                self._environment.process_exit_code = EXIT_INTERRUPTED
                self._stop("worker_stopped")
        self._ended.wait()

    def _stop(self, reason: str) -> None:
        """Stop what is sent, or, when it has not begun yet, what will be."""
        self._told_to_stop = True
        if self._share is not None and self._share.run is not None:
            self._share.sending.stop(reason)

    def _on_message(self, environment: Environment, msg: Any) -> None:  # noqa: ARG002 - as Locust calls it
        data = msg.data
        self._heard_s = time.monotonic()
        match data.get("do"):
            case "welcome":
                self._welcome.set()
            case "late":
                self._welcome.set()
                self._come_late(stays=bool(data["stays"]))
            case "ping" if self._share is not None:
                self._reply(data, {"worker_us": self._share.raw_us()})
            case "stop":
                self._stop(str(data["reason"]))
            case "abandon" if self._share is not None and not self._ended.is_set():
                self._share.sending.abandon()
            case do if do in self._answers:
                gevent.spawn(self._answer, data)

    def _answer(self, asked: dict[str, Any]) -> None:
        try:
            answer = self._answers[asked["do"]](asked)
        except RamptraceError as error:
            logger.error("%s", error)
            self._environment.process_exit_code = error.exit_code
            answer = {"error": str(error), "exit_code": error.exit_code}
        except OSError as error:
            answer = {"error": f"{error.filename or 'a file'}: {error.strerror or error}", "exit_code": 1}
        except Exception as error:
            logger.exception("this worker failed")
            answer = {"error": f"internal error ({type(error).__name__}); its log has more", "exit_code": 1}
        self._reply(asked, answer)

    def _reply(self, asked: dict[str, Any], answer: dict[str, Any]) -> None:
        self._runner.send_message(MESSAGE, {"do": asked["do"], "call": asked["call"], **answer})

    def _check(self, asked: dict[str, Any]) -> dict[str, Any]:
        if not self._ended.is_set():
            raise BadInputError("still busy with another run; wait for its end, or start another worker")
        self._share = None
        self._environment.process_exit_code = 0
        share = Share(**self._own)
        answer = share.check(asked)
        self._share, self._told_to_stop = share, False
        return answer

    def _open(self, asked: dict[str, Any]) -> dict[str, Any]:
        share = self._ready_share()

        def on_row(row: RequestRow) -> None:
            fire_request(self._environment, row, label=share.label, url=share.url)

        return share.open(asked, on_row, self._tick)

    def _go(self, asked: dict[str, Any]) -> dict[str, Any]:
        share = self._ready_share()
        share.set_clock(asked["offset_us"])
        self._ended.clear()
        gevent.spawn(self._send, share, asked)
        gevent.spawn(self._watch_master)
        return {}

    def _ready_share(self) -> Share:
        if self._share is None:
            raise BadInputError("asked to send before it was asked to read a plan; start master and workers again")
        return self._share

    def _part(self) -> Any:
        run = self._ready_share().run
        assert run is not None
        return run

    def _send(self, share: Share, asked: dict[str, Any]) -> None:
        failure: str | None = None
        try:
            share.send(asked, asked["time_scale"])
        except RamptraceError as error:
            failure = str(error)
        except Exception as error:
            logger.exception("this worker failed")
            failure = f"internal error ({type(error).__name__}); its log has more"
        if failure is not None:
            logger.error("%s", failure)
            self._environment.process_exit_code = 1
        self._ended.set()
        self._report_stats()
        state = msgspec.to_builtins(share.sending.client_state)
        reason = share.sending.stop_reason
        self._tick()
        self._runner.send_message(MESSAGE, {"do": "ended", "failure": failure, "reason": reason, "client": state})
        if reason == "master_lost":
            self._runner.quit()

    def _report_stats(self) -> None:
        """Send Locust's statistics now: its own next report may come after the master has written its files."""
        data: dict[str, Any] = {}
        self._environment.events.report_to_master.fire(client_id=self._runner.client_id, data=data)
        self._runner.send_message("stats", data)

    def _tick(self) -> None:
        if self._share is None:
            return
        sending = self._share.sending
        news = {"started": sending.started, "in_flight": sending.in_flight, "ended": sending.watch.take()}
        self._runner.send_message(MESSAGE, {"do": "tick", "lag": sending.lag.to_document(), **news})

    def _watch_master(self) -> None:
        while not self._ended.is_set():
            gevent.sleep(1.0)
            if time.monotonic() - self._heard_s > MASTER_LOST_S and not self._told_to_stop:
                logger.error("no word from the master for %g s: no more is sent", MASTER_LOST_S)
                self._environment.process_exit_code = UnreachableError.exit_code
                self._stop("master_lost")

    def _come_late(self, *, stays: bool) -> None:
        if stays:
            logger.warning("the master's run had begun already; this worker waits for the next one")
            return
        logger.error("the master's run had begun already; start all workers first (--expect-workers)")
        self._environment.process_exit_code = BadInputError.exit_code
        gevent.spawn(self._runner.quit)

    def _say_hello(self) -> None:
        hello = {"do": "hello", "host": socket.gethostname(), "pid": os.getpid()}
        while not self._welcome.is_set():
            self._runner.send_message(MESSAGE, hello)
            self._welcome.wait(_HELLO_EVERY_S)

    def _on_heartbeat(self, **_: Any) -> None:
        self._heard_s = time.monotonic()

    def _prune(self) -> None:
        while True:
            gevent.sleep(locust_stats.PRUNE_S)
            locust_stats.prune(self._environment.stats)
