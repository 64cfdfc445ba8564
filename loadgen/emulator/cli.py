"""The command that serves the emulator."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free port.")
@click.option(
    "--time-scale",
    default=20.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True, max=100_000),
    help="Endpoint seconds per second.",
)
@click.option(
    "--platform",
    type=click.Choice(["sagemaker", "ecs", "ec2", "kubernetes"]),
    help="What runs the endpoint; sagemaker, if left out.",
)
@click.option(
    "--image-cache/--no-image-cache",
    default=None,
    help="Whether new instances find the image cached; they do, if left out.",
)
@click.option("--seed", default=0, show_default=True, help="Same seed, same arrivals: same history.")
@click.option(
    "--slow-first-token", metavar="DURATION", help="Add this to every first token, in endpoint time (250ms, 2s)."
)
@click.option(
    "--scenario", type=click.Path(path_type=Path), help="TOML file whose [emulator_model] table describes the endpoint."
)
@click.option("--truth", type=click.Path(path_type=Path), help="Write what really happened to this Parquet file.")
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as one JSON object.")
def emulate(
    *,
    host: str,
    port: int,
    time_scale: float,
    platform: str | None,
    image_cache: bool | None,
    seed: int,
    slow_first_token: str | None,
    scenario: Path | None,
    truth: Path | None,
    as_json: bool,
) -> None:
    """Serve the emulated endpoint and its platform on loopback.

    One port speaks OpenAI chat completions and what the platform speaks. For sagemaker: its runtime and control plane,
    Application Auto Scaling, CloudWatch, CloudWatch Logs and signed PromQL. For ecs: ECS, target health and the same
    scaling, alarms and logs. For ec2: EC2 Auto Scaling, instances, target health and alarms. For kubernetes: lists,
    watches and pod logs of its API. Ends on SIGTERM or Ctrl-C. Signatures are checked when
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are set. It keeps its state: instances that one replay brought are
    still there for the next, until they scale in; start it again for a fresh endpoint.
    """
    import asyncio
    import math
    import os

    import msgspec
    from msgspec.structs import replace

    from loadgen.emulator.config import EmulatorConfig, load_config
    from loadgen.emulator.live import serve
    from traces.errors import BadInputError
    from traces.units import US_PER_S, parse_duration_us

    if math.isnan(time_scale):
        raise BadInputError("--time-scale: not a number; give endpoint seconds per second, such as 20")
    if not host:
        raise BadInputError("--host: empty; give the address to listen on, such as 127.0.0.1")
    config = load_config(scenario) if scenario else EmulatorConfig()
    if platform is not None:
        config = msgspec.convert(msgspec.to_builtins(config) | {"platform": platform}, EmulatorConfig)
    if image_cache is not None:
        config = replace(config, startup=replace(config.startup, image_cache=image_cache))
    if slow_first_token is not None:
        extra_s = parse_duration_us(slow_first_token) / US_PER_S
        config = replace(config, serving=replace(config.serving, first_token_extra_s=extra_s))

    def listening(url: str) -> None:
        ready = {
            "url": url,
            "time_scale": time_scale,
            "endpoint_name": config.endpoint_name,
            "platform": config.platform,
        }
        cache = "on" if config.startup.image_cache else "off"
        text = (
            f"emulated endpoint {config.endpoint_name} ({config.model_name} on {config.platform} in {config.region}) "
            f"at {url}, {time_scale:g} times real time, image cache {cache}; Ctrl-C ends it"
        )
        click.echo(json.dumps(ready) if as_json else text)

    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    asyncio.run(
        serve(
            config,
            time_scale=time_scale,
            seed=seed,
            host=host,
            port=port,
            truth=truth,
            credentials=(key, secret) if key and secret else None,
            listening=listening,
        )
    )
