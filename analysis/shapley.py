"""Shares of a joint effect among interventions: Shapley values, and how far they depend on the order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import msgspec

_MOST_PLAYERS = 10


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """An intervention's Shapley value, and its least and greatest marginal effect over all orders."""

    value: float
    lo: float
    hi: float


def shapley(players: Sequence[str], gain: Callable[[frozenset[str]], float]) -> dict[str, Share]:
    """Return each player's share of `gain` (of all players, less that of none); exact, for ten players at most.

    φ_i = Σ_S |S|! (n − |S| − 1)! / n! (v(S + i) − v(S)). Values sum to the joint gain; the range over orders is the
    honest bracket of what one intervention does beside others.

    >>> gains = {(): 0, ("E",): 165, ("R",): 77, ("E", "R"): 256}
    >>> found = shapley(["E", "R"], lambda chosen: gains[tuple(sorted(chosen))])
    >>> found["E"].value, found["E"].lo, found["E"].hi, found["R"].value
    (172.0, 165, 179, 84.0)
    """
    count = len(players)
    if count > _MOST_PLAYERS:
        raise ValueError(f"{count} interventions have too many orders: {_MOST_PLAYERS} at most")
    values = {
        frozenset(chosen): gain(frozenset(chosen))
        for size in range(count + 1)
        for chosen in combinations(players, size)
    }
    result = {}
    for player in players:
        marginals = [
            (len(chosen), values[chosen | {player}] - value) for chosen, value in values.items() if player not in chosen
        ]
        value = sum(m * math.factorial(k) * math.factorial(count - k - 1) for k, m in marginals) / math.factorial(count)
        only = [m for _, m in marginals]
        result[player] = Share(value=value, lo=min(only), hi=max(only))
    return result
