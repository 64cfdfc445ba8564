"""The sentences that terminal and report share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from analysis.analyse import RunAnalysis
from analysis.compare import Comparison
from analysis.counterfactual import ShapleyRange
from analysis.facts import described_units
from analysis.pairs import Pair
from analysis.records import PhaseRow, ScaleOutResult
from traces.units import US_PER_S, format_duration

WHY_A_PAIR: Final = (
    "A single SageMaker run cannot show the image pull: the platform reports neither when the machine came up nor when "
    "the pull ended, so waiting for the machine, pulling the image and downloading the model share one visible window."
)
HOW_A_PAIR: Final = (
    "A second run with the image already cached has no pull, so its window minus its reported download is the wait for "
    "the machine; taking that wait off the first run's window leaves its pull."
)
NOT_THE_LINE: Final = (
    "The published figures rule out the network line as the bottleneck: at the 207.8 MB/s that the download alone "
    "reached, image and model together (33.7 GB) would take 162 s, not 333 s. What the two share must lie elsewhere: "
    "writing to disk, unpacking, or the download software's own limits."
)
EMULATED: Final = "EMULATED: these figures come from an emulated endpoint, not from a cloud"

MARGINAL_UNIT: Final = "the one that completed the needed capacity"
CRITICAL: Final = "what capacity waited for; the phases sum to the total"
PART_WORDS: Final = {
    "emission": "until the first metric period that shows the rise has closed",
    "evaluation": "until the alarm fires",
    "decision": "until the scaler asks for more units",
}
"""What the parts of detection are; the rest of the phases say so by their names."""

BEYOND_DOWNLOAD: Final = "pull beyond the download"
FASTER_ALONE: Final = "download faster alone"
EVERYTHING_ELSE: Final = "everything else"
SPLIT_WORDS: Final = {
    BEYOND_DOWNLOAD: "pull time that the download did not cover",
    FASTER_ALONE: "what the download gains without a pull beside it",
}

_PHASE_WORDS: Final = {
    "detection": "noticing the load",
    "staging": "asking in several steps",
    "provisioning": "getting a machine",
    "provisioning+pull": "getting a machine and its image",
    "pull": "pulling the image",
    "download": "downloading the model",
    "start": "starting the container",
    "registration": "going into service",
    "start+registration": "starting and going into service",
    "unattributed": "unexplained",
}


def headline(found: ScaleOutResult) -> str:
    """Return one plain sentence on where a scale-out's time went."""
    if found.censored:
        return f"Capacity was NOT reached while the run was watched.{_so_far(found)}"
    parts = sorted((p for p in found.phases if p.parent is None and p.critical_us > 0), key=lambda p: -p.critical_us)
    listed = [(p, words_for(p.phase)) for p in parts if p.critical_us >= US_PER_S]
    if found.time_to_capacity_us is not None:
        total, what = found.time_to_capacity_us, "Capacity took"
    else:
        total, what = found.startup_us or 0, "Start-up took"
    if not listed or not total:
        return f"{what} {format_duration(total)}."
    (first, words), rest = listed[0], listed[1:]
    length = "" if len(listed) == 1 else f" ({format_duration(first.critical_us)})"
    text = f"{what} {format_duration(total)}; {first.critical_us / total:.0%} of it was {words}{length}"
    if rest:
        text += f", then {join_words([f'{words} ({format_duration(p.critical_us)})' for p, words in rest])}"
    return f"{text}."


def _so_far(found: ScaleOutResult) -> str:
    """Return a sentence on how far a scale-out that did not end had come, empty where nothing tells."""
    steps = [(a.at_us, a.anchor.replace("_", " ")) for a in found.anchors if a.at_us > found.decision.at_us]
    later = [f"{name} {format_duration(at - found.decision.at_us)} after it" for at, name in sorted(steps)[-1:]]
    parts = [f"last seen: {one}" for one in later]
    if found.onset is not None:
        since = format_duration(max(found.decision.at_us - found.onset.at_us, 0))
        parts = [f"the decision came {since} after the rise of demand", *parts]
    text = "; ".join(parts)
    return f" {text[0].upper()}{text[1:]}." if text else ""


def run_headline(analysis: RunAnalysis) -> str:
    """Return the sentence that sums up a run."""
    if not analysis.scale_outs:
        return f"No scale-out was seen, so there is no time to capacity to attribute. {units_words(analysis)}"
    first = headline(analysis.scale_outs[0])
    more = len(analysis.scale_outs) - 1
    return first if not more else f"{first} {more} more scale-out{'' if more == 1 else 's'} followed."


def units_words(analysis: RunAnalysis) -> str:
    """Return how many units served a run without a scale-out, as far as that was seen."""
    if not analysis.capacity:
        return "How many units the endpoint had was not seen."
    first = analysis.capacity[0].units
    told = f"The endpoint had {first} unit{'' if first == 1 else 's'}"
    if len(analysis.capacity) > 1:
        return f"{told} at the start and {analysis.capacity[-1].units} at the end."
    if described_units(analysis.snapshots, "last") == first:
        return f"{told} from the start and never changed."
    return f"{told} at the start; no change was seen."


def attempts(analysis: RunAnalysis) -> tuple[int, int, int]:
    """Return how many requests were attempted, how many of these succeeded, and how many were never sent."""
    counts = analysis.latency["all"]["outcomes"]
    not_sent = counts.get("not_sent", 0)
    return sum(counts.values()) - not_sent, counts.get("ok", 0), not_sent


def failed_words(analysis: RunAnalysis) -> str | None:
    """Return one sentence on the requests that failed and why; None when none did."""
    attempted, good, _ = attempts(analysis)
    failed = attempted - good
    if not failed:
        return None
    rest = f"latencies are of the {good} that succeeded" if good else "there are no latencies"
    return f"{failed} of {attempted} requests failed ({_causes(analysis.errors, failed)}); {rest}"


def _causes(errors: Sequence[dict[str, Any]], failed: int) -> str:
    counts: dict[str, int] = {}
    for row in errors:
        if row["outcome"] != "not_sent":
            counts[error_words(row)] = counts.get(error_words(row), 0) + row["n"]
    if len(counts) == 1 and failed in counts.values():
        return next(iter(counts))
    shown = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3])
    others = failed - sum(shown.values())
    return ", ".join([f"{name}: {n}" for name, n in shown.items()] + ([f"others: {others}"] if others else []))


def error_words(row: dict[str, Any]) -> str:
    """Return a row of `latency.errors` in words, by names of classes alone.

    >>> row = {"outcome": "http_error", "http_status": 424, "error_kind": "http_424", "error_class": "ModelError"}
    >>> error_words(row), error_words(row | {"http_status": None, "error_kind": "refused", "error_class": None})
    ('HTTP 424 ModelError', 'refused')
    """
    status, kind = row["http_status"], row["error_kind"] or row["outcome"]
    status = None if status == 200 else status
    parts = [f"HTTP {status}" if status else None, None if kind == f"http_{status}" else kind.replace("_", " ")]
    return " ".join(part for part in [*parts, row["error_class"]] if part)


def arm_verdict(runs: Sequence[RunAnalysis]) -> str:
    """Return the worst verdict of an arm's runs; a run that was not judged counts as worse than VALID."""
    order = ("INVALID", "DEGRADED", "unknown", "VALID")
    return min((run.fidelity["verdict"] or "unknown" for run in runs), key=order.index)


def arm_failures(runs: Sequence[RunAnalysis]) -> str:
    """Return how many of an arm's attempted requests failed."""
    counted = [attempts(run) for run in runs]
    total = sum(attempted for attempted, _, _ in counted)
    return f"{total - sum(good for _, good, _ in counted)} of {total}"


def figures(value: float | None) -> str:
    """Return a value with three significant digits, never in powers of ten; unknown is a dash.

    >>> figures(59.301), figures(0.27812), figures(1234.5), figures(0), figures(None)
    ('59.3', '0.278', '1234', '0', '–')
    """
    if value is None:
        return "–"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def window_of(found: ScaleOutResult) -> str | None:
    """Return the joint phase inside which a download lies whose place is not observed."""
    tops = (row for row in found.phases if row.parent is None and row.start_us is not None)
    return next((row.phase for row in tops if "pull" in row.phase.split("+")), None)


def words_for(phase: str) -> str:
    """Return what a phase is about, in plain words.

    >>> words_for("start"), words_for("wait:pull")
    ('starting the container', 'waiting before pull')
    """
    if phase.startswith("wait:"):
        return f"waiting before {phase.removeprefix('wait:')}"
    if phase.count("+") > 1:
        return f"from {phase.partition('+')[0]} to {phase.rpartition('+')[2]}, not told apart"
    return _PHASE_WORDS.get(phase, f"in {phase.replace('+', ' + ')}")


def join_words(parts: list[str]) -> str:
    """Return parts as an enumeration.

    >>> join_words(["a", "b", "c"]), join_words(["a"])
    ('a, b and c', 'a')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def pair_headline(pair: Pair) -> str:
    """Return one plain sentence on what changed between two arms."""
    delta = pair.delta_us
    change = f"{format_duration(abs(delta))} {'shorter' if delta >= 0 else 'longer'}"
    share = f" ({abs(delta) / pair.startup_before_us:.0%})" if pair.startup_before_us else ""
    text = (
        f"Start-up went from {format_duration(pair.startup_before_us)} to {format_duration(pair.startup_after_us)}: "
        f"{change}{share}."
    )
    if pair.split is None:
        return text
    s = pair.split
    return (
        f"{text} Of that: {BEYOND_DOWNLOAD} {format_duration(s.structural)}, "
        f"{FASTER_ALONE} {format_duration(s.relief)}, {EVERYTHING_ELSE} {format_duration(s.rest)}."
    )


def order_words(found: ShapleyRange) -> str:
    """Return how far the split depends on which of the two effects is taken away first."""

    def ends(pair: tuple[float, float]) -> str:
        return f"{pair[0] / US_PER_S:.1f} … {pair[1] / US_PER_S:.1f} s"

    return (
        f"Averaged over the order of the two (Shapley; a pull alone, not observed, may take {ends(found.pull_alone)}): "
        f"{BEYOND_DOWNLOAD} {ends(found.elimination)}, {FASTER_ALONE} {ends(found.relief)}."
    )


def bounds(row: PhaseRow) -> str:
    """Return the bounds on a phase's own length, in seconds.

    >>> bounds(PhaseRow(phase="start", method="event", critical_us=0, critical_lo_us=0, critical_hi_us=0))
    'not observed'
    """
    if row.lo_us is None or row.hi_us is None:
        return "not observed" if row.duration_us is None else ""
    return span_text(row.lo_us, row.hi_us)


def span_text(lo_us: int, hi_us: int) -> str:
    """Return an interval in seconds; equal ends are one value.

    >>> span_text(1_000_000, 2_500_000), span_text(0, 0)
    ('1.0 … 2.5', '0.0')
    """
    low, high = f"{lo_us / US_PER_S:.1f}", f"{hi_us / US_PER_S:.1f}"
    return low if low == high else f"{low} … {high}"


def seconds_text(us: int | None) -> str:
    """Return µs as seconds with one decimal; unknown is a dash.

    >>> seconds_text(1_250_000), seconds_text(None)
    ('1.2', '–')
    """
    return "–" if us is None else f"{us / US_PER_S:.1f}"


def is_reference_case(comparison: Comparison) -> bool:
    """Tell whether a pair shows the published durations (pull 333 s, download 168 s then 77 s), within 5 %."""
    expected = {"pull": 333, "before": 168, "after": 77}
    for pair in comparison.pairs:
        if pair.pull is None or pair.pull.before_us is None or not pair.download_before or not pair.download_after:
            continue
        found = {
            "pull": pair.pull.before_us,
            "before": pair.download_before.at_us,
            "after": pair.download_after.at_us,
        }
        if all(abs(found[k] / US_PER_S - v) <= 0.05 * v for k, v in expected.items()):
            return True
    return False
