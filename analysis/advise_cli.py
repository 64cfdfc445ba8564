"""The command `advise`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--image-cache", type=click.Choice(["on", "off"]), help="Whether the run's instances had it cached.")
@click.option("--image-gb", type=float, help="Size of the image in GB; needed where the run does not state it.")
@click.option("--model-gb", type=float, help="Size of the model in GB; needed where the run does not state it.")
@click.option("--draws", type=click.IntRange(2, 10_000), default=40, show_default=True, help="Draws of the model.")
@click.option("--slo-ttft", default="2s", show_default=True, metavar="TIME", help="Later first tokens are damage.")
@click.option("--price", type=click.FloatRange(min=0), help="Price of an instance-hour.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.pass_context
def advise(
    context: click.Context,
    *,
    run: Path,
    image_cache: str | None,
    image_gb: float | None,
    model_gb: float | None,
    draws: int,
    slo_ttft: str,
    price: float | None,
    as_json: bool,
) -> None:
    """Rank what would shorten a run's time to capacity, by effects that a model fitted to the run predicts.

    \b
    ramptrace advise runs/20261201T120000Z-burst --image-gb 17.7 --model-gb 16
    """  # noqa: D301 - click wants the character, not its escape
    from analysis.advise import advise as advise_on
    from analysis.advise import advised_entry
    from analysis.report.advice import advice_text
    from traces.units import US_PER_S, parse_duration_us

    found = advise_on(
        run,
        context.obj.simulator(),
        image_gb=image_gb,
        model_gb=model_gb,
        image_cache=None if image_cache is None else image_cache == "on",
        draws=draws,
        ttft_s=parse_duration_us(slo_ttft) / US_PER_S,
        price_per_hour=price,
    )
    click.echo(json.dumps(advised_entry(found), allow_nan=False) if as_json else advice_text(found))
