"""One colour per phase, the same in the terminal and in the report (Okabe and Ito's set, safe for colour blindness)."""

from __future__ import annotations

from typing import Final

COLOURS: Final = {
    "detection": "#E69F00",
    "staging": "#999999",
    "provisioning": "#8A7FBD",
    "provisioning+pull": "#0072B2",
    "pull": "#0072B2",
    "download": "#56B4E9",
    "start": "#009E73",
    "registration": "#CC79A7",
    "unattributed": "#B0B0B0",
}
"""Phases; a joint phase takes the colour of its longest known name in here, a wait is grey."""

DEMAND: Final = "#E69F00"
CAPACITY: Final = "#009E73"
DEFICIT: Final = "#D55E00"
FROM_DUE: Final = "#E69F00"
FROM_SENT: Final = "#0072B2"
SPLIT: Final = {"structural": "#0072B2", "relief": "#56B4E9", "rest": "#999999"}
_OTHER: Final = "#999999"


def colour(phase: str) -> str:
    """Return the colour of a phase, joint phase or wait.

    >>> colour("provisioning+pull+start") == colour("provisioning+pull"), colour("wait:pull")
    (True, '#999999')
    """
    if phase in COLOURS:
        return COLOURS[phase]
    known = [name for name in COLOURS if phase.startswith(f"{name}+")]
    return COLOURS[max(known, key=len)] if known else _OTHER
