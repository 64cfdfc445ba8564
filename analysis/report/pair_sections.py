"""The comparison's part of the report, as markup."""

from __future__ import annotations

from typing import Any, Final

from analysis.compare import Comparison
from analysis.pairs import Pair
from analysis.report import pair_charts, palette
from analysis.report.consequences import statistics_lines
from analysis.report.control_words import COLUMNS, headline_of, rows_of
from analysis.report.ecdf import COLOURS, ecdf_chart, ecdf_note
from analysis.report.markup import Markup, element, table
from analysis.report.parts import Charts, figure
from analysis.report.words import (
    HOW_A_PAIR,
    NOT_THE_LINE,
    SPLIT_WORDS,
    WHY_A_PAIR,
    arm_failures,
    arm_verdict,
    is_reference_case,
    order_words,
    seconds_text,
    span_text,
)

_LANES_KEYS: Final = tuple(
    (palette.colour(phase), words)
    for phase, words in {
        "provisioning": "provisioning",
        "pull": "pull",
        "download": "download",
        "start": "start and registration",
    }.items()
)
_LANES_NOTE: Final = element("p", "The container starts when image and model are both there.", class_="soft")


def comparison_section(comparison: Comparison, charts: Charts) -> Markup:
    """Return before and after, what the change is made of, and what that rests on."""
    parts: list[Any] = [element("h2", "What changed, and why")]
    for number, pair in enumerate(comparison.pairs, 1):
        parts += _pair(pair, charts, f"pair{number}")
    for found in comparison.controlled:
        parts.append(element("h3", f"Against the controls: {found.before} → {found.after}"))
        parts += [element("p", headline_of(found)), table(COLUMNS, rows_of(found), numeric=(1, 2, 3, 4))]
        parts.append(element("ul", *(element("li", note) for note in found.notes)))
    if any(pair.pull is not None for pair in comparison.pairs):
        parts.append(element("div", element("p", WHY_A_PAIR, " ", HOW_A_PAIR), class_="card"))
        parts += [element("h3", "Assumed"), element("ul", *(element("li", a) for a in comparison.assumptions))]
    if is_reference_case(comparison):
        parts.append(element("p", NOT_THE_LINE))
    if comparison.confounders:
        parts.append(element("h3", "Other differences between the runs"))
        parts.append(element("ul", *(element("li", c, class_="warning") for c in comparison.confounders)))
    return element("section", *parts)


def _pair(pair: Pair, charts: Charts, place: str) -> list[Any]:
    rows: list[tuple[Any, ...]] = [
        ("replay fidelity", arm_verdict(pair.runs_before), arm_verdict(pair.runs_after), "how the schedule was held"),
        ("failed requests", arm_failures(pair.runs_before), arm_failures(pair.runs_after), "of those attempted"),
        ("time to capacity, s", seconds_text(pair.capacity_before_us), seconds_text(pair.capacity_after_us), ""),
        (
            "start-up (decision → in service), s",
            seconds_text(pair.startup_before_us),
            seconds_text(pair.startup_after_us),
            "",
        ),
    ]
    if pair.provisioning_us is not None:
        rows.append(
            (
                "provisioning, s",
                seconds_text(pair.provisioning_us),
                seconds_text(pair.provisioning_us),
                "from the pair; assumed equal",
            )
        )
    if pair.pull is not None:
        p = pair.pull
        bounded = [span_text(p.before_lo_us, p.before_hi_us), span_text(p.after_lo_us, p.after_hi_us)]
        rows.append(("image pull, s", seconds_text(p.before_us), seconds_text(p.after_us), "from the pair"))
        rows.append(("· its bounds, s", *bounded, "over all units of the pair"))
    if pair.download_before is not None and pair.download_after is not None:
        rows.append(
            (
                "model download, s",
                seconds_text(pair.download_before.at_us),
                seconds_text(pair.download_after.at_us),
                "reported by the platform",
            )
        )
    found: list[Any] = [table(("", pair.before, pair.after, "known how"), rows, numeric=(1, 2))]
    found += [element("p", told, class_="soft") for told in (*statistics_lines(pair), *pair.notes)]
    title = "The two start-ups, as the pair tells them apart"
    found += figure(title, pair_charts.lanes(pair), charts, f"{place}-lanes", _LANES_NOTE, keys=_LANES_KEYS)
    note = element("p", "; ".join(f"{name}: {words}" for name, words in SPLIT_WORDS.items()) + ".", class_="soft")
    found += figure("From before to after", pair_charts.decomposition(pair), charts, f"{place}-steps", note)
    keys = tuple(zip(COLOURS, (pair.before, pair.after), strict=True))
    note = element("p", ecdf_note(pair), class_="soft")
    found += figure("How start-ups are distributed", ecdf_chart(pair), charts, f"{place}-ecdf", note, keys=keys)
    if pair.sensitivity is not None:
        found.append(element("p", order_words(pair.sensitivity), class_="soft"))
    return found
