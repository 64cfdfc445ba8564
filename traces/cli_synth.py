"""`ramptrace trace synth`: made-up traffic from stated distributions; the same seed makes the same file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from traces.cli_options import check_outputs, output_options
from traces.terminal import print_json

_Command = Callable[..., None]


@click.group(short_help="Make up a trace from stated distributions.")
def synth() -> None:
    """Make up a trace from stated distributions. The same options and seed make the same file, byte for byte.

    KIND is how requests arrive. Rates are requests per second; times are written as 90s, 10m, 1h30m.
    """


def _common(command: _Command) -> _Command:
    """Add the options that every kind has."""
    options = [
        click.option("--length", required=True, metavar="DURATION", help="How long the trace is, such as 10m."),
        click.option("--input-tokens", default="400", show_default=True, metavar="LENGTHS", help="Prompt lengths."),
        click.option("--output-tokens", default="100", show_default=True, metavar="LENGTHS", help="Answer lengths."),
        click.option("--lengths-from", metavar="FILE", help="Draw both lengths together from a trace's rows instead."),
        click.option("--turns", default=1.0, show_default=True, help="Mean turns of a conversation."),
        click.option("--think", default="20s", show_default=True, help="Mean pause before the next turn."),
        click.option(
            "--block-tokens", default=0, help="Number prompts' prefix blocks of so many tokens.  [default: no]"
        ),
        click.option("--prefix-groups", default=0, show_default=True, help="How many system prompts are shared."),
        click.option("--prefix-tokens", default=1024, show_default=True, help="How long each of them is."),
        click.option("--seed", default=0, show_default=True, help="Seed of whatever is drawn."),
        output_options("Parquet file."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _kind(name: str, *options: Any) -> Callable[[_Command], click.Command]:
    """Return the decorator that makes a command of `synth` with its own options first."""

    def decorate(function: _Command) -> click.Command:
        command = _common(function)
        for option in reversed(options):
            command = option(command)
        return synth.command(name=name)(command)

    return decorate


_rate = click.option("--rate", type=float, required=True, help="Mean rate.")
_cv = click.option("--cv", type=float, required=True, help="Coefficient of variation of the gaps; 1 is Poisson.")
_base = click.option("--base", type=float, required=True, help="Rate before.")
_to = click.option("--to", type=float, required=True, help="Rate it changes to.")
_at = click.option("--at", required=True, metavar="DURATION", help="When it changes.")
_for = click.option("--for", "for_", required=True, metavar="DURATION", help="How long that takes, or lasts.")


@_kind("poisson", _rate)
def poisson(**options: Any) -> None:
    """Arrivals independent of one another, at a constant rate."""
    _make("poisson", options)


@_kind("gamma", _rate, _cv)
def gamma(**options: Any) -> None:
    """A renewal process with gamma gaps: bursty for --cv above 1, regular below."""
    _make("gamma", options)


@_kind("weibull", _rate, _cv)
def weibull(**options: Any) -> None:
    """A renewal process with Weibull gaps."""
    _make("weibull", options)


@_kind(
    "modulated",
    click.option("--rates", required=True, metavar="R,R,…", help="The states' rates."),
    click.option("--stays", required=True, metavar="T,T,…", help="The states' mean stays, such as 60s,10s."),
)
def modulated(**options: Any) -> None:
    """A Markov-modulated Poisson process: the rate jumps between states at random."""
    _make("modulated", options)


@_kind(
    "diurnal",
    _rate,
    click.option("--amplitude", default=0.6, show_default=True, help="Swing, as a share of the mean rate."),
    click.option("--noise", default=0.1, show_default=True, help="Standard deviation of the rate's logarithm."),
    click.option("--period", default="24h", show_default=True, metavar="DURATION", help="From peak to peak."),
    click.option("--peak", default="14h", show_default=True, metavar="DURATION", help="When the first peak is."),
)
def diurnal(**options: Any) -> None:
    """A rate that goes up and down with the day, with noise on it."""
    _make("diurnal", options)


@_kind("step", _base, _to, _at, _for)
def step(**options: Any) -> None:
    """A rate that jumps, stays for a while, and jumps back."""
    _make("step", options)


@_kind("ramp", _base, _to, _at, _for)
def ramp(**options: Any) -> None:
    """A rate that grows evenly, and stays there."""
    _make("ramp", options)


@_kind(
    "spike",
    _base,
    _to,
    _at,
    click.option("--decay", default="30s", show_default=True, help="Time constant of the fall."),
)
def spike(**options: Any) -> None:
    """A rate that jumps and decays."""
    _make("spike", options)


@_kind(
    "clients",
    _rate,
    click.option("--clients", default=100, show_default=True, help="How many there are."),
    click.option("--skew", default=1.2, show_default=True, help="The k-th client's rate falls as k to minus this."),
    click.option("--cv", default=1.5, show_default=True, help="Typical coefficient of variation of a client's gaps."),
    click.option("--spread", default=0.5, show_default=True, help="How much clients differ in gaps and lengths."),
)
def clients(**options: Any) -> None:
    """A mixture of clients, each with its own rate, burstiness and lengths (as ServeGen describes production)."""
    _make("clients", options)


def _make(kind: str, options: dict[str, Any]) -> None:
    from traces.composition import compose
    from traces.errors import BadInputError
    from traces.lineage import LineageStep, metadata
    from traces.run import write_parquet

    output, as_json, seed = options.pop("output"), options.pop("as_json"), options.pop("seed")
    check_outputs([output], force=options.pop("force"))
    if not output.parent.is_dir():
        raise BadInputError(f"{output}: there is no folder {output.parent}; make it, or choose another place")
    composition = compose(kind, options, seed)
    made = LineageStep(name="synth", parameters={"kind": kind, **composition.parameters}, seed=seed)
    try:
        write_parquet(output, composition.frame, metadata([made]))
    except OSError as error:
        raise BadInputError(f"{output}: cannot be written ({error.strerror}); choose another place with -o") from error
    if as_json:
        rows, last_us = composition.frame.height, composition.frame["arrival_us"][-1]
        print_json({"schema": 1, "output": str(output), "rows": rows, "span_us": last_us, "seed": seed})
    else:
        click.echo(f"wrote {composition.frame.height:,} rows to {output}", err=True)
