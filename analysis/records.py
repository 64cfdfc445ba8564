"""The records that pass between the steps of an analysis. Instants and lengths are integer µs in endpoint time."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Severity = Literal["info", "warning", "error"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the data that a reader has to know. `code` is stable, `text` is for people."""

    code: str
    severity: Severity
    text: str


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One observation in endpoint time (see `traces.schema.Observation`); `detail` is its JSON, decoded."""

    platform: str
    resource: str
    source: str
    native_id: str
    method: str
    clock: str
    anchor: str | None = None
    scaling_id: str | None = None
    unit_id: str | None = None
    lo_us: int | None = None
    hi_us: int | None = None
    duration_us: int | None = None
    resolution_us: int | None = None
    detail: dict[str, Any] = msgspec.field(default_factory=dict)

    def sort_key(self) -> tuple[int, str, str, str]:
        """A total order that does not depend on how rows came in."""
        at = self.hi_us if self.hi_us is not None else (self.lo_us or 0)
        return (at, self.source, self.native_id, self.anchor or "")


class Onset(msgspec.Struct, frozen=True, kw_only=True):
    """When demand rose: the most likely instant and its interval, and the rates before and after (requests/s).

    `same-burst`: demand did not rise again since the onset of the scale-out before, which this one continues.
    """

    lo_us: int
    at_us: int
    hi_us: int
    rate_before: float
    rate_after: float
    evident_after_us: int | None = None
    how: Literal["change-point", "load-start", "same-burst"]


class AnchorValue(msgspec.Struct, frozen=True, kw_only=True):
    """A reconciled anchor: hard bounds (null: unbounded), the best single value, and where it comes from."""

    anchor: str
    unit_id: str | None
    lo_us: int | None
    at_us: int
    hi_us: int | None
    method: str
    sources: tuple[str, ...]


class Length(msgspec.Struct, frozen=True, kw_only=True):
    """A length with hard bounds."""

    lo_us: int
    at_us: int
    hi_us: int


class PhaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of a scale-out, as in `traces.schema.Phase`."""

    phase: str
    method: str
    critical_us: int
    critical_lo_us: int
    critical_hi_us: int
    parent: str | None = None
    headline: str | None = None
    unit_id: str | None = None
    start_us: int | None = None
    end_us: int | None = None
    duration_us: int | None = None
    lo_us: int | None = None
    hi_us: int | None = None
    on_path: float | None = None
    """Probability that this phase, and not the one beside it, was waited for; None where the bounds decide."""


class UnitTimes(msgspec.Struct, frozen=True, kw_only=True):
    """One new unit: the joint window, its download, its start-up, and its own critical path.

    `critical_us` are the shares of `total_us` (onset, or else decision, to in service), which they sum to exactly.
    """

    unit_id: str | None
    window: Length | None
    download: Length | None
    startup: Length | None
    pull: Length | None = None
    total_us: int | None = None
    critical_us: dict[str, int] = msgspec.field(default_factory=dict)


class ScaleOutResult(msgspec.Struct, frozen=True, kw_only=True):
    """One scale-out, attributed."""

    index: int
    scaling_id: str | None
    units_before: int | None
    units_desired: int | None
    units_needed: int | None
    marginal_unit: str | None
    onset: Onset | None
    decision: AnchorValue
    in_service: AnchorValue | None
    time_to_capacity_us: int | None
    startup_us: int | None
    unattributed_us: int | None
    censored: bool
    phases: tuple[PhaseRow, ...]
    anchors: tuple[AnchorValue, ...]
    units: tuple[UnitTimes, ...]
    overlap_us: dict[str, int]
    drag_us: dict[str, int]
    slack_us: dict[str, int]
    burst: int
    units_wanted: int | None
    demand_requests_per_s: float | None
    reached: dict[str, Length | None] = msgspec.field(default_factory=dict)
    cost: Any = None
