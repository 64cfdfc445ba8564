"""The collector as a process of its own beside the replay.

It is started by exec, never by fork (asyncio and gevent do not share a process), in its own session, so that a Ctrl-C
meant for the replay does not reach it. The two speak through the run directory and two pipes: the collector prints
`{"ready": true}` when its first reading is in; when its standard input ends, the load has ended (or the replay was
killed), and it goes on for its tail and exits. Nothing that happens to it stops the replay.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gevent
import gevent.event
import gevent.subprocess
import msgspec

from loadgen.command import own_command

_GRACE_S = 30.0


class Companion:
    """Starts, watches and ends the collector of one run; `state` is what the manifest says of it."""

    def __init__(self, run_path: Path) -> None:
        self._run_path = run_path
        self._process: Any = None
        self._settled = gevent.event.Event()
        self.state: dict[str, Any] = {"state": "absent", "exit_code": None, "detail": None}

    def start(self, ready_timeout_s: float, cut_short: gevent.event.Event) -> None:
        """Start it and wait until it is ready, has died, or took too long (then the replay goes on without it)."""
        command = own_command("collect", "--attach", str(self._run_path))
        try:
            with (self._run_path / "collector.log").open("wb") as log:
                self._process = gevent.subprocess.Popen(
                    command,
                    stdin=gevent.subprocess.PIPE,
                    stdout=gevent.subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            self.state |= {"state": "died", "detail": f"cannot be started: {error.strerror}"}
            return
        gevent.spawn(self._watch)
        gevent.wait([self._settled, cut_short], timeout=ready_timeout_s, count=1)
        if self.state["state"] == "absent":
            self.state["detail"] = f"not ready within {ready_timeout_s:g} s; the replay began without it"

    def finish(self, tail_s: float, cut_short: gevent.event.Event) -> None:
        """Say that the load has ended, and wait for the tail; a collector that overstays is killed."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.stdin.close()
        waiter = gevent.spawn(self._process.wait)
        gevent.wait([waiter, cut_short], timeout=tail_s + _GRACE_S, count=1)
        killed = self._process.poll() is None
        if killed:
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        waiter.kill()
        if self.state["state"] == "died":
            return
        if killed:
            late = "killed: it was still running when its time was over"
            detail = "killed: the replay was told twice to stop, its tail was not seen" if cut_short.is_set() else late
            self.state |= {"state": "died", "exit_code": code, "detail": detail}
        else:
            self.state |= {"state": "finished" if code == 0 else "died", "exit_code": code}
            if code:
                self.state["detail"] = self._last_words()

    def _watch(self) -> None:
        for line in self._process.stdout:
            try:
                document = msgspec.json.decode(line)
            except msgspec.MsgspecError:
                continue
            if isinstance(document, dict) and document.get("ready") is True:
                self.state |= {"state": "ready", "detail": None}
                self._settled.set()
        code = self._process.wait()
        if not self._process.stdin.closed:
            self.state |= {"state": "died", "exit_code": code, "detail": self._last_words()}
        self._settled.set()

    def _last_words(self) -> str | None:
        """Return the last line of its log: our own command's error message, one line without secrets."""
        try:
            lines = (self._run_path / "collector.log").read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            return None
        return lines[-1].removeprefix("ramptrace: ")[:300] if lines else None
