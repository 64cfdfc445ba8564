"""The sentences that terminal and report share."""

from __future__ import annotations

from typing import Final

from analysis.analyse import RunAnalysis
from analysis.compare import Comparison, Pair
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
        return "Capacity was NOT reached while the run was watched."
    parts = sorted((p for p in found.phases if p.parent is None and p.critical_us > 0), key=lambda p: -p.critical_us)
    listed = [f"{format_duration(p.critical_us)} {words_for(p.phase)}" for p in parts if p.critical_us >= US_PER_S]
    if found.time_to_capacity_us is not None:
        total, what = found.time_to_capacity_us, "Capacity took"
    else:
        total, what = found.startup_us or 0, "Start-up took"
    if not listed:
        return f"{what} {format_duration(total)}."
    return f"{what} {format_duration(total)}: {join_words(listed)}."


def run_headline(analysis: RunAnalysis) -> str:
    """Return the sentence that sums up a run."""
    if not analysis.scale_outs:
        return "No scale-out was seen in this run, so there is no time to capacity to attribute."
    first = headline(analysis.scale_outs[0])
    more = len(analysis.scale_outs) - 1
    return first if not more else f"{first} {more} more scale-out(s) followed."


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
        f"{text} Of that, {format_duration(s.structural)} are waiting for the pull beyond the download, "
        f"{format_duration(s.relief)} a download that runs faster alone, {format_duration(s.rest)} the rest."
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
