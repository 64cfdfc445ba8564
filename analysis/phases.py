"""A unit's timeline → the phases of its scale-out. Which anchors are dated decides what can be told apart."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from analysis.critical_path import UNATTRIBUTED, Span, drag, ledger, walk
from analysis.phase_parts import detection_parts, headline_of, inside_start, method_of, must, start_parts
from analysis.reconcile import FIRST_DECISION, Timeline
from analysis.records import Length, PhaseRow
from analysis.sampling import drawn


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """The phases of one scale-out along one unit; top-level `critical_us` sum exactly to `total_us`."""

    phases: tuple[PhaseRow, ...]
    total_us: int
    unattributed_us: int
    overlap_us: dict[str, int]
    drag_us: dict[str, int]
    slack_us: dict[str, int]


class _Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A span between two anchors; `joint` when it holds phases that cannot be told apart."""

    name: str
    opens: str
    closes: str
    after: tuple[str, ...] = ()
    joint: bool = False


def attribute(timeline: Timeline) -> Attribution | None:
    """Return the phases from onset (from decision, when no onset is known) to in service; None when that is unknown."""
    pieces = _pieces(timeline)
    end = timeline.at("in_service")
    begin = timeline.at("onset")
    begin = timeline.at(FIRST_DECISION) if begin is None else begin
    if end is None or begin is None or not pieces:
        return None
    spans = [
        Span(name=p.name, start=must(timeline, p.opens), end=must(timeline, p.closes), after=p.after) for p in pieces
    ]
    path = walk(spans, begin, end)
    amounts = path.amounts()
    uncertain = _uncertain_parallel(timeline, pieces)
    rows: list[PhaseRow] = []
    for piece in pieces:
        row = _row(timeline, piece, amounts, piece.name in uncertain)
        rows.append(msgspec.structs.replace(row, on_path=uncertain.get(piece.name)))
        if "pull" in piece.name.split("+"):
            rows += _hidden_download(timeline, pieces)
    extra = {name: us for name, us in amounts.items() if name not in {p.name for p in pieces}}
    for name, amount in extra.items():
        rows.append(_plain_row(timeline, name, amount, path.parts, pieces))
    if UNATTRIBUTED not in extra:
        rows.append(_plain_row(timeline, UNATTRIBUTED, 0, (), pieces))
    started = next((p.name for p in pieces if p.opens == "container_started"), None)
    rows += detection_parts(timeline) + start_parts(timeline, started)
    # With a download hidden inside a joint phase neither overlap nor drag is known.
    told = not any(p.joint and "pull" in p.name.split("+") for p in pieces)
    cells = ledger(spans, begin, end) if told else {}
    return Attribution(
        phases=tuple(rows),
        total_us=end - begin,
        unattributed_us=amounts.get(UNATTRIBUTED, 0),
        overlap_us={" & ".join(sorted(active)) or "idle": us for active, us in cells.items()},
        drag_us=drag(spans) if told else {},
        slack_us=path.slack if told else {},
    )


def _pieces(timeline: Timeline) -> list[_Piece]:
    """Return the spans that dated anchors allow, each after those it waited for."""
    has = timeline.anchors.__contains__
    pieces = []
    if has("onset"):
        pieces.append(_Piece(name="detection", opens="onset", closes=FIRST_DECISION))
    last: tuple[str, ...] = ("detection",) if pieces else ()
    if timeline.at(FIRST_DECISION) != timeline.at("decision"):
        pieces.append(_Piece(name="staging", opens=FIRST_DECISION, closes="decision", after=last))
        last = ("staging",)
    before_start, last = _until_container(timeline, last)
    pieces += before_start
    if has("container_started"):
        if has("ready"):
            pieces.append(_Piece(name="start", opens="container_started", closes="ready", after=last))
            pieces.append(_Piece(name="registration", opens="ready", closes="in_service", after=("start",)))
        else:
            name = "start+registration"
            pieces.append(_Piece(name=name, opens="container_started", closes="in_service", after=last, joint=True))
    elif has("ready"):
        pieces.append(_Piece(name="registration", opens="ready", closes="in_service", after=last))
    return pieces


def _until_container(timeline: Timeline, last: tuple[str, ...]) -> tuple[list[_Piece], tuple[str, ...]]:
    """Return the spans from decision to container start: split where pull or launch are dated, else joint."""
    has = timeline.anchors.__contains__
    split_pull = has("pull_started") and has("pull_finished") and has("container_started")
    split_download = has("download_started") and has("download_finished") and has("container_started")
    split_download = split_download and not inside_start(timeline)
    if split_pull:
        opens = "launched" if has("launched") else "pull_started"
        pieces = [_Piece(name="provisioning", opens="decision", closes=opens, after=last)]
        first = split_download and must(timeline, "download_finished") <= must(timeline, "pull_started")
        after = ("download",) if first else ("provisioning",)
        pieces.append(_Piece(name="pull", opens="pull_started", closes="pull_finished", after=after))
        if split_download:
            after = ("provisioning",)
            if must(timeline, "download_started") >= must(timeline, "pull_finished"):
                after = ("pull",)
            pieces.append(_Piece(name="download", opens="download_started", closes="download_finished", after=after))
            return pieces, ("pull", "download")
        return pieces, ("pull",)
    leaves, opens, pieces = ["provisioning", "pull"], "decision", []
    if has("launched"):
        pieces.append(_Piece(name="provisioning", opens="decision", closes="launched", after=last))
        leaves, opens, last = ["pull"], "launched", ("provisioning",)
    closes = "container_started"
    if not has("container_started"):
        if _download(timeline) is None:
            leaves.append("download")
        leaves.append("start")
        closes = "ready" if has("ready") else "in_service"
        if closes == "in_service":
            leaves.append("registration")
    name = "+".join(leaves)
    pieces.append(_Piece(name=name, opens=opens, closes=closes, after=last, joint=True))
    return pieces, (name,)


def _row(timeline: Timeline, piece: _Piece, amounts: dict[str, int], uncertain: bool) -> PhaseRow:
    length = timeline.length(piece.opens, piece.closes)
    assert length is not None
    critical = amounts.get(piece.name, 0)
    critical_lo, critical_hi = min(length.lo_us, critical), max(length.hi_us, critical)
    if uncertain:
        critical_lo = 0
    if not critical and not uncertain:
        critical_hi = 0
    duration, lo, hi = length.at_us, length.lo_us, length.hi_us
    if "pull" in piece.name.split("+") and piece.joint:
        # The download ran inside this window; for up to its whole length it alone may have been waited for.
        hidden = _download(timeline)
        inside = min(hidden.hi_us if hidden is not None else length.hi_us, length.hi_us)
        inside = 0 if inside_start(timeline) else inside
        if "download" not in piece.name.split("+"):
            critical_lo = lo = max(length.lo_us - inside, 0)
    return PhaseRow(
        phase=piece.name,
        headline=headline_of(piece.name),
        unit_id=None if piece.name in {"detection", "staging"} else timeline.unit_id,
        start_us=must(timeline, piece.opens),
        end_us=must(timeline, piece.closes),
        critical_us=critical,
        critical_lo_us=critical_lo,
        critical_hi_us=critical_hi,
        duration_us=duration,
        lo_us=lo,
        hi_us=hi,
        method="derived" if piece.joint else method_of(timeline, piece.opens, piece.closes),
    )


def _hidden_download(timeline: Timeline, pieces: Sequence[_Piece]) -> list[PhaseRow]:
    """Return the row of a download whose length is reported (or unknown) but whose place is not observed."""
    names = {piece.name for piece in pieces}
    window = next(p for p in pieces if "pull" in p.name.split("+"))
    found = _download(timeline)
    if inside_start(timeline):
        return []
    if "download" in names or "download" in window.name.split("+") or (found is None and not window.joint):
        return []
    widest = timeline.length(window.opens, window.closes)
    assert widest is not None
    return [
        PhaseRow(
            phase="download",
            headline="load",
            unit_id=timeline.unit_id,
            critical_us=0,
            critical_lo_us=0,
            critical_hi_us=widest.hi_us if found is None else min(found.hi_us, widest.hi_us),
            duration_us=None if found is None else found.at_us,
            lo_us=0 if found is None else found.lo_us,
            hi_us=widest.hi_us if found is None else found.hi_us,
            method="derived" if found is None else "reported",
        )
    ]


def _download(timeline: Timeline) -> Length | None:
    """Return the download's length: reported, or between its own dated anchors."""
    return timeline.lengths.get("download_finished") or timeline.length("download_started", "download_finished")


def _uncertain_parallel(timeline: Timeline, pieces: Sequence[_Piece]) -> dict[str, float | None]:
    """Return pull and download, when their bounds do not tell which of them ended last, with each one's probability.

    Of all instants that the evidence allows, alike, the share in which it was the later one.
    """
    names = {piece.name for piece in pieces}
    if not {"pull", "download"} <= names:
        return {}
    lo, hi = timeline.network.difference("download_finished", "pull_finished")
    sure = (lo is not None and lo > 0) or (hi is not None and hi < 0)
    if sure:
        return {}
    try:
        points = drawn(timeline.network, _PARALLEL)
    except ValueError:
        return {"pull": None, "download": None}
    share = float((points["pull_finished"] > points["download_finished"]).mean())
    return {"pull": share, "download": 1 - share}


_PARALLEL = ("launched", "pull_started", "pull_finished", "download_started", "download_finished", "container_started")


def _plain_row(
    timeline: Timeline, name: str, amount: int, parts: Sequence[tuple[str, int, int]], pieces: Sequence[_Piece]
) -> PhaseRow:
    places = [(start, end) for part, start, end in parts if part == name]
    lo, hi = (0, amount) if name == UNATTRIBUTED else _wait_bounds(timeline, name, amount, pieces)
    return PhaseRow(
        phase=name,
        headline=headline_of(name.removeprefix("wait:")),
        unit_id=timeline.unit_id,
        start_us=min((start for start, _ in places), default=None),
        end_us=max((end for _, end in places), default=None),
        critical_us=amount,
        critical_lo_us=lo,
        critical_hi_us=hi,
        duration_us=amount,
        method="derived",
    )


def _wait_bounds(timeline: Timeline, name: str, amount: int, pieces: Sequence[_Piece]) -> tuple[int, int]:
    """Return the hard bounds of a wait: from the last of a span's predecessors to its start.

    start − max(ends) is the least of start − end over the predecessors, and so are its bounds.
    """
    by_name = {piece.name: piece for piece in pieces}
    waiting = by_name.get(name.removeprefix("wait:"))
    ends = [by_name[other].closes for other in waiting.after if other in by_name] if waiting is not None else []
    if waiting is None or not ends:
        return 0, amount
    known = [timeline.network.difference(end, waiting.opens) for end in ends]
    lows = [lo if lo is not None else 0 for lo, _ in known]
    highs = [hi for _, hi in known if hi is not None]
    return max(min(*lows, amount), 0), max(min(highs), amount) if highs else amount
