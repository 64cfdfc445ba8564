"""`ramptrace trace info`: a trace described in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from traces.cli_options import open_declared, reading_options
from traces.terminal import bars, print_json, print_pairs, sparkline

if TYPE_CHECKING:
    from traces.describe import Description
    from traces.lineage import LineageStep
    from traces.readers import ImportReport


@click.command(short_help="Describe a trace: rates, burstiness, lengths, reuse, sessions.")
@click.argument("file", metavar="FILE")
@reading_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(file: str, as_json: bool, **declared: Any) -> None:
    """Describe FILE: rate and concurrency over time, burstiness, lengths, prefix reuse, sessions.

    A terminal gets charts, a pipe gets plain lines. `trace plot` draws the same as a picture.
    """
    import msgspec

    from traces.describe import describe
    from traces.lineage import steps_of

    loaded = open_declared(file, **declared)
    report = loaded.account()
    described = describe(loaded.scan())
    steps = steps_of(loaded.path)
    if as_json:
        known = {"format": report.format, "first_arrival": report.first_arrival, "last_arrival": report.last_arrival}
        described_figures = msgspec.to_builtins(described)
        sampled = {
            "sampling_percent": report.sampling_percent,
            "real_mean_rate_per_s": real_rate_per_s(described.mean_rate_per_s, report.sampling_percent),
        }
        print_json(
            {
                "schema": 1,
                **known,
                "sha256": report.sha256,
                **sampled,
                **described_figures,
                "steps": msgspec.to_builtins(steps),
            }
        )
        return
    print_pairs(file, figures(report, described, steps))
    if sys.stdout.isatty():
        click.echo("\n".join(_charts(described)))


def figures(report: ImportReport, described: Description, steps: list[LineageStep]) -> dict[str, str]:
    """Return a trace's figures in words."""
    from traces.units import format_duration

    times = {} if report.first_arrival is None else {"first arrival": report.first_arrival}
    if report.last_arrival is not None:
        times["last arrival"] = report.last_arrival
    made = {"made by": ", ".join(step.name for step in steps)} if steps else {}
    return {
        "format": report.format,
        **made,
        "rows": f"{described.rows:,}",
        **times,
        "span": format_duration(report.span_us),
        **({} if report.sampling_percent is None else {"sampling": sampling_text(report)}),
        "mean rate": _mean_rate(described, report),
        "peak rate in 1 s": _figure(described.peak_rate_1s_per_s, "/s"),
        "peak rate in 10 s": _figure(described.peak_rate_10s_per_s, "/s"),
        "inter-arrival": _durations(described.interarrival_us),
        "inter-arrival CV": _figure(described.interarrival_cv, ""),
        "index of dispersion": ", ".join(f"{w} {_figure(v, '')}" for w, v in described.dispersion.items()),
        "input tokens": _quantiles(described.input_tokens),
        "output tokens": _quantiles(described.output_tokens),
        "under way": _concurrency(described),
        "prefix reuse": _reuse(described),
        "sessions": _sessions(described),
    }


def sampling_text(report: ImportReport) -> str:
    """Return what is known of the real load behind a sample."""
    assert report.sampling_percent is not None
    return (
        f"{report.sampling_percent:g} % of the requests, as declared: the real rate was "
        f"{100 / report.sampling_percent:.4g} times this, and rows are as recorded"
    )


def real_rate_per_s(recorded_per_s: float | None, sampling_percent: float | None) -> float | None:
    """Return the rate of the requests of which a sample was recorded; None where the share is not declared."""
    if recorded_per_s is None or sampling_percent is None:
        return None
    return recorded_per_s * 100 / sampling_percent


def _mean_rate(described: Description, report: ImportReport) -> str:
    recorded = _figure(described.mean_rate_per_s, "/s")
    real = real_rate_per_s(described.mean_rate_per_s, report.sampling_percent)
    return recorded if real is None else f"{recorded} recorded, {_figure(real, '/s')} real"


def _concurrency(described: Description) -> str:
    found = described.concurrency
    if found is None:
        return "unknown: the recording has no latencies"
    partly = "" if found.known_share == 1 else f", from the {found.known_share:.1%} of rows with a latency"
    return f"mean {found.mean:.3g}, peak {found.peak:,}{partly}"


def _reuse(described: Description) -> str:
    found = described.prefix_reuse
    if found is None:
        return "unknown: the recording has no prefix blocks"
    tokens = "" if found.token_share is None else f", {found.token_share:.1%} of tokens"
    return (
        f"at most {found.block_share:.1%} of blocks{tokens} "
        f"({found.blocks:,} blocks, {found.distinct_blocks:,} distinct)"
    )


def _sessions(described: Description) -> str:
    found = described.sessions
    if found is None:
        return "unknown: the recording names none"
    rows = found.rows_per_session
    return (
        f"{found.sessions:,} with {found.rows:,} rows; {found.of_several_rows:,} have several "
        f"(rows: mean {rows['mean']:.3g}, p99 {rows['p99']:,}, max {rows['max']:,})"
    )


def _charts(described: Description) -> list[str]:
    """Return the charts, at most 80 columns wide."""
    from traces.units import format_duration

    bin_text = format_duration(described.rates.bin_us)
    lines = ["", f"requests per second, {bin_text} per character, top {max(described.rates.per_s):.3g}"]
    lines.append(f"  {sparkline(described.rates.per_s)}")
    if described.concurrency is not None:
        lines += ["", f"requests under way, {bin_text} per character, top {described.concurrency.peak:,}"]
        lines.append(f"  {sparkline(described.concurrency.highest)}")
    for title, histogram in (
        ("input tokens", described.input_tokens_histogram),
        ("output tokens", described.output_tokens_histogram),
    ):
        named = [(f"{low:,}" if low == high else f"{low:,}..{high:,}", count) for low, high, count in histogram]
        lines += ["", title, *(f"  {bar}" for bar in bars(named))]
    gaps = [(f"from {format_duration(low)}", count) for low, _, count in described.interarrival_histogram_us]
    lines += ["", "time between arrivals", *(f"  {bar}" for bar in bars(gaps))]
    return lines


def _figure(value: float | None, unit: str) -> str:
    return "unknown" if value is None else f"{value:.3g} {unit}".rstrip()


def _quantiles(figures: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {'unknown' if value is None else f'{value:,.0f}'}" for name, value in figures.items())


def _durations(figures: Mapping[str, float | None]) -> str:
    from traces.units import format_duration

    return ", ".join(
        f"{name} {'unknown' if value is None else format_duration(value)}" for name, value in figures.items()
    )
