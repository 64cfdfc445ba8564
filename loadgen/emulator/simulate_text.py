"""What `ramptrace simulate` prints for people. Pure."""

from __future__ import annotations

from typing import Any


def sweep_text(found: dict[str, Any]) -> str:
    """Return a sweep as a table, the best of what nothing beats first."""
    points = sorted(found["points"], key=_rank)
    priced = points[0]["cost"] is not None
    cost = f"cost {found['currency']}" if priced else "instance-h"
    width = max(len("variant"), *(len(point["name"]) for point in points))
    demand = found["demand"]
    head = (f"{'variant':<{width}}", f"{'time to capacity, s':>24}", f"{_beyond(found):>18}", f"{cost:>20}")
    lines = [
        f"simulated (emulated endpoint): {len(points)} variants × {found['seeds']} seeds of {found['trace']}",
        f"burst at {demand['onset_s']:.0f} s: {demand['requests_per_s']:.2f} requests/s; {_one(demand)}",
        "",
        "  " + "  ".join(head),
    ]
    for point in points:
        money = point["cost"] if priced else point["instance_hours"]
        lines.append(
            f"{'●' if point['pareto'] else ' '} {point['name']:<{width}}  {_time(point):>24}  "
            f"{_spread(point['violations'], '.0f'):>18}  {_spread(money, '.3f'):>20}"
        )
    lines.append("● nothing beats it in time, damage and cost together; median (5 %–95 % of the seeds)")
    return "\n".join(lines)


def fit_text(document: dict[str, Any], path: str) -> str:
    """Return a fitted profile's parameters with their intervals."""
    lines = [f"fitted to {', '.join(document['fitted']['runs'])}" + _emulated(document)]
    for table, values in document["intervals"].items():
        lines += [
            f"  {table + '.' + name:<34} {p['value']:>10.3f}   {p['lo']:.3f} … {p['hi']:.3f}"
            + ("" if p["method"] == "fitted" else f"   {p['method']}")
            for name, p in values.items()
        ]
    lines += [f"  assumed: {text}" for text in document["fitted"]["assumptions"]]
    return "\n".join([*lines, f"profile: {path}"])


def check_text(check: dict[str, Any]) -> str:
    """Return how a fitted profile's own simulation compares with the run it was fitted to."""
    lines = ["the run's own load, simulated with it:"]
    for name, unit in (("time_to_capacity_s", "time to capacity"), ("startup_s", "start-up")):
        observed, simulated = check["observed"][name], check["simulated"][name]
        shown = "-" if observed is None else f"{observed:.0f} s"
        model = ", ".join("not reached" if value is None else f"{value:.0f} s" for value in simulated)
        lines.append(f"  {unit:<17} measured {shown}, simulated {model}")
    return "\n".join(lines)


def _one(demand: dict[str, float]) -> str:
    return f"one instance serves {demand['unit_requests_per_s']:.2f}"


def _beyond(found: dict[str, Any]) -> str:
    return f"beyond {found['ttft_s']:g} s"


def _emulated(document: dict[str, Any]) -> str:
    return "  (emulated)" if document["fitted"]["emulated"] else ""


def _rank(point: dict[str, Any]) -> tuple[bool, bool, float]:
    time = point["time_to_capacity_s"]["p50"]
    return (not point["pareto"], time is None, time or 0.0)


def _time(point: dict[str, Any]) -> str:
    times = point["time_to_capacity_s"]
    if times["p50"] is None:
        return f"not reached ({point['reached']}/{point['runs']})"
    shown = [("∞" if times[rank] is None else f"{times[rank]:.0f}") for rank in ("p50", "p05", "p95")]
    return f"{shown[0]} ({shown[1]}–{shown[2]})"


def _spread(value: dict[str, float], form: str) -> str:
    return f"{value['p50']:{form}} ({value['p05']:{form}}–{value['p95']:{form}})"
