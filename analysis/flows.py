"""Two transfers on one shared resource: max-min fair rates, their fluid simulation, and the fit to a pair's own data.

Lengths in one unit of the caller's choice (s or µs), sizes and rates to match.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """A transfer: work to do, its own greatest rate, and its weight in the shared resource."""

    work: float
    cap: float = math.inf
    weight: float = 1.0


def fair_rates(capacity: float, flows: Mapping[str, Flow]) -> dict[str, float]:
    """Return the weighted max-min fair rates of flows that share `capacity` (progressive filling).

    >>> three = {"a": Flow(work=1, cap=1), "b": Flow(work=1, cap=4), "c": Flow(work=1)}
    >>> fair_rates(10, three)
    {'a': 1, 'b': 4, 'c': 5.0}
    """
    left, open_flows = capacity, dict(flows)
    rates: dict[str, float] = {}
    while open_flows:
        share = left / sum(flow.weight for flow in open_flows.values())
        bound = {name: flow for name, flow in open_flows.items() if flow.cap <= share * flow.weight}
        if not bound:
            rates |= {name: share * flow.weight for name, flow in open_flows.items()}
            break
        for name, flow in bound.items():
            rates[name] = flow.cap
            left -= flow.cap
            del open_flows[name]
    return {name: rates[name] for name in flows}


def finish_times(capacity: float, flows: Mapping[str, Flow]) -> dict[str, float]:
    """Return when each of flows that start together ends; rates are shared anew whenever one does.

    >>> finish_times(2, {"pull": Flow(work=10), "download": Flow(work=4)})
    {'download': 4.0, 'pull': 7.0}
    """
    left = {name: flow.work for name, flow in flows.items()}
    now = 0.0
    ends: dict[str, float] = {}
    while left:
        rates = fair_rates(capacity, {name: flows[name] for name in left})
        soonest = min(left, key=lambda name: left[name] / rates[name] if rates[name] else math.inf)
        if not rates[soonest]:
            return ends | dict.fromkeys(left, math.inf)
        length = left[soonest] / rates[soonest]
        now += length
        left = {name: work - rates[name] * length for name, work in left.items() if name != soonest}
        ends[soonest] = now
    return ends


class SharedFit(msgspec.Struct, frozen=True, kw_only=True):
    """A pull and a download on one work-conserving resource, fitted to three lengths: no degree of freedom is left.

    `weight`: the download's share of the resource while both run. `pull_alone`: the pull without a download beside it.
    `contention`: how much longer the pull took for the download, all of it on the critical path.
    `work_per_byte`: work of the resource per compressed byte of the image, for one per byte of the model; None without
    sizes. `download_rate`: bytes per unit of time alone.
    """

    weight: float
    pull_alone: float
    contention: float
    work_per_byte: float | None = None
    download_rate: float | None = None


def fit_shared(
    *,
    pull: float,
    download: float,
    download_alone: float,
    image_bytes: float | None = None,
    model_bytes: float | None = None,
) -> SharedFit | None:
    """Return the fit to a contended pull and download and to a download alone; None where the model cannot hold.

    Work conservation: both together take as long as one after the other, pull = pull_alone + download_alone, whatever
    the weight; and weight = download_alone / download. It needs the download to end first, and to be slower together.

    >>> found = fit_shared(pull=333, download=168, download_alone=77, image_bytes=17.7e9, model_bytes=16e9)
    >>> round(found.weight, 4), found.pull_alone, found.contention, round(found.work_per_byte, 4)
    (0.4583, 256, 77, 3.0054)
    """
    if not 0 < download_alone <= download < pull or pull - download_alone < download_alone:
        return None
    rate = None if not model_bytes else model_bytes / download_alone
    work = None
    if rate is not None and image_bytes and model_bytes:
        work = (rate * pull - model_bytes) / image_bytes
    return SharedFit(
        weight=download_alone / download,
        pull_alone=pull - download_alone,
        contention=download_alone,
        work_per_byte=work,
        download_rate=rate,
    )


def refutes_line_rate(*, together: float, download_alone: float, image_bytes: float, model_bytes: float) -> bool:
    """Tell whether the lengths rule out that pull and download shared the line alone, at the download's own rate.

    At that rate the line would carry image and model in `download_alone` × (1 + image / model); measured to have taken
    longer, something else held them up.

    >>> refutes_line_rate(together=333, download_alone=77, image_bytes=17.7e9, model_bytes=16e9)
    True
    """
    return together > download_alone * (1 + image_bytes / model_bytes)
