"""A comparison as the JSON that `ramptrace compare --json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.compare import Comparison
from analysis.controlled import controlled_entry
from analysis.effects import wilson
from analysis.entry import SCHEMA, run_entry, seconds
from analysis.pairs import Pair
from analysis.verdicts import statistic_entry


def pair_entry(pair: Pair, assumptions: Sequence[str]) -> dict[str, Any]:
    """Return the JSON object of one pair; `lo_s` and `hi_s` bound the pull before."""
    pull, split, range_ = pair.pull, pair.split, pair.sensitivity
    return {
        "before": pair.before,
        "after": pair.after,
        "startup": {"before_s": seconds(pair.startup_before_us), "after_s": seconds(pair.startup_after_us)},
        "time_to_capacity": {"before_s": seconds(pair.capacity_before_us), "after_s": seconds(pair.capacity_after_us)},
        "delta_s": seconds(pair.delta_us),
        "structural_s": None if split is None else seconds(split.structural),
        "relief_s": None if split is None else seconds(split.relief),
        "rest_s": None if split is None else seconds(split.rest),
        "provisioning_s": seconds(pair.provisioning_us),
        "pull": {
            "before_s": None if pull is None else seconds(pull.before_us),
            "after_s": None if pull is None else seconds(pull.after_us),
            "lo_s": None if pull is None else seconds(pull.before_lo_us),
            "hi_s": None if pull is None else seconds(pull.before_hi_us),
            "after_lo_s": None if pull is None else seconds(pull.after_lo_us),
            "after_hi_s": None if pull is None else seconds(pull.after_hi_us),
            "method": "derived",
        },
        "download": {
            "before_s": None if pair.download_before is None else seconds(pair.download_before.at_us),
            "after_s": None if pair.download_after is None else seconds(pair.download_after.at_us),
        },
        "assumptions": list(assumptions),
        "sensitivity": {}
        if range_ is None
        else {
            "pull_alone_s": [v / 1e6 for v in range_.pull_alone],
            "elimination_s": [v / 1e6 for v in range_.elimination],
            "relief_s": [v / 1e6 for v in range_.relief],
        },
        "shared_resource": None
        if pair.shared is None
        else {
            "weight": pair.shared.weight,
            "pull_alone_s": pair.shared.pull_alone / 1e6,
            "contention_s": pair.shared.contention / 1e6,
            "assumes": "one work-conserving resource; three lengths, three parameters: nothing is left to test it",
        },
        "image_cache": cache_entry(pair),
        "explained": [
            {
                "phase": change.phase,
                "before_s": seconds(change.before_us),
                "after_s": seconds(change.after_us),
                "saved_s": seconds(change.saved_us),
            }
            for change in pair.explained
        ],
        "statistics": {name: statistic_entry(found) for name, found in pair.statistics.items()},
        "notes": list(pair.notes),
    }


def cache_entry(pair: Pair) -> dict[str, Any]:
    """Return how probable it is that the units after had their image cached, and the share that did."""
    hits = sum(1 for o in pair.odds if o.probability >= 0.5)
    return {
        "hit_rate": sum(o.probability for o in pair.odds) / len(pair.odds) if pair.odds else None,
        "hit_rate_ci": wilson(hits, len(pair.odds)) if pair.odds else None,
        "units": [{"unit": o.unit_id, "probability": o.probability} for o in pair.odds],
    }


def comparison_entry(comparison: Comparison, report: str | None = None) -> dict[str, Any]:
    """Return the JSON object that `ramptrace compare --json` prints; with more than two arms, `others` has the rest."""
    pairs = [pair_entry(pair, comparison.assumptions) for pair in comparison.pairs]
    return {
        "schema": SCHEMA,
        "runs": [run_entry(run) for run in comparison.runs],
        "compare": pairs[0],
        "others": pairs[1:],
        "confounders": list(comparison.confounders),
        "controls": [run_entry(run) for run in comparison.controls],
        "controlled": [controlled_entry(found) for found in comparison.controlled],
        "report": report,
    }
