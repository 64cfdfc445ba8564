"""How lengths of two arms are distributed: the share of scale-outs that had capacity by then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import altair as alt

from analysis.analyse import RunAnalysis
from analysis.pairs import Pair
from analysis.report import palette
from analysis.report.vega import Spec, data, specification, x_axis
from traces.units import US_PER_S

_FEW: Final = 4
COLOURS: Final = (palette.FROM_DUE, palette.FROM_SENT)


def reached(times_s: Sequence[float], censored_s: Sequence[float]) -> list[tuple[float, float]]:
    """Return (t, share reached by t) as steps: one minus Kaplan and Meier's estimate (1958).

    Without censoring that is the empirical distribution function.

    `censored_s` are lengths after which a scale-out was no longer watched and had not reached capacity.

    >>> reached([200, 260, 300], [600, 600])
    [(200, 0.2), (260, 0.4), (300, 0.6)]
    >>> reached([1, 3], [2])
    [(1, 0.333), (3, 1.0)]
    """
    left, found = 1.0, []
    for t in sorted(set(times_s)):
        at_risk = sum(x >= t for x in [*times_s, *censored_s])
        left *= 1 - sum(x == t for x in times_s) / at_risk
        found.append((t, round(1 - left, 3)))
    return found


def ecdf_chart(pair: Pair) -> Spec | None:
    """Return both arms' start-ups as step functions; None without any."""
    rows: list[dict[str, Any]] = []
    dots: list[dict[str, Any]] = []
    arms = ((pair.before, pair.runs_before), (pair.after, pair.runs_after))
    both = [_startups(runs) for _, runs in arms]
    longest = max((x for times, censored in both for x in [*times, *censored]), default=0.0)
    for (name, _), (times, censored), colour in zip(arms, both, COLOURS, strict=True):
        if not times:
            continue
        steps = reached(times, censored)
        rows += [{"arm": name, "t": t, "share": s, "colour": colour} for t, s in [(0.0, 0.0), *steps]]
        rows.append({"arm": name, "t": longest * 1.05, "share": steps[-1][1], "colour": colour})
        dots += [{"arm": name, "t": t, "share": s, "colour": colour} for t, s in steps]
    if not rows:
        return None
    time = "start-up (decision → in service), s"
    y = alt.Y("share:Q", title="share", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", tickCount=3))
    encoded = {"x": x_axis("t", time), "y": y, "color": alt.Color("colour:N", scale=None)}
    line = alt.Chart(data(rows)).mark_line(interpolate="step-after", strokeWidth=2.2)
    point = alt.Chart(data(dots)).mark_circle(size=55, opacity=1)
    layers = [line.encode(**encoded, detail="arm:N"), point.encode(**encoded, tooltip=["arm:N", "t:Q", "share:Q"])]
    return specification(alt.layer(*layers), height=150)


def ecdf_note(pair: Pair) -> str:
    """Return how many scale-outs each arm has, and what that allows to say."""
    counts = [_startups(runs) for runs in (pair.runs_before, pair.runs_after)]
    told = [f"{len(times)} reached" + (f", {len(cut)} not" if cut else "") for times, cut in counts]
    text = f"Scale-outs: {pair.before}: {told[0]}; {pair.after}: {told[1]}."
    if min(len(times) for times, _ in counts) < _FEW:
        text += f" Under {_FEW} per arm no test can tell such a difference from chance: repeat the runs."
    return text


def _startups(runs: Sequence[RunAnalysis]) -> tuple[list[float], list[float]]:
    """Return the start-ups of an arm (s), and how long those that never ended were watched."""
    times, censored = [], []
    for run in runs:
        for found in run.scale_outs:
            if found.startup_us is not None:
                times.append(found.startup_us / US_PER_S)
            elif run.seen_until_us is not None:
                watched = run.seen_until_us - found.decision.at_us
                censored.append(max(watched, 0) / US_PER_S)
    return times, censored
