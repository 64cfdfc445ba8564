"""One new unit's sightings → its phases so far, the last of them open until it is in service. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from loadgen.live.sightings import Seen
from traces.schema import REPORTED_SPANS

IN_SERVICE: Final = "in service"


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a unit's start. `end_us` is None while it lasts; it ended within [lo_us, hi_us] where that is wide.

    `inside` marks a part of the phase before it.
    """

    name: str
    start_us: int
    end_us: int | None
    lo_us: int | None = None
    hi_us: int | None = None
    inside: bool = False


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A new unit. `unit_id` is None until the platform names it; `now` is the phase it is in."""

    unit_id: str | None
    phases: tuple[Phase, ...]
    now: str
    since_us: int
    ready_us: int | None = None
    in_service_us: int | None = None
    download_us: int | None = None

    def arrived(self, lo_us: int | None, hi_us: int) -> Unit:
        """Return the unit once it is counted as in service: not before `lo_us`, first seen at `hi_us`."""
        tops = [phase for phase in self.phases if not phase.inside]
        open_one = tops[-1]
        end = max(hi_us, open_one.start_us)
        name = open_one.name if open_one.end_us is None else "registration"
        if name == "start":
            name = "start+registration"
        elif name == "provisioning+pull":
            name = "provisioning+pull+start+registration"
        closed = msgspec.structs.replace(open_one, name=name, end_us=end, lo_us=lo_us, hi_us=hi_us)
        phases = tuple(closed if phase is open_one else phase for phase in self.phases)
        return msgspec.structs.replace(self, phases=phases, now=IN_SERVICE, since_us=end, in_service_us=end)


def unit_of(unit_id: str | None, decision_us: int, rows: Sequence[Seen]) -> Unit:
    """Return a unit that was asked for at `decision_us`, from what was seen of it."""
    at = _instants(rows)
    phases: list[Phase] = []
    cursor, pending = decision_us, ["provisioning", "pull"]

    def close(anchor: str, following: list[str]) -> None:
        nonlocal cursor, pending
        end, lo, hi = at[anchor]
        end = max(end, cursor)
        phases.append(Phase(name="+".join(pending), start_us=cursor, end_us=end, lo_us=lo, hi_us=hi))
        cursor, pending = end, following

    if "launched" in at or "pull_started" in at:
        pending = ["provisioning"]
        close("launched" if "launched" in at else "pull_started", ["pull"])
    if "pull_finished" in at:
        close("pull_finished", ["start"])
        if "download_finished" in at and at["download_finished"][0] > cursor:
            pending = ["download"]
    if "container_started" in at and pending != ["start"]:
        close("container_started", ["start"])
    if "ready" in at:
        close("ready", ["registration"])
    last = Phase(name="+".join(pending), start_us=cursor, end_us=None)
    phases.append(last)
    loading = at.get("load_started")
    if loading is not None:
        loaded = at.get("load_finished")
        end = None if loaded is None else max(loaded[0], loading[0])
        phases.append(Phase(name="weights", start_us=loading[0], end_us=end, inside=True))
    download = next((s.duration_us for s in rows if s.anchor == "download_finished" and s.duration_us), None)
    unit = Unit(
        unit_id=unit_id,
        phases=tuple(phases),
        now=last.name,
        since_us=cursor,
        ready_us=at["ready"][0] if "ready" in at else None,
        download_us=download,
    )
    if "in_service" in at:
        end, lo, hi = at["in_service"]
        return unit.arrived(lo, end if hi is None else hi)
    return unit


def _instants(rows: Sequence[Seen]) -> dict[str, tuple[int, int | None, int | None]]:
    """Return, per anchor, its best single value and the bounds it came with: an instant over a reported length.

    The last line of a log that says so holds: a server and the engine in it may each say that they are ready.
    """
    found: dict[str, tuple[int, int | None, int | None]] = {}
    for s in sorted(rows, key=lambda s: s.hi_us or 0):
        if s.anchor is not None and s.hi_us is not None and s.lo_us is not None:
            wide = s.hi_us > s.lo_us
            found[s.anchor] = (s.hi_us, s.lo_us if wide else None, s.hi_us if wide else None)
    for s in rows:
        if s.anchor is None or s.anchor in found or s.duration_us is None:
            continue
        opening = found.get(REPORTED_SPANS.get(s.anchor, ""))
        if opening is not None:
            found[s.anchor] = (opening[0] + s.duration_us, None, None)
        elif s.hi_us is not None and s.anchor != "download_finished":
            found[s.anchor] = (s.hi_us, None, None)
    return found
