"""Worker processes of our own on this machine, for `ramptrace replay --workers N`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import gevent
import gevent.subprocess

from loadgen.command import own_command
from traces.errors import RamptraceError

_READY_S = 60.0
_STOP_S = 10.0
_LOOK_S = 0.05

TARGET_VARIABLE = "RAMPTRACE_TARGET"
"""Where a worker finds the target's whole address: on its command line others could read a key in it."""


class Team:
    """The processes, each in a session of its own: a Ctrl-C is the master's to pass on."""

    def __init__(self, count: int, *, port: int, target: str | None) -> None:
        environment = os.environ | ({TARGET_VARIABLE: target} if target is not None else {})
        command = own_command("replay", "--worker", "--master-host", "127.0.0.1", "--master-port", str(port))
        self._processes = [
            gevent.subprocess.Popen(command, env=environment, stdin=gevent.subprocess.DEVNULL, start_new_session=True)
            for _ in range(count)
        ]

    def wait_for(self, present: Callable[[], int], stopped: Callable[[], bool]) -> None:
        """Wait until all are connected. Raises `RamptraceError` when one ends before, or it takes too long."""
        deadline = time.monotonic() + _READY_S
        while present() < len(self._processes) and not stopped():
            ended = [process.returncode for process in self._processes if process.poll() is not None]
            if ended:
                raise RamptraceError(f"a worker ended before it was ready (exit code {ended[0]}); see the lines above")
            if time.monotonic() > deadline:
                raise RamptraceError(f"the workers were not ready within {_READY_S:g} s; is this machine that busy?")
            gevent.sleep(_LOOK_S)

    def is_gone(self, pid: int) -> bool:
        """Tell whether one of them has ended."""
        return any(process.pid == pid and process.poll() is not None for process in self._processes)

    def end(self) -> None:
        """See all of them out; one that overstays is killed."""
        deadline = time.monotonic() + _STOP_S
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            for process in self._processes:
                if number is not None and process.poll() is None:
                    process.send_signal(number)
            while any(process.poll() is None for process in self._processes) and time.monotonic() < deadline:
                gevent.sleep(_LOOK_S)
            deadline = time.monotonic() + _STOP_S
