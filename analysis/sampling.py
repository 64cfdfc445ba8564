"""Points drawn uniformly from all that the evidence leaves possible: the answer where bounds alone do not decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from analysis.network import Network

CHAINS: Final = 400
SWEEPS: Final = 200
_SEED: Final = 20260616


def drawn(
    network: Network, names: Sequence[str], *, chains: int = CHAINS, sweeps: int = SWEEPS
) -> dict[str, np.ndarray]:
    """Return uniform draws (µs) of instants, one per chain: jointly within all bounds of the closed network.

    Coordinate hit-and-run: each instant in turn anew, uniform between what the others leave it, which leaves the
    uniform distribution on the polytope as it is. Every instant must be bounded on both sides: ValueError otherwise.
    """
    rng = np.random.default_rng(_SEED)
    bounds = {name: network.bounds(name) for name in names}
    if any(lo is None or hi is None for lo, hi in bounds.values()):
        raise ValueError("an instant is not bounded on both sides")
    base = min(lo for lo, _ in bounds.values() if lo is not None)
    count = len(names)
    upper = np.full((count, count), np.inf)
    for i, earlier in enumerate(names):
        for j, later in enumerate(names):
            hi = network.difference(earlier, later)[1]
            if i != j and hi is not None:
                upper[i, j] = hi
    own = np.array([[(lo or 0) - base, (hi or 0) - base] for lo, hi in bounds.values()], dtype=float)
    # All lower bounds at once are a point of the closed polytope; so are all upper bounds.
    mix = rng.random(chains)[:, None]
    points = own[:, 0] * (1 - mix) + own[:, 1] * mix
    for _ in range(sweeps):
        for i in range(count):
            before = np.max(points - upper[i], axis=1)
            after = np.min(points + upper[:, i], axis=1)
            low, high = np.maximum(own[i, 0], before), np.minimum(own[i, 1], after)
            points[:, i] = low + rng.random(chains) * np.maximum(high - low, 0)
    return {name: points[:, i] + base for i, name in enumerate(names)}
