"""What one unit can do, read from the run itself while its units have all the work they can take. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loadgen.live.scaling import ScaleOut
from loadgen.live.series import Series
from traces.units import US_PER_S

_SATURATED_BELOW: Final = 0.9
_LEAST_ANSWERS: Final = 20


def unit_rate(scale_outs: Sequence[ScaleOut], series: Sequence[Series], now_us: int) -> float | None:
    """Return requests/s that one unit answers, from the first scale-out that shows it; None while none does.

    Looked at over the last three quarters of the stretch between the alarm's first breaching period and the first new
    unit in service, when the endpoint answered less than 90 % of what was due. The same reading as the analysis makes,
    from the onset that it finds.
    """
    for found in scale_outs:
        begin = next((at for at in (found.begun_us, found.alarm_us) if at is not None), found.decision_us)
        arrived = [u.in_service_us for u in found.units if u.in_service_us is not None]
        end = min(arrived, default=now_us)
        rate = _over(series, begin + (end - begin) // 4, end, found.units_before)
        if rate is not None:
            return rate
    return None


def _over(series: Sequence[Series], begin: int, end: int, units: int | None) -> float | None:
    """Return the rate over [begin, end), from the first of the series that reaches back so far."""
    if not units:
        return None
    for one in series:
        bins = one.between(begin, end)
        length_s = len(range(-(-begin // one.width_us), end // one.width_us)) * one.width_us / US_PER_S
        answered, due = sum(b.ok for _, b in bins), sum(b.due for _, b in bins)
        if length_s > 0 and answered >= _LEAST_ANSWERS and answered < _SATURATED_BELOW * due:
            return answered / length_s / units
    return None
