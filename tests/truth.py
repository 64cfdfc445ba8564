"""What the emulator says really happened, beside what an analysis found."""

from __future__ import annotations

Instants = dict[tuple[str | None, str], int]
"""(unit or None, anchor) → endpoint µs."""

EDGES = {
    "detection": ("onset", "decision"),
    "provisioning": ("decision", "launched"),
    "provisioning+pull": ("decision", "pull_finished"),
    "pull": ("pull_started", "pull_finished"),
    "download": ("download_started", "download_finished"),
    "start": ("container_started", "ready"),
    "weights": ("load_started", "load_finished"),
    "warm_up": ("load_finished", "ready"),
    "registration": ("ready", "in_service"),
    "start+registration": ("container_started", "in_service"),
    "provisioning+pull+start+registration": ("decision", "in_service"),
    "decision": ("alarm", "decision"),
}
"""Where a phase begins and ends."""


def true_length(truth: Instants, phase: str, unit: str | None) -> int | None:
    """Return how long a phase of a unit (µs) really took, None where the truth holds no such pair of instants."""
    at = [truth.get((unit, anchor), truth.get((None, anchor))) for anchor in EDGES.get(phase, ())]
    return None if not at or None in at else at[1] - at[0]
