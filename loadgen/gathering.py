"""Bringing a worker's shards to the master where the two share no directory: asked for in pieces, after the load."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import gevent.event

from loadgen.crew import Crew, Member, WorkerRefusedError, shown
from loadgen.native import in_thread
from loadgen.recorder import writers_of
from traces.run import RunDir, write_atomically

TABLES = ("requests", "samples")
_PIECE_BYTES = 512 * 1024  # heartbeats share the channel
_NAME = re.compile(r"[a-z0-9-]+\.parquet")


def list_shards(run: RunDir, shard: int) -> dict[str, Any]:
    """Return a worker's shards: `shards` [{table, name, bytes}]. Their names tell whose they are."""
    in_thread(partial(run.compact, "requests", writer=writers_of(shard).requests))
    in_thread(partial(run.compact, "samples", writer=writers_of(shard).samples))
    found = [(table, path) for table in TABLES for path in run.shards(table)]
    return {"shards": [{"table": table, "name": path.name, "bytes": path.stat().st_size} for table, path in found]}


def read_piece(run: RunDir, asked: dict[str, Any]) -> dict[str, Any]:
    """Return a piece of a shard as bytes: `data`."""
    path = run.path / _table(asked["table"]) / _name(asked["name"])
    with path.open("rb") as file:
        file.seek(int(asked["offset"]))
        return {"data": file.read(_PIECE_BYTES)}


def fetch_shards(crew: Crew, member: Member, run: RunDir, cut_short: gevent.event.Event) -> None:
    """Copy all shards of a worker into the master's run directory. Raises `WorkerRefusedError` when that fails."""

    def ask(do: str, **more: Any) -> dict[str, Any]:
        answers = crew.ask(do, lambda _: more, among=[member], cut_short=cut_short)
        if not answers:
            raise WorkerRefusedError(f"{shown(member)}: not waited for", 1)
        return answers[member.shard].data

    for shard in ask("list")["shards"]:
        table, name = _table(shard["table"]), _name(shard["name"])
        content = bytearray()
        while len(content) < shard["bytes"]:
            piece = ask("piece", table=table, name=name, offset=len(content))["data"]
            if not piece:
                raise WorkerRefusedError(f"{shown(member)}: {table}/{name} ends early", 1)
            content += piece
        _keep(run, table, name, content)


def copy_shards(part: RunDir, run: RunDir) -> None:
    """Copy all shards of a worker's own directory into the run's."""
    for table in TABLES:
        for path in part.shards(table):
            _keep(run, table, path.name, path.read_bytes())


def _keep(run: RunDir, table: str, name: str, content: bytes | bytearray) -> None:
    (run.path / table).mkdir(exist_ok=True)
    in_thread(write_atomically, run.path / table / name, memoryview(content))


def _table(name: str) -> str:
    if name not in TABLES:
        raise WorkerRefusedError(f"no table of a worker: {name[:40]}", 1)
    return name


def _name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise WorkerRefusedError(f"no name of a shard: {name[:40]}", 1)
    return name
