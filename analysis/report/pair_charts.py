"""The charts of a comparison as Vega-Lite specifications. Times are seconds of endpoint time."""

from __future__ import annotations

from typing import Any

import altair as alt

from analysis.pairs import Pair
from analysis.report import palette
from analysis.report.vega import GREY, Spec, data, specification, x_axis
from analysis.report.words import BEYOND_DOWNLOAD, EVERYTHING_ELSE, FASTER_ALONE
from traces.units import US_PER_S


def lanes(pair: Pair) -> Spec | None:
    """Return both arms' start-ups as the pair identifies them: machine, image and model on a lane each."""
    pull = pair.pull
    if pull is None or pull.before_us is None or pull.after_us is None or pair.provisioning_us is None:
        return None
    sides = (
        (pair.before, pull.before_us, pair.download_before, pair.startup_before_us),
        (pair.after, pull.after_us, pair.download_after, pair.startup_after_us),
    )
    rows: list[dict[str, Any]] = []
    order, up = [], pair.provisioning_us
    for arm, pulled, download, startup in sides:
        assert download is not None
        machine, image, model = (f"{arm} · {what}" for what in ("unit", "image", "model"))
        order += [machine, image, model]
        rows.append(_bar(machine, 0, up, "provisioning"))
        rows.append(_bar(machine, up + max(pulled, download.at_us), startup, "start"))
        rows.append(_bar(image, up, up + pulled, "pull"))
        rows.append(_bar(model, up, up + download.at_us, "download"))
    y = alt.Y("lane:N", sort=order, title=None, axis=alt.Axis(labelLimit=260))
    bars = (
        alt.Chart(data([row for row in rows if row["length"] > 0]))
        .mark_bar(height=16, cornerRadius=2)
        .encode(
            x=x_axis("from", "time, s from the decision to scale"),
            x2="to:Q",
            y=y,
            color=alt.Color("colour:N", scale=None),
            tooltip=["lane:N", "phase:N", "length:Q"],
        )
    )
    layers: list[Any] = [bars]
    empty = [row | {"note": "no pull"} for row in rows if row["phase"] == "pull" and not row["length"]]
    if empty:
        note = alt.Chart(data(empty)).mark_text(align="left", dx=3, fontSize=11)
        layers.append(note.encode(x=x_axis("from", "time, s from the decision to scale"), y=y, text="note:N"))
    return specification(alt.layer(*layers), height=24 * len(order))


def _bar(lane: str, start_us: int, end_us: int, phase: str) -> dict[str, Any]:
    return {
        "lane": lane,
        "from": start_us / US_PER_S,
        "to": end_us / US_PER_S,
        "length": (end_us - start_us) / US_PER_S,
        "phase": phase,
        "colour": palette.colour(phase),
    }


def decomposition(pair: Pair) -> Spec | None:
    """Return the change of the start-up as steps from before to after."""
    if pair.split is None:
        return None
    level = pair.startup_before_us
    rows = [
        {
            "step": f"before: {pair.before}",
            "from": 0.0,
            "to": level / US_PER_S,
            "colour": GREY,
            "label": f"{level / US_PER_S:.1f} s",
        }
    ]
    named = (
        (BEYOND_DOWNLOAD, "structural", pair.split.structural),
        (FASTER_ALONE, "relief", pair.split.relief),
        (EVERYTHING_ELSE, "rest", pair.split.rest),
    )
    for words, key, us in named:
        rows.append(
            {
                "step": words,
                "from": (level - us) / US_PER_S,
                "to": level / US_PER_S,
                "colour": palette.SPLIT[key],
                "label": f"−{us / US_PER_S:.1f} s" if us >= 0 else f"+{-us / US_PER_S:.1f} s",
            }
        )
        level -= us
    rows.append(
        {
            "step": f"after: {pair.after}",
            "from": 0.0,
            "to": level / US_PER_S,
            "colour": GREY,
            "label": f"{level / US_PER_S:.1f} s",
        }
    )
    for row in rows:
        row["right"] = max(float(str(row["from"])), float(str(row["to"])))
    y = alt.Y("step:N", sort=[str(r["step"]) for r in rows], title=None, axis=alt.Axis(labelLimit=260))
    bars = (
        alt.Chart(data(rows))
        .mark_bar(height=18, cornerRadius=2)
        .encode(
            x=x_axis("from", "start-up, s"),
            x2="to:Q",
            y=y,
            color=alt.Color("colour:N", scale=None),
            tooltip=["step:N", "label:N"],
        )
    )
    text = (
        alt.Chart(data(rows))
        .mark_text(align="left", dx=5, fontSize=12)
        .encode(x=x_axis("right", "start-up, s"), y=y, text="label:N")
    )
    return specification(alt.layer(bars, text), height=30 * len(rows))
