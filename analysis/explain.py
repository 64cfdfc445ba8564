"""The difference between two scale-outs, phase by phase; it sums to the difference exactly."""

from __future__ import annotations

import msgspec

from analysis.records import ScaleOutResult


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One phase's time on the critical path before and after (µs); a phase that one of them does not have took none."""

    phase: str
    before_us: int
    after_us: int

    @property
    def saved_us(self) -> int:
        """By how much it became shorter."""
        return self.before_us - self.after_us


def explained(before: ScaleOutResult, after: ScaleOutResult) -> tuple[Change, ...]:
    """Return the phases of two scale-outs side by side, in order of time.

    `saved_us` sums to the change of time to capacity; where one of the two has no onset, so that only its start-up is
    known, to that of the start-up.
    """
    left, right = _shares(before), _shares(after)
    if (before.onset is None) != (after.onset is None):
        for shares in (left, right):
            for name in ("detection", "staging"):
                shares.pop(name, None)
    return tuple(
        Change(phase=name, before_us=left.get(name, 0), after_us=right.get(name, 0))
        for name in dict.fromkeys([*left, *right])
    )


def _shares(found: ScaleOutResult) -> dict[str, int]:
    return {row.phase: row.critical_us for row in found.phases if row.parent is None}
